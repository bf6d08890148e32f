"""Many sources in one process: joining, leaving, closing, and addresses that do not work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from indexer.collect.fleet import Fleet
from indexer.collect.sockets import FILES_BESIDE, FILES_PER_SOURCE, allow_files
from indexer.model import Descriptor, SourceId
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, QUICK, collecting, run_on, until
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def sink_for(engine: EngineSimulator, pod: str = "a", rank: int = 0) -> RecordingSink:
    """A source at that engine."""
    return RecordingSink(
        Descriptor(pod=pod, dp_rank=rank, endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint)
    )


def open_descriptors() -> int:
    """Of this process, now."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_four_hundred_sources(loop: str) -> None:
    """More than a ZMQ context holds by default. All of one engine, as the number of sockets is what matters."""

    async def main() -> None:
        with EngineSimulator() as engine:
            for number in range(3):
                engine.publish(payload(number))
            sinks = [sink_for(engine, f"pod-{number}") for number in range(400)]
            async with collecting(
                *sinks, options=replace(QUICK, probe_interval_s=60.0, replay_timeout_s=60.0)
            ) as fleet:
                await until(lambda: all(sink.applied == [0, 1, 2] for sink in sinks), "history", 60)
                await until(lambda: all(sink.connected and not sink.is_syncing for sink in sinks), "alive", 60)
                engine.publish(payload(3))
                await until(lambda: all(sink.cursor == 3 for sink in sinks), "live", 60)
                assert 400 == len(fleet.sources())
            assert all(not sink.warnings for sink in sinks)

    run_on(loop, main())


def test_sources_come_and_go_while_running(loop: str) -> None:
    """Start, replace and stop over and over: whoever is stopped hears nothing more, and no descriptor is left."""

    async def main() -> None:
        with EngineSimulator() as engine:
            engine.publish(payload(0))
            async with collecting() as fleet:
                await one_round(fleet, engine)
                before = open_descriptors()
                for _ in range(20):
                    await one_round(fleet, engine)
                await until(lambda: open_descriptors() <= before, "descriptors given back")

    async def one_round(fleet: Fleet, engine: EngineSimulator) -> None:
        first, second, other = sink_for(engine), sink_for(engine), sink_for(engine, rank=1)
        fleet.start(first)
        fleet.start(other)
        await until(lambda: first.applied == [0], "history")
        fleet.start(second)
        first_story = list(first.story)
        await until(lambda: second.applied == [0], "history of the second")
        assert first_story == first.story
        assert {SourceId("a", 0), SourceId("a", 1)} == set(fleet.sources())
        fleet.stop(SourceId("a", 0))
        fleet.stop(SourceId("a", 1))
        fleet.stop(SourceId("never", 0))
        assert [] == list(fleet.sources())

    run_on(loop, main())


def test_a_closed_sink_ends_its_subscriber(loop: str) -> None:
    """The source was removed elsewhere: nothing more is told, and its sockets go."""

    async def main() -> None:
        with EngineSimulator() as engine:
            engine.publish(payload(0))
            sink = sink_for(engine)
            async with collecting(sink) as fleet:
                await until(lambda: sink.applied == [0] and sink.connected, "history")
                sink.open = False
                engine.publish(payload(1))
                await until(lambda: not fleet.sources(), "gone")
                assert [0] == sink.applied

    run_on(loop, main())


def test_closing_in_the_middle_of_everything(loop: str) -> None:
    """A replay under way, an endpoint that never answers, one that does not exist: closed at once, nothing left."""

    async def main() -> None:
        with ExitStack() as stack:
            busy, silent = stack.enter_context(EngineSimulator()), stack.enter_context(EngineSimulator())
            for number in range(5_000):
                busy.publish(payload(number))
            deaf = RecordingSink(Descriptor(pod="d", endpoint=silent.endpoint, replay_endpoint="tcp://127.0.0.1:9"))
            nobody = RecordingSink(Descriptor(pod="n", endpoint="tcp://127.0.0.1:9"))
            sinks = [sink_for(busy, f"b{number}") for number in range(20)]
            options = replace(QUICK, replay_timeout_s=60.0)
            async with collecting(*sinks, deaf, nobody, options=options):
                await until(lambda: any(sink.applied for sink in sinks) and deaf.is_syncing, "under way")
            applied = [len(sink.applied) for sink in sinks]
            assert {asyncio.current_task()} == asyncio.all_tasks()
            await asyncio.sleep(0)
            assert applied == [len(sink.applied) for sink in sinks]
        gc.collect()  # a socket or transport left open would warn here, and warnings are errors

    run_on(loop, main())


def test_a_fleet_can_be_closed_before_it_did_anything(loop: str) -> None:
    """Stopped at once, with and without sources."""

    async def main() -> None:
        stop = asyncio.Event()
        stop.set()
        await Fleet(QUICK, SystemClock(), None).run(stop)
        fleet = Fleet(QUICK, SystemClock(), None)
        fleet.start(RecordingSink(Descriptor(pod="n", endpoint="tcp://127.0.0.1:9")))
        await fleet.run(stop)
        assert [] == list(fleet.sources())

    run_on(loop, main())


def test_an_address_that_is_none_is_remarked_on_and_harms_no_other(loop: str) -> None:
    """The source stays, with a warning; others work; a host that does not resolve yet is simply not connected."""

    async def main() -> None:
        with EngineSimulator() as engine:
            engine.publish(payload(0))
            good = sink_for(engine)
            bad = RecordingSink(Descriptor(pod="b", endpoint="carrier-pigeon://roof"))
            unresolved = RecordingSink(Descriptor(pod="u", endpoint="tcp://nohost.invalid:5557"))
            replays_nowhere = RecordingSink(Descriptor(pod="r", endpoint=engine.endpoint, replay_endpoint="nowhere"))
            async with collecting(bad, good, unresolved, replays_nowhere) as fleet:
                await until(lambda: good.applied == [0] and good.connected, "the good one")
                await until(lambda: replays_nowhere.counts["replays_failed"] > 0, "replay fails")
                await until(lambda: bool(bad.alive_calls and unresolved.alive_calls), "ticks")
                assert {"endpoint", "replay"} == set(bad.warnings)
                assert not bad.connected
                assert not unresolved.connected
                assert "replay" in replays_nowhere.warnings
                fleet.stop(bad.descriptor.id)

    run_on(loop, main())


def test_a_source_without_an_address_is_left_alone(loop: str) -> None:
    """One that appeared by topic has none: no socket, no sign of life."""

    async def main() -> None:
        sink = RecordingSink(Descriptor(pod="t"))
        async with collecting(sink):
            await until(lambda: bool(sink.alive_calls), "a tick")
            assert not sink.connected

    run_on(loop, main())


@asynccontextmanager
async def web_server(port: int) -> AsyncIterator[list[int]]:
    """Something else than an engine on that port; the list grows with each visitor."""
    visits: list[int] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n" + bytes(64))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(refuse, "127.0.0.1", port)
    async with server:
        yield visits


def test_another_server_on_the_port_does_not_end_the_subscription(loop: str) -> None:
    """ZMQ gives up for good after a protocol error; the engine that comes later is found all the same."""

    async def main() -> None:
        with EngineSimulator() as engine:
            endpoint, replay_endpoint = engine.endpoint, engine.replay_endpoint
        sink = RecordingSink(Descriptor(pod="a", endpoint=endpoint, replay_endpoint=replay_endpoint))
        options = replace(QUICK, reconnect_anew_min_s=0.1, reconnect_anew_max_s=0.2)
        async with collecting(sink, options=options):
            async with web_server(int(endpoint.rpartition(":")[2])) as visits:
                await until(lambda: len(visits) > 1, "more than one try")
                assert not sink.connected
            with EngineSimulator(endpoint, replay_endpoint) as engine:
                engine.publish(payload(0))
                await until(lambda: sink.applied == [0] and sink.connected, "the engine")

    run_on(loop, main())


def test_sockets_that_run_out_are_said_and_tried_again(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond sources_max no socket can be made: the source is remarked on, and subscribes once there is room."""
    monkeypatch.setattr("indexer.collect.sockets.SOCKETS_BESIDE", 0)
    monkeypatch.setattr("indexer.collect.fleet.OPEN_RETRY_S", 0.05)

    async def main() -> None:
        options = replace(QUICK, sources_max=2, replays_parallel=1, probes_parallel=1)
        with EngineSimulator() as engine:
            engine.publish(payload(0))
            sinks = [sink_for(engine, f"pod-{number}") for number in range(12)]
            async with collecting(*sinks, options=options) as fleet:
                await until(lambda: any("endpoint" in sink.warnings for sink in sinks), "no room")
                refused = next(sink for sink in sinks if "endpoint" in sink.warnings)
                for sink in sinks:
                    if sink is not refused:
                        fleet.stop(sink.descriptor.id)
                await until(lambda: refused.applied == [0] and "endpoint" not in refused.warnings, "room")

    run_on(loop, main())


def test_open_files_are_allowed_as_far_as_the_hard_limit_goes(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Raised as needed, never lowered; said clearly where the hard limit is in the way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 100 * FILES_PER_SOURCE + FILES_BESIDE
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        assert allow_files(300, QUICK)
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised >= wanted + 200 * FILES_PER_SOURCE
        assert allow_files(1, QUICK)
        assert (raised, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
        assert [] == caplog.messages
        assert not allow_files(10**9, QUICK)
        assert (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
        assert "ulimit" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_context_is_large_enough_for_its_sources(loop: str) -> None:
    """Three ZMQ sockets a source, computed from the largest fleet."""
    fleet = Fleet(replace(QUICK, sources_max=1_000), SystemClock(), None)
    assert fleet._context.get(zmq.MAX_SOCKETS) >= 3_000

    async def main() -> None:
        stop = asyncio.Event()
        stop.set()
        await fleet.run(stop)

    run_on(loop, main())
