"""What an owner counts of its sources is known at those that follow, and goes on where another process takes over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from indexer.model import Descriptor, SourceId
from indexer.store import lua
from indexer.store.layout import PartitionKeys, partition_of, tags
from tests.support.core_events import CLEARED, prompt, removed, stored
from tests.support.moved import samples_of
from tests.support.owning import POD, begun, owning, with_client
from tests.support.proxy import Proxy
from tests.support.replicas import Replica, names_of_two, run

if TYPE_CHECKING:
    from indexer.store.client import Client
    from schemas.reports import StalenessRow
    from tests.support.redis_servers import Store

TOLD = ("gaps", "replays", "restarts", "orphans", "removals_unknown", "events_unknown", "decode_errors", "expired")
STATE = PartitionKeys("kvi", tags(16)[partition_of(SourceId("a", 0), 16)]).source(SourceId("a", 0))


def quick(replica: Replica) -> Replica:
    """It tells its counts often."""
    msgspec.structs.force_setattr(replica.part._parts.options, "counts_s", 0.02)
    return replica


async def row(replica: Replica, pod: str = "a") -> StalenessRow:
    """What a replica reports of a source."""
    (found,) = (await replica.node.staleness_report(pod=pod)).sources
    return found


async def counters(replica: Replica, pod: str = "a") -> dict[str, int]:
    """What a replica lists of a source."""
    return next(view.counters for view in await replica.node.source_views() if view.pod == pod)


async def told(replica: Replica, name: str, count: int) -> None:
    """Until a replica has heard that so many were counted."""
    while (await counters(replica)).get(name) != count:  # noqa: ASYNC110  another process's word, behind a store
        await asyncio.sleep(0.01)


def test_who_follows_tells_what_the_owner_counted(store: Store) -> None:
    """In the report and in the list; of which of the clears were lately nothing is known there."""

    async def body() -> None:
        owner, follower = [await quick(Replica(store.url, name=name)).start() for name in names_of_two()]
        owner.say("a", stored([1, 2], prompt(2)), removed(2), removed(9), {"type": "unheard of"})
        owner.say("a", stored([7], prompt(1, 70), parent=99), CLEARED)
        owner.sink().count("gaps")
        await told(follower, "batches", 2)
        await told(follower, "wire.gaps", 1)
        there, here = await row(owner), await row(follower)

        assert (True, 0, True) == (there.counted, there.counts_age_ms, here.counted)
        assert here.counts_age_ms is not None
        for name in TOLD:
            assert getattr(there, name) == getattr(here, name), name
        assert (1, 1) == (here.orphans.expired, here.removals_unknown)
        assert (there.clears.engine, None) == (here.clears.engine, here.clears.minute)
        ages = {"blocks": None, "event_age_ms": None}
        for tier, known in there.tiers.items():
            assert msgspec.structs.replace(known, **ages) == msgspec.structs.replace(here.tiers[tier], **ages)
        assert await counters(owner) == await counters(follower)
        await owner.stop()
        await follower.stop()

    run(body)


def test_of_a_source_that_is_gone_no_total_is_remembered(store: Store) -> None:
    """Else an owner would remember one of each source that ever was there."""

    async def body() -> None:
        owner, gone = await quick(Replica(store.url)).start(), SourceId("b", 0)
        await owner.node.add_source(Descriptor(pod="b", endpoint="tcp://127.0.0.1:9"))
        writing = owner.part.owners[partition_of(gone, 16)]._writing
        assert writing is not None
        await owner.until(lambda: gone in writing.counting._told)
        await owner.node.remove_source("b", None)
        await owner.until(lambda: gone not in writing.counting._told)
        await owner.stop()

    run(body)


def test_what_is_told_while_a_generation_begins_is_told_again(store: Store) -> None:
    """The store has the next generation already, and the owner does not know yet: it left out what it was told."""

    async def body() -> None:
        owner = await Replica(store.url).start()
        owner.say("a", stored([1], prompt(1)))
        await owner.written()
        writing = owner.part.owners[partition_of(SourceId("a", 0), 16)]._writing
        (owned,) = writing._owned.values()
        where = owned.where
        owned.where = msgspec.structs.replace(where, generation=where.generation - 1)
        await writing.counting.tell()
        owned.where = where
        assert store.look.hget(STATE, "counts") is None
        await writing.counting.tell()
        assert store.look.hget(STATE, "counts") is not None
        await owner.stop()

    run(body)


def test_who_takes_over_counts_on(store: Store) -> None:
    """What a stop told is known to the next process, whose metrics are of what it does itself."""

    async def body() -> None:
        first = await Replica(store.url).start()
        for number in range(3):
            first.say("a", stored([number + 1], prompt(1, 50 * number)))
        await first.stop()
        second = await Replica(store.url).start()
        assert 3 == (await row(second)).tiers["gpu"].stored_events
        second.say("a", stored([9], prompt(1, 900)))
        assert (4, 4) == ((await row(second)).tiers["gpu"].stored_events, (await counters(second))["stored"])
        events = samples_of(await second.node.metrics_text())["kvindexer_events_total"]
        assert [1.0] == [value for labels, value in events if labels["kind"] == "stored"]
        await second.stop()

        third = await Replica(store.url).start()
        assert 4 == (await counters(third))["batches"]
        await third.node.clear_source("a", 0)
        assert 4 == (await counters(third))["batches"]
        await third.stop()

    run(body)


def test_another_registration_begins_at_nothing(store: Store) -> None:
    """Under the name of one of which something was counted."""

    async def body() -> None:
        first = await Replica(store.url, []).start()
        descriptor = Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="api")
        await first.node.add_source(descriptor)
        await first.until(lambda: first.node.roster.sink(SourceId("a", 0)))
        first.say("a", stored([1], prompt(1)))
        await first.written()
        await first.stop()
        second = await Replica(store.url, []).start()
        assert 1 == (await counters(second))["batches"]
        await second.node.remove_source("a", 0)
        await second.node.add_source(descriptor)
        await second.until(lambda: second.node.roster.sink(SourceId("a", 0)))
        await second.written()
        await second.stop()
        third = await Replica(store.url, []).start()
        assert {} == await counters(third)
        await third.stop()

    run(body)


def test_while_the_store_is_away_nothing_is_known_of_others_counts(store: Store) -> None:
    """It is said; the report comes all the same, and what is counted here is."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            follower = await quick(Replica(proxy.url, ["a", "b", "c", "d"], name="r1")).start()
            owner = await quick(Replica(store.url, ["a", "b", "c", "d"], name="r2")).start()
            await owner.until(lambda: any(not owner.sink(pod).followed for pod in "abcd"))
            pod = next(pod for pod in "abcd" if not owner.sink(pod).followed)
            await follower.until(lambda: follower.sink(pod).followed)
            owner.say(pod, stored([1], prompt(1)))
            while not (await row(follower, pod)).counted:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)
            proxy.set("stall_replies")
            unknown = await row(follower, pod)
            assert (False, None, {}) == (unknown.counted, unknown.counts_age_ms, await counters(follower, pod))
            proxy.set("pass")
            await owner.stop()
            await follower.stop()

    run(body)


def test_what_another_version_told_is_let_go(store: Store) -> None:
    """Nothing depends on it: the source is loaded, and counted from here on."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored([1], prompt(1)))
        await first.stop()
        store.look.hset(STATE, b"counts", b"\xff")
        second = await Replica(store.url).start()
        assert 4 == second.ask(prompt(1)).matched_tokens
        assert {} == await counters(second)
        await second.stop()

    run(body)


def test_only_the_owner_tells_and_only_of_what_is_there(store: Store, keys: PartitionKeys) -> None:
    """No key is made by it, and nothing is written over by who owns the partition no more."""

    async def test(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal, generation=7)
        gone, state = keys.source(SourceId("gone", 0)), keys.source(POD)
        names = (keys.owner, state, gone)
        assert [b"FENCED", journal.token] == await client.run(lua.COUNTS, names, (b"other", b"7", b"x", b"7", b"y"))
        assert [b"OK", 1] == await client.run(lua.COUNTS, names, (journal.token, b"7", b"x", b"7", b"y"))
        assert [b"OK", 0] == await client.run(lua.COUNTS, names[:2], (journal.token, b"6", b"of another life"))
        assert [b"x", None] == await client.field_of_each([state, gone], b"counts")
        assert "none" == await client.type_of(gone)

    with_client(store, test)
