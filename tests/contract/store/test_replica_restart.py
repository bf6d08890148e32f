"""What one replica knew, the next one knows: facts, maps and where each stream stood."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from indexer.decode.envelope import stamp
from indexer.errors import SourceElsewhereError, SourceSyncingError
from indexer.model import Descriptor, RawBatch, SourceId
from tests.support.core_events import BLOCK, CLEARED, prompt, removed, stored
from tests.support.replicas import Replica, names_of_two, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

FIRST_COPY_HOLDS = 98_304
"""Blocks after which a source's first copy is too small."""


def test_a_clean_stop_writes_all(store: Store) -> None:
    """Also what was applied in the moment of the stop; the next one answers alike, under the same generation."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored(range(1, 9), prompt(8)))
        first.say("a", removed(8), stored([20, 21], prompt(2, 500), parent=99))
        known = first.ask(prompt(8))
        await first.stop()

        second = await Replica(store.url).start()

        assert 7 * BLOCK == known.matched_tokens
        assert known.generation == second.ask(prompt(8)).generation
        again = second.ask(prompt(8))
        assert (known.matched_tokens, known.bound, known.sequence) == (
            again.matched_tokens,
            again.bound,
            again.sequence,
        )
        assert 2 == second.sink().source.map.waiting
        resume = second.collector.resumed[SourceId("a", 0)]
        assert resume is not None
        assert (1, 1_001.0) == (resume.sequence, resume.stamp)
        await second.stop()

    run(body)


@pytest.mark.parametrize("goes", ["stop", "die"])
def test_nobody_tells_that_a_held_block_is_not(goes: str, store: Store) -> None:
    """While its partition goes over to a replica that followed it: there the map comes only then."""

    async def body() -> None:
        names = names_of_two()
        first = await Replica(store.url, name=names[0]).start()
        first.say("a", stored(range(1, 3_000), prompt(2_999)))
        await first.written()
        second = await Replica(store.url, name=names[1]).start()
        told: list[object] = []
        asking = asyncio.get_running_loop().create_task(_ask_of_block(second, told))
        await getattr(first, goes)()
        await second.until(asking.done)

        assert "elsewhere" == told[0]
        assert {"elsewhere", "syncing", 1} == set(told)
        await second.stop()

    run(body)


async def _ask_of_block(replica: Replica, told: list[object]) -> None:
    """Of one that is held, until it is told."""
    while 1 not in told:
        try:
            told.append(len(await replica.node.find_block("a", 0, 7)))
        except SourceElsewhereError:
            told.append("elsewhere")
        except SourceSyncingError:
            told.append("syncing")
        await asyncio.sleep(0)


def test_a_killed_one_is_followed_at_its_cursor(store: Store) -> None:
    """A process of the same name takes over at once; what was not written comes by replay, each batch once."""

    async def body() -> None:
        first = await Replica(store.url).start()
        for n in range(20):
            first.say("a", stored([2 * n + 1, 2 * n + 2], prompt(2, 100 * n)))
        first.say("a", stored([1], prompt(1)))  # a second copy
        await first.written()
        first.say("a", stored([50], prompt(1, 9_000)))
        await first.die()

        second = await Replica(store.url).start()
        cursor = second.sink().cursor
        assert cursor in {20, 21}
        if cursor == 20:
            second.say("a", stored([50], prompt(1, 9_000)))
        second.say("a", removed(1))

        assert BLOCK == second.ask(prompt(1)).matched_tokens
        second.say("a", removed(1))
        assert 0 == second.ask(prompt(1)).matched_tokens
        assert "exact" == second.ask(prompt(1, 9_000)).bound
        await second.stop()

    run(body)


def test_a_generation_that_ended_stays_ended(store: Store) -> None:
    """A clear in the middle of a batch, an engine that began anew: nothing of before comes back."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b")).start()
        first.say("a", stored([1, 2], prompt(2)), CLEARED, stored([3], prompt(1, 50)))
        first.say("b", stored([1, 2], prompt(2)))
        first.sink("b").restart("sequence_went_back")
        first.say("b", stored([7], prompt(1, 70)))
        generations = [first.sink(pod).source.facts.generation for pod in "ab"]
        await first.stop()

        second = await Replica(store.url, ("a", "b")).start()

        assert generations == [second.sink(pod).source.facts.generation for pod in "ab"]
        assert [0, 0] == [second.ask(prompt(2), pod).matched_tokens for pod in "ab"]
        assert BLOCK == second.ask(prompt(1, 50), "a").matched_tokens
        assert BLOCK == second.ask(prompt(1, 70), "b").matched_tokens
        second.say("a", stored([4], prompt(1, 60)))
        assert second.node.ingest.next_generation() > max(generations)
        await second.stop()

    run(body)


def test_sources_of_callers_survive(store: Store) -> None:
    """With their cordon; sources that are no longer configured do not, and a changed one begins anew."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b")).start()
        await first.node.add_source(Descriptor(pod="c", endpoint="tcp://127.0.0.1:2"))
        await first.node.cordon_source("c", None, cordoned=True)
        for pod in "abc":
            first.say(pod, stored([1], prompt(1)))
        await first.stop()

        second = await Replica(store.url, ("b",)).start()

        assert ["b", "c"] == sorted(key.pod for key in second.node.registry.sources)
        assert second.sink("c").source.facts.cordoned
        assert BLOCK == second.ask(prompt(1), "b").matched_tokens
        await second.node.cordon_source("c", None, cordoned=False)
        await second.until(lambda: not second.sink("c").source.facts.cordoned)
        assert BLOCK == second.ask(prompt(1), "c").matched_tokens
        await second.stop()

    run(body)


def test_a_source_that_is_configured_otherwise_begins_anew(store: Store) -> None:
    """Another model, say: what the store has is of another engine."""

    async def body() -> None:
        first = await Replica(store.url, ("a",)).start()
        first.say("a", stored([1], prompt(1)))
        before = first.sink().source.facts.generation
        await first.stop()

        second = Replica(store.url, ())
        second.part._parts.configured[SourceId("a", 0)] = Descriptor(
            pod="a", endpoint="tcp://127.0.0.1:9", origin="flag"
        )
        await second.start()

        assert second.sink().source.facts.generation > before
        assert 0 == second.ask(prompt(1)).matched_tokens
        await second.stop()

    run(body)


def test_a_copy_that_is_too_small_is_laid_anew(store: Store) -> None:
    """With more segments, and without a word to followers; a restart finds all of it."""

    async def body() -> None:
        first = await Replica(store.url).start()
        count = FIRST_COPY_HOLDS + 2_000
        for start in range(0, count, 1_000):
            hashes = range(start + 1, start + 1_001)
            first.say("a", stored(hashes, prompt(1_000, BLOCK * start)))
            if not start % 8_000:
                await first.written()
        segments = first.part.owners[first.part._parts.partition_of(SourceId("a", 0))]
        (owned,) = segments.owned.values()
        await first.until(lambda: owned.where.segments > 8 and owned.wish is None)
        first.say("a", removed(1))
        await first.stop()

        second = await Replica(store.url).start()

        assert first.sink().source.pairs == second.sink().source.pairs > count - 100
        assert 0 == second.ask(prompt(1)).matched_tokens
        assert BLOCK == second.ask(prompt(1, BLOCK * 5_000)).matched_tokens
        await second.stop()

    run(body)


def test_a_time_to_live_goes_on(store: Store) -> None:
    """Over any number of restarts; where the store has an entry from before its tier had one, it is laid anew."""

    def falls_due(replica: Replica) -> list[float]:
        lanes = replica.sink().source.map.lanes.values()
        return [due for lane in lanes for piece in lane.deadlines or [] for due in piece.values()]

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored([1], prompt(1), medium="CPU"))
        await first.written()
        copy = _owned(first).where.copy
        await first.die()

        second = await Replica(store.url, staleness__entry_ttl_s__cpu=600.0).start()
        (due,) = falls_due(second)
        await second.written()
        assert copy < _owned(second).where.copy
        await second.die()

        third = await Replica(store.url, staleness__entry_ttl_s__cpu=600.0).start()
        assert falls_due(third) == pytest.approx([due], rel=0, abs=0.51)
        assert _owned(third).wish is None
        assert BLOCK == third.ask(prompt(1)).matched_tokens
        await third.die()

        fourth = await Replica(store.url, staleness__entry_ttl_s__cpu=0.01).start()
        await fourth.until(lambda: not fourth.sink().source.pairs)
        assert (0, "lower") == (fourth.ask(prompt(1)).matched_tokens, fourth.ask(prompt(1)).bound)
        await fourth.stop()

    run(body)


def _owned(replica: Replica, pod: str = "a") -> Any:  # noqa: ANN401  its parts are looked at from inside
    owner = replica.part.owners[replica.part._parts.partition_of(SourceId(pod, 0))]
    return owner.owned[id(replica.sink(pod).source)]


def test_a_source_that_came_by_its_topic_survives(store: Store) -> None:
    """It is registered when it appears, and no earlier than it is known what the store has."""

    async def body() -> None:
        first = Replica(store.url, ())
        assert first.node.source_for_topic("t", "m", 0) is None
        await first.start()
        sink = first.node.source_for_topic("t", "m", 0)
        assert sink is not None
        first.say("t", stored([1], prompt(1)))
        await first.until(lambda: not first.part.orders._outbox)
        await first.stop()

        second = await Replica(store.url, ()).start()

        assert "m" == second.sink("t").descriptor.model
        assert BLOCK == second.ask(prompt(1), "t").matched_tokens
        await second.stop()

    run(body)


def test_the_last_batch_is_told_apart_whatever_it_was(store: Store) -> None:
    """Also one that could not be decoded; and after a gap nothing is known of it."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b")).start()
        for pod in "ab":
            first.say(pod, stored([1], prompt(1)))
        first.sink("a").apply(RawBatch(b"", 1, b"\xc1 no envelope"))
        first.sink("b").gap(1, 4)
        await first.stop()

        second = await Replica(store.url, ("a", "b")).start()

        resumed = [second.collector.resumed[SourceId(pod, 0)] for pod in "ab"]
        assert [(1, stamp(b"\xc1 no envelope")), (4, None)] == [(r.sequence, r.stamp) for r in resumed if r]
        assert {"undecodable"} == second.sink("a").source.facts.doubts
        assert {"gap"} == second.sink("b").source.facts.doubts
        await second.stop()

    run(body)


@pytest.mark.parametrize("goes", ["stop", "die"])
def test_an_engine_was_last_seen_when_it_was_seen_and_not_when_it_was_written_of(store: Store, goes: str) -> None:
    """Else an absence in which it may have started anew would look short to the next owner (P6)."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored([1], prompt(1)))
        sink = first.sink()
        sink.alive(connected=False)
        assert sink.source.facts.alive_at is not None
        sink.source.facts.alive_at -= 100.0
        sink.doubt("drift")
        await first.written()
        await getattr(first, goes)()

        second = await Replica(store.url).start()

        resume = second.collector.resumed[SourceId("a", 0)]
        assert resume is not None
        assert 100.0 <= resume.away_s < 200.0
        assert {"drift"} == second.sink().source.facts.doubts
        await second.stop()

    run(body)
