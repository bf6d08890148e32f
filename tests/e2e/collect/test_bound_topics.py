"""Topics on a bound socket that change, and publishers that are gone as soon as they have spoken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.clock import SystemClock
from indexer.collect.bound import BoundSocket
from indexer.collect.lanes import LaneBudget
from indexer.collect.pump import Pump
from indexer.collect.ring import RingBudget
from indexer.collect.shared import Shared
from indexer.collect.sockets import open_context
from indexer.model import Descriptor
from tests.e2e.collect.test_bound import BOUND, all_subscribed, bound_at, engines
from tests.support.collecting import LOOPS, collecting, run_on, until
from tests.support.laden_sink import LadenSink
from tests.support.recording_registrar import RecordingRegistrar

pytestmark = pytest.mark.parametrize("loop", LOOPS)

HEARD_AGAIN_LATE = replace(BOUND, refused_retry_s=300.0)


def test_an_engine_that_serves_another_model_now(loop: str) -> None:
    """The pod's older stream ends with its registration: its numbers and the new ones are never mixed."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            endpoint = await bound_at(fleet)
            with engines(1, endpoint) as (before,):
                await all_subscribed([before])
                before.publish(b"kv@pod-a@llama", 0, 3)
                await until(lambda: registrar.has("pod-a") and registrar["pod-a", 0].cursor == 3, "the older model")
            with engines(1, endpoint) as (after,):
                await all_subscribed([after])
                after.publish(b"kv@pod-a@llama-v2", 0, 1, life=1)
                await until(lambda: registrar["pod-a", 0].applied == [0, 1], "the newer model")
                await until(lambda: registrar["pod-a", 0].connected, "alive")
            assert 1 == len(fleet.sources())
        (older,) = registrar.left
        assert ("restart", "registration_differs") == older.story[-1]
        assert "llama-v2" == registrar["pod-a", 0].descriptor.model
        assert "llama-v2" in registrar["pod-a", 0].warnings["topic"]

    run_on(loop, main())


def test_two_topics_of_one_model_begin_a_new_life(loop: str) -> None:
    """The source stays, what it held does not."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"pod-a", 0, 3)
                engine.publish(b"kv@pod-a@", 4, 5, life=1)
                await until(lambda: registrar.has("pod-a") and registrar["pod-a", 0].applied == [4, 5], "the newer")
        sink = registrar["pod-a", 0]
        assert not registrar.left
        assert 1 == sink.counts["restarts"]
        assert [("restart", "registration_differs"), ("apply", 4), ("apply", 5)] == sink.story[-3:]

    run_on(loop, main())


def test_two_topics_side_by_side_do_not_take_turns_by_the_message(loop: str) -> None:
    """The newer one counts; the older is dropped and counted, until it has been quiet about for a while."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=HEARD_AGAIN_LATE, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                for number in range(5):
                    engine.publish(b"kv@pod-a@one", number, number)
                    engine.publish(b"kv@pod-a@two", number, number)
                await until(lambda: registrar.has("pod-a") and registrar["pod-a", 0].cursor == 4, "the newer")
                assert 4 == fleet.bound_counts[0].refused
        assert "two" == registrar["pod-a", 0].descriptor.model
        assert [0, 1, 2, 3, 4] == registrar["pod-a", 0].applied
        assert 1 == len(registrar.left)

    run_on(loop, main())


@pytest.mark.parametrize("newer", [b"pod-a", b"kv@pod-a@other", b"kv@pod-a@m"], ids=["bare", "model", "same"])
def test_another_engine_of_the_same_name_is_kept_apart(loop: str, newer: bytes) -> None:
    """While the first one is connected; then its place is free."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            endpoint = await bound_at(fleet)
            with engines(1, endpoint) as (second,):
                with engines(1, endpoint) as (first,):
                    await all_subscribed([first, second])
                    first.publish(b"kv@pod-a@m", 0, 3)
                    await until(lambda: registrar.has("pod-a") and registrar["pod-a", 0].cursor == 3, "the first")
                    standing = registrar["pod-a", 0]
                    second.publish(newer, 0, 5, life=1)
                    await until(lambda: fleet.bound_counts[0].refused == 6, "the second is refused")
                    first.publish(b"kv@pod-a@m", 4, 4)
                    await until(lambda: standing.cursor == 4, "the first goes on")
                    assert [("apply", number) for number in range(5)] == standing.story
                    assert "another engine" in standing.warnings["bound"]
                    assert standing.counts["topic_mismatch"]
                await until(lambda: not standing.connected, "the first is gone")
                second.publish(newer, 6, 6, life=1)
                await until(lambda: registrar["pod-a", 0].applied[-1:] == [6], "the second has its place")
                assert registrar["pod-a", 0].connected

    run_on(loop, main())


def test_one_name_on_two_bound_sockets(loop: str) -> None:
    """A source has one stream, whichever socket it comes by: the other is refused until the first one's engine left."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        options = replace(BOUND, bind_endpoints=("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"))
        async with collecting(options=options, registrar=registrar) as fleet:
            await bound_at(fleet)
            one, two = fleet.bound_endpoints
            with engines(1, two) as (second,):
                with engines(1, one) as (first,):
                    await all_subscribed([first, second])
                    first.publish(b"kv@pod-a@m", 0, 3)
                    await until(lambda: registrar.has("pod-a") and registrar["pod-a", 0].cursor == 3, "the first")
                    standing = registrar["pod-a", 0]
                    second.publish(b"kv@pod-a@m", 0, 5, life=1)
                    await until(lambda: fleet.bound_counts[1].refused == 6, "the second is refused")
                    assert [("apply", number) for number in range(4)] == standing.story
                    assert 1 == len(fleet.sources())
                await until(lambda: not standing.connected, "the first is gone")
                second.publish(b"kv@pod-a@m", 6, 7, life=1)
                await until(lambda: standing.applied == [6, 7], "the second has its place")
                assert 1 == len(fleet.sources())

    run_on(loop, main())


def test_a_publisher_that_is_gone_when_its_first_message_is_read(loop: str) -> None:
    """It is not alive any more, but there was a connection: the next one is a reconnect."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        context = open_context(BOUND)
        shared = Shared(
            context,
            BOUND,
            SystemClock(),
            LaneBudget(BOUND.lanes_total_bytes),
            RingBudget(BOUND.standby_total_bytes),
            Pump(SystemClock(), 0.1),
            lambda *_: None,
        )
        bound = BoundSocket("tcp://127.0.0.1:0", registrar, shared, {})  # read when the test says so
        bound.open()
        monitor = bound._monitor
        assert monitor is not None
        with engines(1, bound.endpoint) as (passing,):
            await until(lambda: bound.drain() is False and passing.subscribed(), "its connection is known")
            passing.publish(b"passing", 0, 0)
            passing.close()
            await until(lambda: monitor.pending, "its end has arrived behind its message")
        bound.drain()
        sink = registrar["passing", 0]
        assert [0] == sink.applied
        assert [False] == sink.alive_calls
        with engines(1, bound.endpoint) as (back,):
            await until(lambda: bound.drain() is False and back.subscribed(), "back")
            back.publish(b"passing", 1, 1)
            await until(lambda: bound.drain() is False and sink.connected, "alive again")
            assert 1 == sink.counts["reconnects"]
        bound.close()
        context.term()

    run_on(loop, main())


def test_what_an_ended_stream_held_back_is_gone(loop: str) -> None:
    """It is not applied to the life that follows, and its bytes are free for the lanes of others."""

    async def main() -> None:
        laden = LadenSink(Descriptor(pod="pod-a", origin="topic"), {0}, steps=10**9)
        registrar = RecordingRegistrar(laden)
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"pod-a", 0, 0)
                await until(lambda: laden.busy, "a large one is under way")
                engine.publish(b"pod-a", 1, 9)
                await until(lambda: fleet.held_bytes > 0, "messages are held back behind it")
                engine.publish(b"kv@pod-a@", 4, 5, life=1)
                await until(lambda: laden.applied == [4, 5], "the newer")
                assert 0 == fleet.held_bytes
                await until(lambda: not laden.is_syncing, "live")
                engine.publish(b"kv@pod-a@", 6, 6, life=1)
                await until(lambda: laden.applied == [4, 5, 6], "nothing but the newer")

    run_on(loop, main())


def test_a_source_that_leaves_frees_what_it_held_back(loop: str) -> None:
    """By removal, and with the socket itself."""

    async def main() -> None:
        for removed in (True, False):
            laden = LadenSink(Descriptor(pod="pod-a", origin="topic"), {0}, steps=10**9)
            async with collecting(options=BOUND, registrar=RecordingRegistrar(laden)) as fleet:
                with engines(1, await bound_at(fleet)) as (engine,):
                    await all_subscribed([engine])
                    engine.publish(b"pod-a", 0, 0)
                    await until(lambda laden=laden: laden.busy, "a large one is under way")
                    engine.publish(b"pod-a", 1, 9)
                    await until(lambda fleet=fleet: fleet.held_bytes > 0, "messages are held back")
                    if removed:
                        laden.open = False
                        fleet.stop(laden.descriptor.id)
                        assert 0 == fleet.held_bytes
            assert 0 == fleet.held_bytes

    run_on(loop, main())
