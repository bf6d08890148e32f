"""A fleet that goes on where one before it left off, over real sockets: the engines live on, or do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from indexer.collect.options import CollectOptions
from indexer.decode.envelope import stamp
from indexer.model import Descriptor
from indexer.ports import Resume
from tests.e2e.collect.test_bound import all_subscribed, bound_at, engines
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, collecting, run_on, until
from tests.support.recording_registrar import RecordingRegistrar
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

PATIENT = CollectOptions(probe_interval_s=300.0, min_engine_restart_s=3_600.0)
"""No idle probe interferes, no replay times out, and whatever is away for less than an hour is the same engine."""
LONG_S = 7_200.0
DOUBT = ("doubt", "process_unproven")


class LateClock(SystemClock):
    """Time that a test can let pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def now(self) -> float:
        return super().now() + self.passed_s


def source_of(engine: EngineSimulator) -> Descriptor:
    """A source at that engine."""
    return Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint)


def stood(sink: RecordingSink, away_s: float = 0.0) -> Resume:
    """What the next fleet is told of what this sink was given."""
    assert sink.cursor is not None
    return Resume(sink.cursor, stamp(sink.payloads[-1]), away_s)


def publish(engine: EngineSimulator, first: int, last: int, life: int = 0) -> None:
    """Batches first..last, handed to the socket when this returns."""
    for number in range(first, last + 1):
        assert number == engine.publish(payload(number, life))
    engine.flush()


def settled(sink: RecordingSink, cursor: int) -> bool:
    """Connected, all applied, and no recovery runs."""
    return sink.connected and not sink.is_syncing and sink.cursor == cursor


async def subscribed(engine: EngineSimulator) -> None:
    """From here on the engine sends to us."""
    await until(lambda: engine.subscribers > 0, "subscription")


async def first_run(engine: EngineSimulator, last: int) -> RecordingSink:
    """A fleet that is given batches 0..last, and is gone."""
    sink = RecordingSink(source_of(engine))
    async with collecting(sink, options=PATIENT):
        await subscribed(engine)
        publish(engine, 0, last)
        await until(lambda: settled(sink, last), "the first run")
    await until(lambda: engine.subscribers == 0, "the first fleet is gone")
    return sink


@pytest.mark.parametrize("away_s", [0.0, LONG_S])
def test_what_was_published_meanwhile_comes_by_replay(loop: str, away_s: float) -> None:
    """Each batch once, in order, whatever was published before, between and after."""

    async def main() -> None:
        with EngineSimulator() as engine:
            before = await first_run(engine, 9)
            publish(engine, 10, 29)
            after = RecordingSink(source_of(engine), stood(before, away_s))
            async with collecting(after, options=PATIENT):
                await until(lambda: settled(after, 29), "what was missed")
                await subscribed(engine)
                publish(engine, 30, 39)
                await until(lambda: settled(after, 39), "live")

        assert list(range(40)) == before.applied + after.applied
        assert [payload(number) for number in range(40)] == before.payloads + after.payloads
        assert not [told for told in after.story if told[0] in {"restart", "gap", "doubt"}]
        assert not after.counts["reconnects"]

    run_on(loop, main())


def test_an_engine_that_restarted_meanwhile_is_found_out(loop: str) -> None:
    """Its numbers may be where they were: the batch in that place is another."""

    async def main() -> None:
        with EngineSimulator() as engine:
            before = await first_run(engine, 9)
            engine.restart()
            publish(engine, 0, 14, life=1)
            after = RecordingSink(source_of(engine), stood(before))
            async with collecting(after, options=PATIENT):
                await until(lambda: settled(after, 14), "the new life")

        assert [payload(number, life=1) for number in range(15)] == after.payloads
        assert ("restart", "probe_differs") == next(told for told in after.story if told[0] != "syncing")

    run_on(loop, main())


def test_without_replay_what_was_missed_is_a_gap(loop: str) -> None:
    """The first number that arrives shows it."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            before = await first_run(engine, 9)
            publish(engine, 10, 12)
            after = RecordingSink(source_of(engine), stood(before))
            async with collecting(after, options=PATIENT):
                await subscribed(engine)
                await until(lambda: after.connected, "connected")
                publish(engine, 13, 14)
                await until(lambda: after.cursor == 14, "live")

        assert [("gap", 10, 12), ("apply", 13), ("apply", 14)] == after.story

    run_on(loop, main())


# --- engines that connect to us ---


async def a_connecting_engine(first: int, *, away_s: float = 0.0, unconnected_s: float = 0.0) -> RecordingSink:
    """The sink of pod a, which stood at batch 9, after its engine published two batches from `first`.

    The engine connects `unconnected_s` after the fleet began, and then is idle for long.
    """
    clock = LateClock()
    sink = RecordingSink(Descriptor(pod="a", origin="topic"), Resume(9, 1.0, away_s))
    registrar = RecordingRegistrar(sink)
    options = replace(PATIENT, bind_endpoints=("tcp://127.0.0.1:0",))
    async with collecting(options=options, registrar=registrar, clock=clock) as fleet:
        endpoint = await bound_at(fleet)
        clock.passed_s += unconnected_s
        with engines(1, endpoint) as (engine,):
            await all_subscribed([engine])
            engine.publish(b"b", 0, 0)
            await until(lambda: registrar.has("b") and registrar["b", 0].connected, "its connection is known")
            clock.passed_s += LONG_S
            engine.publish(b"a", first, first + 1)
            await until(lambda: sink.cursor == first + 1, "live")
    return sink


def test_a_connecting_engine_goes_on(loop: str) -> None:
    """What is missing is a gap, what goes on goes on; that it was idle since it connected says nothing."""

    async def main() -> None:
        goes_on = await a_connecting_engine(10)
        jumps = await a_connecting_engine(12)

        assert [("apply", 10), ("apply", 11)] == goes_on.story
        assert [("gap", 10, 11), ("apply", 12), ("apply", 13)] == jumps.story
        assert not jumps.counts["reconnects"]

    run_on(loop, main())


@pytest.mark.parametrize("absence", ["away_s", "unconnected_s"])
def test_a_connecting_engine_that_was_away_for_long_may_be_another(loop: str, absence: str) -> None:
    """While no process of ours listened, or before it came to this one: its numbers prove nothing, or too much."""

    async def main() -> None:
        goes_on = await a_connecting_engine(10, **{absence: LONG_S})
        jumps = await a_connecting_engine(12, **{absence: LONG_S})

        assert [("apply", 10), ("apply", 11)] == [told for told in goes_on.story if told != DOUBT]
        assert DOUBT == goes_on.story[0]
        assert [("restart", "reconnect_jump"), ("apply", 12), ("apply", 13)] == [
            told for told in jumps.story if told != DOUBT
        ]

    run_on(loop, main())


def test_a_stream_that_begins_again_does_not_go_back(loop: str) -> None:
    """Where the source stood at the start is of the past once its topic changed."""

    async def main() -> None:
        sink = RecordingSink(Descriptor(pod="a", origin="topic"), Resume(9, 1.0, 0.0))
        options = replace(PATIENT, bind_endpoints=("tcp://127.0.0.1:0",))
        async with collecting(options=options, registrar=RecordingRegistrar(sink)) as fleet:
            endpoint = await bound_at(fleet)
            with engines(1, endpoint) as (before,):
                await all_subscribed([before])
                before.publish(b"a", 10, 10)
                await until(lambda: sink.cursor == 10, "the older topic")
            with engines(1, endpoint) as (after,):
                await all_subscribed([after])
                after.publish(b"kv@a@", 20, 20, life=1)
                await until(lambda: sink.cursor == 20, "the newer topic")

        assert [("apply", 10), ("restart", "registration_differs"), ("apply", 20)] == sink.story

    run_on(loop, main())
