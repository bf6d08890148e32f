"""Engines that connect to us: many publishers on one bound socket, told apart by topic and rank."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import zmq

from indexer.clock import SystemClock
from indexer.collect.fleet import Fleet
from indexer.errors import SettingsError
from indexer.model import Descriptor, SourceId
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, QUICK, collecting, run_on, until
from tests.support.recording_registrar import RecordingRegistrar
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

BOUND = replace(QUICK, bind_endpoints=("tcp://127.0.0.1:0",), refused_retry_s=0.0)


class ConnectingEngine:
    """A PUB socket that connects; XPUB, so that it knows when the subscription has arrived."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.XPUB)
        self._socket.set(zmq.LINGER, 1_000)
        self._socket.connect(endpoint)
        self._subscribed = False

    def subscribed(self) -> bool:
        """Whether what is sent now arrives."""
        if not self._subscribed and self._socket.poll(0):
            self._socket.recv()
            self._subscribed = True
        return self._subscribed

    def publish(self, topic: bytes, first: int, last: int, life: int = 0, *, rank: int | None = 0) -> None:
        for number in range(first, last + 1):
            self.send([topic, number.to_bytes(8, "big"), payload(number, life, rank=rank)])

    def send(self, frames: list[bytes]) -> None:
        self._socket.send_multipart(frames)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def engines(count: int, endpoint: str) -> Iterator[list[ConnectingEngine]]:
    """So many connecting engines, each with its own connection."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    started = [ConnectingEngine(context, endpoint) for _ in range(count)]
    try:
        yield started
    finally:
        for engine in started:
            engine.close()
        context.term()


async def bound_at(fleet: Fleet) -> str:
    """Where the fleet is bound, once it is."""
    await until(lambda: not fleet.bound_endpoints[0].endswith(":0"), "bound")
    return fleet.bound_endpoints[0]


async def all_subscribed(started: list[ConnectingEngine]) -> None:
    """What any of them sends now arrives."""
    for engine in started:
        await until(engine.subscribed, "subscription")


def test_three_publishers_on_one_socket(loop: str) -> None:
    """Two pods and a second rank: each its own source and its own numbers, however they interleave."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(3, await bound_at(fleet)) as (one, two, three):
                await all_subscribed([one, two, three])
                for number in range(50):
                    one.publish(b"kv@a@org/m@2", number, number)
                    two.publish(b"kv@b@m", 2 * number, 2 * number + 1)
                    three.publish(b"kv@a@org/m@2", number + 7, number + 7, rank=1)
                await until(lambda: registrar.has("a", 1) and len(registrar["a", 1].applied) == 50, "all of a#1")
                await until(lambda: len(registrar["a", 0].applied) == 50, "all of a")
                await until(lambda: len(registrar["b", 0].applied) == 100, "all of b")
                await until(lambda: all(sink.connected for sink in registrar.sinks.values()), "alive")
            assert {SourceId("a", 0), SourceId("a", 1), SourceId("b", 0)} == set(fleet.sources())

        assert list(range(50)) == registrar["a", 0].applied
        assert list(range(100)) == registrar["b", 0].applied
        assert list(range(7, 57)) == registrar["a", 1].applied
        assert "org/m@2" == registrar["a", 0].descriptor.model
        for sink in registrar.sinks.values():
            assert not sink.counts
            assert {"replay"} == set(sink.warnings)

    run_on(loop, main())


def test_gaps_and_restarts_are_of_their_publisher_alone(loop: str) -> None:
    """A lost batch of one and a backward number of the other are each seen in their own stream."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(2, await bound_at(fleet)) as (one, two):
                await all_subscribed([one, two])
                one.publish(b"a", 0, 3)
                two.publish(b"b", 0, 3)
                one.publish(b"a", 6, 6)
                two.publish(b"b", 1, 1, life=1)
                await until(lambda: registrar.has("a") and registrar["a", 0].cursor == 6, "a")
                await until(lambda: registrar.has("b") and registrar["b", 0].applied == [1], "b")
        assert ("gap", 4, 5) in registrar["a", 0].story
        assert ("restart", "sequence_went_back") in registrar["b", 0].story
        assert 0 == registrar["a", 0].counts["restarts"] + registrar["b", 0].counts["gaps"]

    run_on(loop, main())


def test_only_the_publisher_whose_connection_is_lost_is_down(loop: str) -> None:
    """The other one is idle and stays alive. Back again, the first is alive with its next message."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            endpoint = await bound_at(fleet)
            with engines(1, endpoint) as (idle,):
                with engines(1, endpoint) as (dying,):
                    await all_subscribed([idle, dying])
                    idle.publish(b"idle", 0, 0)
                    dying.publish(b"dying", 0, 0)
                    await until(lambda: registrar.has("idle") and registrar["idle", 0].connected, "idle is alive")
                    await until(lambda: registrar.has("dying") and registrar["dying", 0].connected, "dying is alive")
                await until(lambda: not registrar["dying", 0].connected, "loss noticed")
                assert registrar["idle", 0].connected
                with engines(1, endpoint) as (back,):
                    await all_subscribed([back])
                    back.publish(b"dying", 1, 1)
                    await until(lambda: registrar["dying", 0].connected, "alive again")
                    assert [0, 1] == registrar["dying", 0].applied
                    assert 1 == registrar["dying", 0].counts["reconnects"]

    run_on(loop, main())


def test_a_message_of_a_connection_that_is_gone_is_no_sign_of_life(loop: str) -> None:
    """The engine sends and dies before we look: the message counts, the source is not alive."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                bound, monitor = fleet._bound[0], fleet._bound[0]._monitor
                assert monitor is not None
                await until(lambda: len(bound._connections) == 1, "connection seen")
                engine.publish(b"a", 0, 0)
            assert monitor.pair.poll(30_000)  # holds the loop until ZMQ knows of the loss; nothing is read meanwhile
            await until(lambda: registrar.has("a") and registrar["a", 0].applied == [0], "applied")
            await until(lambda: len(registrar["a", 0].alive_calls) > 1, "looked at")
            assert True not in registrar["a", 0].alive_calls

    run_on(loop, main())


def test_what_names_nobody_is_dropped_and_counted(loop: str) -> None:
    """Empty topics, endless topics and what is no batch: the connection stays, the rest is applied."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"", 0, 1)
                engine.publish(b"x" * (BOUND.topic_max_bytes + 1), 0, 0)
                engine.send([b"a", b"short", payload(0)])
                engine.send([b"a"])
                engine.publish(b"a", 0, 0)
                await until(lambda: registrar.has("a") and registrar["a", 0].applied == [0], "the real one")
            counts = fleet.bound_counts[0]
            assert (3, 2, 0) == (counts.malformed, counts.unnamed, counts.refused)

    run_on(loop, main())


def test_a_source_with_a_subscriber_of_its_own_wins(loop: str) -> None:
    """What comes under its name on the bound socket is dropped, counted and remarked on."""

    async def main() -> None:
        flagged = RecordingSink(Descriptor(pod="a", endpoint="tcp://127.0.0.1:9", origin="flag"))
        registrar = RecordingRegistrar(flagged)
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"a", 0, 2)
                await until(lambda: fleet.bound_counts[0].refused == 3, "refused")
        assert [] == flagged.applied
        assert {"bound"} == set(flagged.warnings)

    run_on(loop, main())


def test_publishers_beyond_the_limit_are_refused_and_not_asked_about_each_time(loop: str) -> None:
    """The registrar has no room: a message is dropped, and the publisher is proposed again only after a while."""

    async def main() -> None:
        registrar = RecordingRegistrar(sources_max=1)
        options = replace(BOUND, refused_retry_s=300.0, refused_topics_max=2)
        async with collecting(options=options, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"a", 0, 0)
                for topic in (b"b", b"b", b"c", b"d", b"d", b"b"):
                    engine.publish(topic, 0, 0)
                engine.publish(b"a", 1, 1)
                await until(lambda: registrar.has("a") and registrar["a", 0].cursor == 1, "the one that has room")
            assert 6 == fleet.bound_counts[0].refused
            assert 5 == registrar.asked, "a, b, c, d, and b again: two refusals are remembered"

    run_on(loop, main())


def test_a_removed_source_reappears_with_its_next_message(loop: str) -> None:
    """Its sink is closed; the registrar is asked again and gives a new one, whose history is truncated."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            with engines(1, await bound_at(fleet)) as (engine,):
                await all_subscribed([engine])
                engine.publish(b"a", 0, 1)
                await until(lambda: registrar.has("a") and registrar["a", 0].cursor == 1, "first registration")
                first = registrar["a", 0]
                first.open = False
                await until(lambda: not fleet.sources(), "its stream is gone")
                engine.publish(b"a", 2, 2)
                await until(lambda: registrar["a", 0] is not first and registrar["a", 0].applied == [2], "second")
                assert registrar["a", 0].connected
                fleet.stop(SourceId("a", 0))
                assert not fleet.sources()
                assert [0, 1] == first.applied

    run_on(loop, main())


def test_an_address_that_cannot_be_bound_ends_the_run_with_its_reason(loop: str) -> None:
    """A port that is taken is the operator's to solve."""

    async def main() -> None:
        registrar = RecordingRegistrar()
        async with collecting(options=BOUND, registrar=registrar) as fleet:
            taken = await bound_at(fleet)
            second = Fleet(replace(BOUND, bind_endpoints=(taken,)), SystemClock(), registrar)
            with pytest.raises(SettingsError, match="Address already in use"):
                await asyncio.wait_for(second.run(asyncio.Event()), 30)

    run_on(loop, main())
