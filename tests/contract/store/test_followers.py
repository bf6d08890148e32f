"""A mirror shows what the owner of a partition wrote: loaded, then followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indexer.index.source import SLOTS_WAITING_MIN
from indexer.model import SourceId
from indexer.store.rebuild import LoadOptions
from tests.support.collecting import until
from tests.support.following import PARTITION, QUICK, following
from tests.support.hand_owner import HandOwner
from tests.support.owning import POD, with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)


def test_what_is_there_is_loaded_and_what_comes_is_followed(store: Store, keys: PartitionKeys) -> None:
    """Stores, removals, several tiers, several engine hashes for one content, of two sources."""

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        await owner.store(POD, range(3_000))
        await owner.store(POD, range(2_900, 3_200), lanes=3)
        await owner.remove(POD, range(100))
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.put(OTHER)
            await owner.store(OTHER, range(1_000, 1_500), lanes=2, aliases=2)
            await owner.store(POD, range(50), lanes=2)
            await owner.remove(OTHER, range(1_000, 1_003))
            await owner.remove(POD, range(40, 200))
            await owner.store(OTHER, range(1_200, 1_300), lanes=1)
            await follow.until_shows(owner)

    with_client(store, body)


def test_a_partition_without_sources_is_followed_and_of_no_use(store: Store, keys: PartitionKeys) -> None:
    """Nobody asks the store for loads there: followers are many, and each would."""

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        async with following(store.url, keys) as follow:
            followers = follow.followers
            await until(lambda: followers.is_following(PARTITION), "the partition to be read")
            assert not followers.has_sources(PARTITION)
            await owner.put(POD)
            await until(lambda: followers.has_sources(PARTITION), "its first source")
            followers.leave(PARTITION)
            assert not followers.has_sources(PARTITION)

    with_client(store, body)


def test_a_partition_that_is_left_and_followed_again(store: Store, keys: PartitionKeys) -> None:
    """As when it is owned here for a while: what stands stays, and is read anew."""

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        await owner.store(POD, range(100))
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            before = owner.truth[POD].presence
            follow.followers.leave(PARTITION)
            follow.followers.leave(PARTITION)
            await owner.store(POD, range(200, 300))
            assert [] == follow.followers.progress()
            assert before == follow.shown(POD)

            follow.followers.follow(PARTITION)
            follow.followers.follow(PARTITION)
            assert before == follow.shown(POD)
            await follow.until_shows(owner)

    with_client(store, body)


def test_changes_that_wait_for_a_map_are_bounded(store: Store, keys: PartitionKeys) -> None:
    """Where no more may wait the journal is read on later: it keeps them, too."""
    options = msgspec.structs.replace(QUICK, queue_bytes=1, load=LoadOptions(count=1, in_flight=1))

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        await owner.store(POD, range(600))
        async with following(store.url, keys, options) as follow:
            await until(lambda: POD in follow.registry.sources, "the source to be listed")
            for number in range(0, 600, 6):
                await owner.remove(POD, range(number, number + 3))
                assert follow.waiting_bytes < 2_000
            await follow.until_shows(owner)

    with_client(store, body)


def test_generations_without_end(store: Store, keys: PartitionKeys) -> None:
    """Slots that wait for the scrub are bounded: the journal is read on as they are given back."""

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            for _ in range(SLOTS_WAITING_MIN + QUICK.count):
                await owner.turn(POD, owner.truth[POD].where.generation + 1)
                await owner.store(POD, range(3))
            await until(lambda: follow.mirror.retired_slots() >= SLOTS_WAITING_MIN, "a crowd")
            assert follow.position != str(owner.journal.position)
            await until(lambda: follow.tidied() and follow.is_at(owner), "the crowd to go")
            await follow.until_shows(owner)

    with_client(store, body)
