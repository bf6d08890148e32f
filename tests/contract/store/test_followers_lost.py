"""A follower and a store in trouble: what is known stands and says that it is stale, and heals by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from indexer.model import SourceId
from indexer.partitions.options import FollowOptions
from indexer.store.layout import PartitionKeys, tags
from tests.support.collecting import until
from tests.support.following import following
from tests.support.hand_owner import HandOwner
from tests.support.owning import POD, TIMES, until_well, with_client
from tests.support.redis_servers import Store, own_server

if TYPE_CHECKING:
    from pathlib import Path

    from indexer.store.client import Client

OTHER = SourceId("pod-2", 0)


async def filled(client: Client, keys: PartitionKeys, pairs: int = 500) -> HandOwner:
    """A source in the store, and its owner."""
    owner = HandOwner(client, keys)
    await owner.own()
    await owner.put(POD)
    await owner.store(POD, range(pairs))
    return owner


async def asserted(owner: HandOwner) -> None:
    """As an owner does whose store lost everything."""
    await owner.own()
    for source in owner.truth:
        await owner.command("restore", source)
        await owner.lay(source)
        await owner.tick()


def test_a_store_that_was_emptied(store: Store, keys: PartitionKeys) -> None:
    """No source is given up because the registry is empty; the owner puts everything back."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.tick()
            await until(lambda: follow.state(POD) == "live", "a tick")
            truth = owner.truth[POD].presence
            store.empty()
            await until(lambda: follow.progress.reloads.get("gone") == 1, "the loss to be noticed")
            await until(lambda: follow.progress.state == "following", "nothing more to be read")

            assert "stale" == follow.state(POD)
            assert truth == follow.shown(POD)
            await owner.own()
            await owner.tick()
            await until(lambda: follow.position == str(owner.journal.position), "the new journal")
            assert "stale" == follow.state(POD)
            await asserted(owner)
            await owner.store(POD, range(400, 600))
            await follow.until_shows(owner)
            assert "live" == follow.state(POD)
            assert [] == follow.shelves.left

    with_client(store, body)


@pytest.mark.parametrize("trouble", ["frozen", "restarted_empty"])
def test_a_server_that_is_away(tmp_path: Path, keys: PartitionKeys, trouble: str) -> None:
    """What is known goes on answering; then the journal goes on, or all is asserted anew."""
    with own_server(tmp_path) as server:

        async def body(client: Client) -> None:
            owner = await filled(client, keys)
            async with following(server.url, keys) as follow:
                await follow.until_shows(owner)
                truth = owner.truth[POD].presence
                if trouble == "frozen":
                    server.freeze()
                else:
                    server.stop()
                await until(lambda: follow.progress.state == "lost", "the trouble to be noticed")
                assert truth == follow.shown(POD)
                if trouble == "frozen":
                    server.thaw()
                    await until_well(client)
                    await owner.store(POD, range(5))
                else:
                    server.start()
                    await until_well(client)
                    await asserted(owner)
                await follow.until_shows(owner)
                assert (trouble == "frozen") is not bool(follow.progress.reloads)

        with_client(Store("valkey", [server]), body)


def test_a_store_that_was_restored_from_before(store: Store, keys: PartitionKeys) -> None:
    """Its journal ends before what was followed. The owner goes on in a new epoch and asserts what it knows."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        before = {key: store.look.dump(key) for key in store.all_keys() if key.startswith(keys.head[:-4])}
        before = {key: (content, store.look.pttl(key)) for key, content in before.items()}
        async with following(store.url, keys) as follow:
            await owner.store(POD, range(500, 900))
            await follow.until_shows(owner)
            store.look.unlink(*before)
            for key, (content, ttl) in before.items():
                store.look.restore(key, max(0, ttl), content, replace=True)
            await until(lambda: sum(follow.progress.reloads.values()) > 0, "the loss to be noticed")
            await asserted(owner)
            await owner.store(POD, range(1_000, 1_100))
            await follow.until_shows(owner)

    with_client(store, body)


def test_entries_that_are_gone_before_they_were_followed(store: Store, keys: PartitionKeys) -> None:
    """The journal was trimmed while the follower was away."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            with store.look.pipeline(transaction=True) as together:
                together.xtrim(keys.log, maxlen=0, approximate=False)
                together.set(
                    keys.head, f"{owner.journal.position.epoch}-{owner.journal.position.number + 5}", px=60_000
                )
                together.execute()
            await until(lambda: follow.progress.reloads.get("hole") == 1, "the hole to be noticed")
            await asserted(owner)
            await follow.until_shows(owner)

    with_client(store, body)


def test_a_part_of_a_map_that_is_gone(store: Store, keys: PartitionKeys) -> None:
    """It is not believed, by one who knew it whole and by one who comes new, until the owner lays it anew."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            truth = owner.truth[POD].presence
            store.look.unlink(keys.segment(POD, owner.truth[POD].where.generation, 0, 1))
            await owner.tick()
            await until(lambda: follow.state(POD) == "live", "the tick")
            follow.lose()
            await until(lambda: follow.tries(POD) > 2, "some tries")
            assert ("stale", truth) == (follow.state(POD), follow.shown(POD))
            async with following(store.url, keys) as late:
                await until(lambda: late.tries(POD) > 2, "some tries")
                await owner.tick()
                await until(lambda: late.position == str(owner.journal.position), "the tick")
                assert late.state(POD) in {"new", "syncing"}
                assert {} == late.shown(POD)
                await owner.lay(POD)
                await late.until_shows(owner)
                await follow.until_shows(owner)

    with_client(store, body)


def test_a_copy_that_is_being_laid_is_not_live(store: Store, keys: PartitionKeys) -> None:
    """A follower that starts meanwhile waits for the whole."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        store.empty()
        await owner.own()
        await owner.command("restore", POD)
        async with following(store.url, keys) as follow:
            await until(lambda: POD in follow.registry.sources, "the source to be listed")
            await owner.tick()
            await until(lambda: follow.position == str(owner.journal.position), "the tick")
            await until(lambda: follow.tries(POD) > 1, "some tries")
            assert follow.state(POD) in {"new", "syncing"}
            await owner.lay(POD)
            await owner.tick()
            await follow.until_shows(owner)
            assert "live" == follow.state(POD)

    with_client(store, body)


@pytest.mark.parametrize("name", ["head", "log", "control", "sources", "state", "segment"])
def test_a_key_of_another_type_costs_no_other_partition_anything(store: Store, keys: PartitionKeys, name: str) -> None:
    """What is known stands; once the key is gone everything is as it was."""
    other_keys = PartitionKeys("kvi", tags(16)[4])

    async def body(client: Client) -> None:
        owner, other = await filled(client, keys), HandOwner(client, other_keys)
        await other.own()
        await other.put(OTHER)
        where = owner.truth[POD].where
        named = {"state": keys.source(POD), "segment": keys.segment(POD, where.generation, 0, 0)}
        key: bytes = named.get(name) or getattr(keys, name)
        async with following(store.url, keys, others={4: other_keys}) as follow:
            await until(lambda: follow.progress.loaded == 1, "the source to be loaded")
            truth = owner.truth[POD].presence
            content, ttl = store.look.dump(key), store.look.pttl(key)
            store.look.unlink(key)
            store.look.rpush(key, "x")
            store.look.pexpire(key, TIMES["retain_ms"])
            if name in {"state", "segment", "sources"}:
                follow.lose()  # else nobody looks at it
            await until(lambda: follow.progress.state != "following", "the trouble to be noticed")
            await other.store(OTHER, range(100))
            await until(
                lambda: follow.shown(OTHER) == other.truth[OTHER].presence, "the other partition to be followed"
            )
            assert truth == follow.shown(POD)

            store.look.restore(key, max(0, ttl), content, replace=True)
            await owner.own()
            await owner.store(POD, range(50, 80), lanes=2)
            await until(lambda: follow.progress.state == "following" and follow.progress.loaded == 1, "all to be well")
            await until(lambda: follow.position == str(owner.journal.position), "the journal")
            assert owner.truth[POD].presence == follow.shown(POD)

    with_client(store, body)


def test_followers_stop_in_the_middle_of_trouble(tmp_path: Path, keys: PartitionKeys) -> None:
    """A stop does not wait for the store."""
    with own_server(tmp_path) as server:

        async def body(client: Client) -> None:
            await filled(client, keys)
            async with following(server.url, keys) as follow:
                await until(lambda: follow.progress.loaded == 1, "the source to be loaded")
                server.freeze()
                await asyncio.sleep(0)
            server.thaw()

        with_client(Store("valkey", [server]), body)


def test_what_cannot_be_read_again_and_again_is_left_alone_for_longer(store: Store, keys: PartitionKeys) -> None:
    """Somebody wrote into the journal, and no owner goes on behind it: each try reads all maps."""
    slowly = FollowOptions(rest_s=2.0, rest_max_s=60.0)

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys, slowly) as follow:
            await follow.until_shows(owner)
            store.look.xadd(keys.log, {"x": "y"})
            await until(lambda: sum(follow.progress.reloads.values()) >= 3, "the third try to come to nothing")
            assert follow.due_at > follow.clock.now()

    with_client(store, body)
