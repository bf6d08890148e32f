"""Listening along and taking over, over real sockets: nothing that was received is lost, and no replay is needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from indexer.collect.fleet import Fleet
from indexer.collect.options import CollectOptions
from indexer.collect.ring import RUN_OVERHEAD_BYTES, TOLD_WITHIN_S
from indexer.decode.envelope import stamp
from indexer.model import Descriptor, SourceId
from indexer.ports import Resume
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, collecting, run_on, until
from tests.support.proxy import Proxy
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

A = SourceId("a", 0)
PATIENT = CollectOptions(probe_interval_s=300.0, tick_s=0.05)
"""No idle probe interferes, and no replay times out."""
TROUBLE = {"gap", "restart", "doubt", "suspect"}


def source_of(engine: EngineSimulator, pod: str = "a") -> Descriptor:
    """A source at that engine."""
    return Descriptor(pod=pod, endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint)


def stood(sink: RecordingSink, away_s: float = 60.0) -> Resume:
    """What the next owner is told of what this sink was given."""
    assert sink.cursor is not None
    return Resume(sink.cursor, stamp(sink.payloads[-1]), away_s)


def publish(engine: EngineSimulator, first: int, last: int, life: int = 0) -> None:
    """Batches first..last, handed to the socket when this returns."""
    for number in range(first, last + 1):
        assert number == engine.publish(payload(number, life))
    engine.flush()


def trouble(sink: RecordingSink) -> list[tuple[object, ...]]:
    """What was told beside batches."""
    return [told for told in sink.story if told[0] in TROUBLE]


def is_whole(*sinks: RecordingSink, last: int, life: int = 0) -> bool:
    """Whether these got 0..last of that life one after the other, each once and in order."""
    wanted = [payload(number, life) for number in range(last + 1)]
    return [each for sink in sinks for each in sink.payloads] == wanted


@contextmanager
def steady(engine: EngineSimulator, first: int = 0) -> Iterator[Callable[[], int]]:
    """Publishes without a pause until the block ends; gives the newest number at any time."""
    newest, stop = [first - 1], threading.Event()

    def run() -> None:
        while not stop.wait(0.0005):
            newest[0] = engine.publish(payload(newest[0] + 1))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: newest[0]
    finally:
        stop.set()
        thread.join()
        engine.flush()


@asynccontextmanager
async def subscribed_fleets(
    sink: RecordingSink, engine: EngineSimulator, options: CollectOptions = PATIENT
) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """One that owns and one that listens; both have their connection when this begins."""
    async with collecting(sink, options=options) as owner, collecting(options=options) as standby:
        standby.listen(sink.descriptor)
        await until(lambda: connected(standby) and sink.connected, "both connections")
        await until(lambda: engine.subscribers >= 2, "both subscriptions")
        yield owner, standby


def connected(fleet: Fleet) -> bool:
    """Whether what it listens to is there."""
    return all(view.connected_since is not None for view in fleet.listeners().values())


def note(fleet: Fleet, sink: RecordingSink) -> None:
    """What this sink was given is durable, and its engine is there."""
    if sink.cursor is not None:
        fleet.note(A, sink.cursor, stamp(sink.payloads[-1]), SystemClock().now())


def test_the_owner_dies_under_traffic(loop: str) -> None:
    """No replay: the next owner is given exactly what follows the durable cursor, each once, in order."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            before = RecordingSink(source_of(engine))
            async with subscribed_fleets(before, engine) as (owner, standby):
                with steady(engine) as newest:
                    await until(lambda: (before.cursor or 0) > 100, "traffic")
                    note(standby, before)
                    durable = before.cursor
                    await until(lambda: (before.cursor or 0) > 200, "more of it")
                    owner.stop(A)
                    assert durable is not None
                    resume = Resume(durable, stamp(payload(durable)), 60.0)
                    after = RecordingSink(source_of(engine), resume)
                    standby.start(after)
                    beyond = newest() + 100
                    await until(lambda: (after.cursor or 0) > beyond, "traffic to the next owner")
                last = newest()
                await until(lambda: after.cursor == last, "all of it")
                await until(lambda: not after.is_syncing, "caught up")
                assert {} == standby.listeners()
                assert [A] == standby.sources()
                assert 0 == standby.standby_bytes

        assert [payload(number) for number in range(durable + 1, last + 1)] == after.payloads
        assert [] == trouble(after)

    run_on(loop, main())


def test_what_is_durable_is_let_go(loop: str) -> None:
    """The ring holds what came behind the cursor, wherever that stands; its bytes are given back."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            before = RecordingSink(source_of(engine))
            async with subscribed_fleets(before, engine) as (_, standby):
                publish(engine, 0, 9)
                await until(lambda: standby.listeners()[A].batches == 10 and before.cursor == 9, "ten batches")
                standby.note(A, 6, stamp(payload(6)), SystemClock().now())
                assert 3 == standby.listeners()[A].batches
                note(standby, before)
                assert (0, 0, 0) == standby.listeners()[A][1:4]
                assert standby.listeners()[A].joins
                standby.note(A, 10, stamp(payload(10)), None)
                publish(engine, 10, 11)
                await until(lambda: standby.listeners()[A].batches == 1, "only what is behind the note")
                assert 0 < standby.standby_bytes

    run_on(loop, main())


def test_an_idle_engine_is_taken_over_without_a_word(loop: str) -> None:
    """The owner saw it connected while a connection stood here: no doubt, and it goes on."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            before = RecordingSink(source_of(engine))
            async with collecting(before, options=PATIENT) as owner, collecting(options=PATIENT) as standby:
                await until(lambda: engine.subscribers == 1 and before.connected, "the owner")
                publish(engine, 0, 9)
                await until(lambda: before.cursor == 9, "ten batches")
                standby.listen(before.descriptor)
                await until(lambda: connected(standby), "the standby")
                await until(lambda: engine.subscribers == 2, "its subscription")
                note(standby, before)
                owner.stop(A)
                after = RecordingSink(source_of(engine), stood(before))
                standby.start(after)
                await until(lambda: after.connected, "a sign of life")
                publish(engine, 10, 12)
                await until(lambda: after.cursor == 12, "live")

        assert [("apply", 10), ("apply", 11), ("apply", 12)] == [told for told in after.story if told[0] != "syncing"]

    run_on(loop, main())


def test_stepping_down_and_up_again_under_traffic(loop: str) -> None:
    """Over and over, each batch exactly once and in order: what came meanwhile is told first."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            sink = RecordingSink(source_of(engine))
            async with collecting(sink, options=PATIENT) as fleet:
                await until(lambda: engine.subscribers == 1, "subscription")
                with steady(engine) as newest:
                    for _ in range(20):
                        told, beyond = sink.cursor or 0, newest() + 20
                        await until(lambda told=told: (sink.cursor or 0) > told + 20, "traffic")
                        fleet.step_down(A)
                        fleet.step_down(A)  # who hands over and then yields says it twice: what is kept stays
                        story = list(sink.story)
                        assert not sink.is_syncing
                        beyond = newest() + 20
                        await until(lambda beyond=beyond: newest() > beyond, "more of it")
                        assert story == sink.story
                        assert [] == list(fleet.sources())
                        fleet.start(sink)
                last = newest()
                await until(lambda: sink.cursor == last and not sink.is_syncing, "all of it")

        assert is_whole(sink, last=last)
        assert [] == trouble(sink)

    run_on(loop, main())


@pytest.mark.parametrize("replay", [False, True])
def test_the_engine_restarts_while_listened_to(loop: str, replay: bool) -> None:
    """The next owner tells it after all that came before, or asks and is told it."""

    async def main() -> None:
        with EngineSimulator(**({} if replay else {"replay_endpoint": None})) as engine:
            before = RecordingSink(source_of(engine))
            async with subscribed_fleets(before, engine) as (owner, standby):
                publish(engine, 0, 9)
                await until(lambda: before.cursor == 9 and standby.listeners()[A].batches == 10, "ten batches")
                standby.note(A, 6, stamp(payload(6)), SystemClock().now())
                owner.stop(A)
                engine.restart()
                await until(lambda: engine.subscribers == 1, "connected again")
                publish(engine, 0, 4, life=1)
                await until(lambda: standby.listeners()[A].batches == 8, "the new life")
                after = RecordingSink(source_of(engine), Resume(6, stamp(payload(6)), 60.0))
                standby.start(after)
                await until(lambda: is_whole(after, last=4, life=1) and not after.is_syncing, "the new life")
                publish(engine, 5, 5, life=1)
                await until(lambda: is_whole(after, last=5, life=1), "live")

        reason = "probe_differs" if replay else "sequence_went_back"
        assert [("restart", reason)] == trouble(after)
        assert [("apply", 7), ("apply", 8), ("apply", 9)] == [told for told in after.story if told[0] != "syncing"][:3]

    run_on(loop, main())


def test_a_connection_that_does_not_bring_what_the_owner_has_is_made_anew(loop: str) -> None:
    """It seems to stand, to a process that is gone: what follows is heard again, and of the past nothing is taken."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            before = RecordingSink(source_of(engine))
            async with (
                Proxy(int(engine.endpoint.rpartition(":")[2])).running() as way,
                collecting(before, options=PATIENT) as owner,
                collecting(options=PATIENT) as standby,
            ):
                far = Descriptor(pod="a", endpoint=f"tcp://127.0.0.1:{way.port}")
                standby.listen(far)
                await until(lambda: connected(standby) and engine.subscribers >= 2, "both connections")
                publish(engine, 0, 9)
                await until(lambda: before.cursor == 9, "ten batches")
                since = standby.listeners()[A].connected_since or 0.0

                def noted_for_long() -> bool:
                    note(standby, before)
                    return SystemClock().now() > since + 1.1 * TOLD_WITHIN_S

                await until(noted_for_long, "the owner to be heard of")
                way.sever()
                engine.restart()
                await until(lambda: engine.subscribers >= 1, "the owner's connection")
                publish(engine, 0, 2, life=1)
                await until(lambda: before.cursor == 2, "the new life")
                note(standby, before)
                await until(lambda: (standby.listeners()[A].connected_since or 0.0) > since, "another connection")
                await until(lambda: engine.subscribers >= 2, "its subscription")
                publish(engine, 3, 3, life=1)
                await until(lambda: standby.listeners()[A].batches == 1, "what follows")
                owner.stop(A)
                after = RecordingSink(far, Resume(2, stamp(payload(2, 1)), 0.0))
                standby.start(after)
                await until(lambda: after.payloads == [payload(3, 1)] and not after.is_syncing, "what follows alone")

        assert [] == trouble(after)

    run_on(loop, main())


def test_a_ring_that_is_too_small(loop: str) -> None:
    """What it could not keep is a gap, and said; where the engine replays it is fetched."""

    async def main(engine: EngineSimulator) -> RecordingSink:
        room = replace(PATIENT, standby_source_bytes=4_000 + RUN_OVERHEAD_BYTES)
        before = RecordingSink(source_of(engine))
        async with subscribed_fleets(before, engine, room) as (owner, standby):
            publish(engine, 0, 99)
            await until(lambda: before.cursor == 99, "a hundred batches")
            await until(lambda: standby.standby_dropped + standby.listeners()[A].batches == 100, "received by both")
            assert 0 < standby.listeners()[A].dropped
            assert room.standby_source_bytes >= standby.standby_bytes
            standby.note(A, 6, stamp(payload(6)), SystemClock().now())
            owner.stop(A)
            after = RecordingSink(source_of(engine), Resume(6, stamp(payload(6)), 60.0))
            standby.start(after)
            await until(lambda: after.cursor == 99 and not after.is_syncing, "what is left")
        return after

    with EngineSimulator() as engine:
        replayed = RecordingSink(source_of(engine))

        async def healed() -> None:
            nonlocal replayed
            replayed = await main(engine)

        run_on(loop, healed())
    assert list(range(7, 100)) == replayed.applied
    assert [] == trouble(replayed)
    with EngineSimulator(replay_endpoint=None) as engine:
        kept = RecordingSink(source_of(engine))

        async def gapped() -> None:
            nonlocal kept
            kept = await main(engine)

        run_on(loop, gapped())
    first = kept.applied[0]
    assert [("gap", 7, first - 1)] == trouble(kept)
    assert list(range(first, 100)) == kept.applied


def test_a_source_that_nobody_told_anything(loop: str) -> None:
    """Registered, and its first owner died before it wrote: all that was received counts."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            sink = RecordingSink(source_of(engine))
            async with collecting(options=PATIENT) as fleet:
                fleet.listen(sink.descriptor)
                await until(lambda: engine.subscribers == 1, "subscription")
                publish(engine, 0, 9)
                await until(lambda: fleet.listeners()[A].batches == 10, "ten batches")
                fleet.start(sink)
                await until(lambda: sink.cursor == 9 and not sink.is_syncing, "history")

        assert is_whole(sink, last=9)
        assert [] == trouble(sink)

    run_on(loop, main())


def test_listening_again_elsewhere_and_no_more(loop: str) -> None:
    """The same endpoint again changes nothing; another is listened to anew; who is subscribed to is not listened to."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as one, EngineSimulator(replay_endpoint=None) as two:
            async with collecting(options=PATIENT) as fleet:
                fleet.listen(source_of(one))
                await until(lambda: one.subscribers == 1, "subscription")
                publish(one, 0, 0)
                await until(lambda: fleet.listeners()[A].batches == 1, "a batch")
                fleet.listen(source_of(one))
                assert 1 == fleet.listeners()[A].batches
                fleet.listen(source_of(two))
                assert 0 == fleet.listeners()[A].batches
                await until(lambda: one.subscribers == 0 and two.subscribers == 1, "it went over")
                sink = RecordingSink(source_of(one))
                fleet.start(sink)
                fleet.listen(source_of(two))
                assert {} == fleet.listeners()
                await until(lambda: one.subscribers == 1 and two.subscribers == 0, "and back")
                fleet.unlisten(A)
                assert [A] == fleet.sources()
                fleet.step_down(A)
                fleet.unlisten(A)
                await until(lambda: one.subscribers == 0, "gone")
                fleet.step_down(SourceId("never", 0))
                fleet.unlisten(SourceId("never", 0))
                fleet.note(SourceId("never", 0), 1, 1.0, 1.0)
                assert ({}, []) == (fleet.listeners(), list(fleet.sources()))

    run_on(loop, main())


def test_an_address_that_is_none(loop: str) -> None:
    """It is tried again and again, and taken over like any other: the next owner says it."""

    async def main() -> None:
        nowhere = Descriptor(pod="a", endpoint="tcp://no such host:1")
        async with collecting(options=PATIENT) as fleet:
            fleet.listen(nowhere)
            await until(lambda: A in fleet._unopened, "a try")
            assert fleet.listeners()[A].connected_since is None
            sink = RecordingSink(nowhere)
            fleet.start(sink)
            await until(lambda: "endpoint" in sink.warnings, "a remark")

    run_on(loop, main())


def test_a_thousand_listeners(loop: str) -> None:
    """All of one engine, as the number of sockets is what matters; and ten of them take over."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            async with collecting(options=PATIENT) as fleet:
                pods = [source_of(engine, f"pod-{number}") for number in range(1_000)]
                for pod in pods:
                    fleet.listen(pod)
                    await asyncio.sleep(0)
                await until(lambda: engine.subscribers == 1_000, "subscriptions", 120)
                publish(engine, 0, 9)
                await until(lambda: all(view.batches == 10 for view in fleet.listeners().values()), "ten batches", 120)
                sinks = [RecordingSink(pod) for pod in pods[:10]]
                for sink in sinks:
                    fleet.start(sink)
                await until(lambda: all(is_whole(sink, last=9) for sink in sinks), "history")
                publish(engine, 10, 10)
                await until(lambda: all(is_whole(sink, last=10) for sink in sinks), "live")
                assert 990 == len(fleet.listeners())

    run_on(loop, main())
