"""What happens to sources is in the store once, whoever is asked; while it is away it is known where it happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from indexer.happenings import Happening
from indexer.model import Descriptor, SourceId
from indexer.partitions.histories import BATCH, OUTBOX_MAX
from tests.support.core_events import CLEARED, prompt, stored
from tests.support.proxy import Proxy
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from schemas.history import HistoryItem
    from tests.support.redis_servers import Store

POSTED = Descriptor(pod="p", endpoint="tcp://127.0.0.1:1", origin="api")
ALL = 1_000
OF_OWNERS = {"takeover", "handover"}


async def items(replica: Replica, pod: str = "a", *, complete: bool = True) -> list[HistoryItem]:
    """The newest first."""
    answer = await replica.node.source_history(pod, None, limit=ALL, after=None)
    assert (complete, None) == (answer.complete, answer.next)
    return answer.items


async def in_pages(replica: Replica) -> list[HistoryItem]:
    """Two at a time, each page from where the one before ended."""
    found: list[HistoryItem] = []
    after: tuple[int, ...] | None = None
    while not found or after is not None:
        page = await replica.node.source_history("a", None, limit=2, after=after)  # type: ignore[arg-type]
        assert len(page.items) == 2 or page.next is None
        found += page.items
        after = None if page.next is None else tuple(map(int, page.next.split("-")))
    return found


def words(found: list[HistoryItem]) -> list[str]:
    """In the order in which it happened, but for who owned it, and a start that took long."""
    return [
        each.what + (f": {each.cause}" if each.cause else "") for each in reversed(found) if each.what not in OF_OWNERS
    ]


def owners(found: list[HistoryItem]) -> list[tuple[str | None, str, str | None]]:
    """Who owned it, in that order: replica, and how that began or ended."""
    return [(each.replica, each.what, each.cause) for each in reversed(found) if each.what in OF_OWNERS]


async def stored_history(replica: Replica) -> None:
    """Wait until all of it is in the store, also what is merged still."""
    history = replica.node.history
    await replica.until(lambda: not history.has_more)
    await replica.until(lambda: not any(map(history.waiting, replica.node.registry.sources)))
    await replica.until(lambda: not replica.part.histories.waiting)


def test_a_life_of_a_source_is_read_anywhere_and_after_a_restart(store: Store) -> None:
    """Each fact once, by the replica that saw it; a clean stop leaves nothing unwritten."""

    async def body() -> None:
        first = await Replica(store.url).start()
        asked = await Replica(store.url, pods=(), name="r2", **{"server.roles": ["lookup"]}).start()
        await asked.until(lambda: SourceId("a", 0) in asked.node.registry.sources)
        first.say("a", stored([1], prompt(1)))
        first.sink().gap(1, 3)
        first.sink().gap(4, 4)
        first.say("a", CLEARED)
        await first.node.cordon_source("a", None, cordoned=True)
        await first.until(lambda: first.sink().source.facts.cordoned)
        await first.node.cordon_source("a", None, cordoned=True)
        await first.node.cordon_source("a", None, cordoned=False)
        await first.until(lambda: not first.sink().source.facts.cordoned)
        await first.node.clear_source("a", None)
        await first.until(lambda: first.sink().source.counters["cleared_by_operator"])
        first.sink().restart("probe_differs")
        told = [
            "registered: flag",
            "joined: from_the_start",
            "gap: kept",
            "gap: kept",
            "cleared_by_engine",
            "cordoned",
            "uncordoned",
            "clear",
            "restart: probe_differs",
        ]
        at_once = await items(first)
        assert sorted(told) == sorted(words(at_once))
        await first.stop()

        assert sorted(told) == sorted(words(await items(asked)))
        second = await Replica(store.url).start()
        await second.until(lambda: not second.node.history.has_more)
        written = [each for each in await items(second) if each.what not in OF_OWNERS]
        assert written == [each for each in await items(asked) if each.what not in OF_OWNERS]
        assert await items(asked) == await in_pages(asked)
        ownership = [("r1", "takeover", "first"), ("r1", "handover", "stopped"), ("r1", "takeover", "same_name")]
        assert ownership == owners(await items(second))
        assert {"r1"} == {each.replica for each in written}
        gaps = [(each.numbers.first, each.numbers.last, each.numbers.lost) for each in written if each.what == "gap"]
        assert [(4, 4, 1), (1, 3, 3)] == gaps
        await second.stop()
        await asked.stop()

    run(body)


def test_commands_are_told_by_the_owner_wherever_they_are_given(store: Store) -> None:
    """Once; and the history of a source outlives it."""

    async def body() -> None:
        owner = await Replica(store.url, pods=()).start()
        asked = await Replica(store.url, pods=(), name="r2", **{"server.roles": ["lookup"]}).start()
        for _ in range(2):
            await asked.node.add_source(POSTED)
            await owner.until(lambda: POSTED.id in owner.node.registry.sources)
            owner.say("p", stored([1], prompt(1)))
            await asked.until(lambda: POSTED.id in asked.node.registry.sources)
            await asked.node.clear_source("p", None)
            await owner.until(lambda: owner.sink("p").source.counters["cleared_by_operator"])
            await stored_history(owner)
            before = await items(asked, "p")
            await asked.node.remove_source("p", None)
            await owner.until(lambda: POSTED.id not in owner.node.registry.sources)
            await asked.until(lambda: POSTED.id not in asked.node.registry.sources)

        life = ["registered: api", "joined: from_the_start", "clear"]
        assert sorted([*life, "removed: by_command", *life]) == sorted(words(before))
        assert {"r1"} == {each.replica for each in before}
        await owner.stop()
        await asked.stop()

    run(body)


def test_while_the_store_is_away_what_happened_here_is_known_here(store: Store) -> None:
    """Said to be incomplete; it is written when the store is back, with its own time."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            first = await Replica(proxy.url).start()
            first.say("a", stored([1], prompt(1)))
            await stored_history(first)
            proxy.set("reset")
            first.sink().gap(1, 2)
            happened_ms = first.node.clock.wall_us() // 1000
            await first.until(lambda: not first.part.watch.is_up)

            found = await items(first, complete=False)
            assert ["registered: flag", "joined: from_the_start", "gap: kept"] == words(found)
            proxy.set("pass")
            await stored_history(first)

            second = await Replica(store.url, pods=(), name="r2", **{"server.roles": ["lookup"]}).start()
            await second.until(lambda: SourceId("a", 0) in second.node.registry.sources)
            (gap,) = [each for each in await items(second) if each.what == "gap"]
            assert (1, 2, "r1") == (gap.numbers.first, gap.numbers.last, gap.replica)
            at = first.part._parts.history.kept(SourceId("a", 0))
            assert abs(max(each.entry.at_ms for each in at if each.entry.happening.what == "gap") - happened_ms) < 1_000
            await second.stop()
            await first.stop()

    run(body)


def test_a_call_whose_answer_is_lost_is_written_once(store: Store) -> None:
    """It is sent again, and was done."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            first = await Replica(proxy.url).start()
            await first.until(lambda: "takeover" in [each.what for each in kept(first)])
            await stored_history(first)
            proxy.set("stall_replies")
            for cause in ("begun", "ended"):
                first.sink().suspect("dropped", active=cause == "begun")
            await first.until(lambda: len(store.look.xrange(first.part._keys[number(first)].history(A))) == 4)
            proxy.set("reset")
            await first.until(lambda: not first.part.watch.is_up)
            proxy.set("pass")
            await stored_history(first)

            assert ["registered: flag", "dropped: begun", "dropped: ended"] == words(await items(first))
            await first.stop()

    run(body)


A = SourceId("a", 0)


def number(replica: Replica) -> int:
    """The partition of source a."""
    found: int = replica.part._parts.partition_of(A)
    return found


@pytest.mark.parametrize("many", [10 * BATCH, OUTBOX_MAX + 100])
def test_what_waits_for_the_store_is_bounded_and_the_latest_of_it(store: Store, many: int) -> None:
    """A fleet that is taken over at once is written in slices; what finds no room is counted."""

    async def body() -> None:
        first = await Replica(store.url, pods=()).start()
        histories = first.part.histories
        for place in range(many):  # no turn of the loop: nothing is written meanwhile
            source = SourceId(f"pod-{place}", 0)
            first.node.history.note(source, Happening(what="takeover", cause="lease_expired", epoch=place))
        assert (min(many, OUTBOX_MAX), max(0, many - OUTBOX_MAX)) == (histories.waiting, histories.dropped)
        await stored_history(first)

        keys = first.part._keys
        partition_of = first.part._parts.partition_of
        sources = [SourceId(f"pod-{place}", 0) for place in range(many)]
        streams = [keys[partition_of(source)].history(source) for source in sources]
        there = await asyncio.to_thread(lambda: [store.look.xlen(stream) for stream in streams])
        assert {0, 1} >= set(there)
        assert sum(there) == min(many, OUTBOX_MAX)
        assert all(there[-100:])
        text = (await first.node.metrics_text()).decode()
        assert ('limit="history.waiting"' in text) is (many > OUTBOX_MAX)
        await first.stop()

    run(body)


def test_a_store_that_lost_a_source_is_told_of_in_its_history(store: Store) -> None:
    """Why, and that it is there again."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        store.look.delete(first.part._keys[number(first)].source(A))
        first.say("a", stored([2], prompt(1, 50)))
        await first.written()
        await first.until(lambda: first.part.histories.waiting == 0)

        found = [each for each in await items(first) if each.what == "reassertion"]
        assert [("store_lost", 1)] == [(each.cause, each.numbers.sequence) for each in found]
        store.empty()
        first.say("a", stored([3], prompt(1, 90)))
        await first.until(lambda: any(each.cause == "store_went_back" for each in kept(first)))
        await first.stop()

    run(body)


def kept(replica: Replica) -> list[Happening]:
    """What the process itself knows."""
    return [told.entry.happening for told in replica.node.history.kept(A)]


def test_a_source_that_is_no_longer_configured(store: Store) -> None:
    """Its history says so to who registers it again."""

    async def body() -> None:
        first = await Replica(store.url, pods=("a", "b")).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        await first.stop()
        second = await Replica(store.url, pods=("b",)).start()
        await second.stop()
        third = await Replica(store.url, pods=("a", "b")).start()

        told = [each for each in words(await items(third)) if each.startswith(("reg", "rem", "join"))]
        assert ["joined: from_the_start", "registered: flag"] == sorted(told[:2])
        assert ["removed: not_configured", "registered: flag"] == told[2:]
        await third.stop()

    run(body)


def test_who_takes_over_says_so_of_each_source(store: Store) -> None:
    """With the ownership's epoch and the batch at which it went on."""

    async def body() -> None:
        pods = [f"pod-{place}" for place in range(6)]
        first = await Replica(store.url, pods=pods, redis__heartbeat_s=0.5).start()
        for pod in pods:
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        second = await Replica(store.url, pods=pods, name="r2", redis__heartbeat_s=0.5).start()
        await first.die()
        numbers = {second.part._parts.partition_of(SourceId(pod, 0)) for pod in pods}
        await second.until(lambda: all(second.part.owners[place].role == "owner" for place in numbers))
        await stored_history(second)

        for pod in pods:
            (taken,) = [each for each in await items(second, pod) if each.replica == "r2"]
            assert ("takeover", "lease_expired", 0) == (taken.what, taken.cause, taken.numbers.sequence)
            place = second.part._parts.partition_of(SourceId(pod, 0))
            assert second.part.owners[place].position.epoch == taken.numbers.epoch
        await second.stop()

    run(body)


def test_a_clear_while_nobody_owns_is_told_by_who_comes_next(store: Store) -> None:
    """As a clear, and not as a source that is new."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored([1], prompt(1)))
        await first.stop()
        asked = await Replica(store.url, pods=(), name="r2", **{"server.roles": ["lookup"]}).start()
        await asked.until(lambda: A in asked.node.registry.sources)
        answer = await asked.node.clear_source("a", None)
        assert "accepted" == answer.effect
        second = await Replica(store.url, name="r3").start()

        assert ["registered: flag", "joined: from_the_start", "clear"] == words(await items(second))
        (clear,) = [each for each in await items(second) if each.what == "clear"]
        assert ("r3", 0) == (clear.replica, clear.numbers.sequence)
        await second.stop()
        await asked.stop()

    run(body)
