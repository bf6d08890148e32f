"""One engine and one subscriber over real sockets: what a session decides, seen from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from api.demo.publisher import ReplayFault, Wire
from indexer.collect.options import CollectOptions
from indexer.model import Descriptor
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, QUICK, collecting, run_on, until
from tests.support.proxy import Proxy
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

PATIENT = CollectOptions(probe_interval_s=300.0)
"""No idle probe interferes, and no replay times out."""


def sink_for(engine: EngineSimulator, *, replay: bool = True) -> RecordingSink:
    """A source at that engine."""
    return RecordingSink(
        Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint if replay else None)
    )


async def subscribed(engine: EngineSimulator) -> None:
    """From here on the engine sends to us; waiting in its own method would hold the loop that connects."""
    await until(lambda: engine.subscribers > 0, "subscription")


def publish(engine: EngineSimulator, first: int, last: int, life: int = 0, *, lost: bool = False) -> None:
    """Batches first..last, handed to the socket (or not, when lost) when this returns."""
    for number in range(first, last + 1):
        assert number == engine.publish(payload(number, life), lost=lost)
    engine.flush()


def applied(sink: RecordingSink, first: int, last: int, life: int = 0) -> bool:
    """Whether exactly these batches of that life are applied, in order."""
    wanted = list(range(first, last + 1))
    return sink.applied == wanted and sink.payloads == [payload(number, life) for number in wanted]


def settled(sink: RecordingSink) -> bool:
    """Connected, and no recovery runs."""
    return sink.connected and not sink.is_syncing


@pytest.mark.parametrize("wire", [Wire(replay_topic_frame=False), Wire(replay_topic_frame=True)], ids=["2", "3"])
def test_history_and_live(loop: str, wire: Wire) -> None:
    """Replies of two and of three frames: history first, then live, each batch once."""

    async def main() -> None:
        with EngineSimulator(topic=b"kv@a@m", wire=wire) as engine:
            publish(engine, 0, 99)
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: applied(sink, 0, 99) and settled(sink), "history")
                publish(engine, 100, 199)
                await until(lambda: applied(sink, 0, 199), "live")
            assert 1 == sink.proofs
            assert {} == sink.warnings
            assert not sink.counts["gaps"]

    run_on(loop, main())


def test_an_engine_without_batches_is_proved_empty(loop: str) -> None:
    """The end marker alone; then number 0 is applied live."""

    async def main() -> None:
        with EngineSimulator() as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: sink.proofs > 0 and settled(sink), "proof")
                await subscribed(engine)
                publish(engine, 0, 0)
                await until(lambda: applied(sink, 0, 0), "number 0")

    run_on(loop, main())


def test_without_replay_live_counts(loop: str) -> None:
    """From the first message seen; a lost one is reported."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            publish(engine, 0, 4)
            sink = sink_for(engine)
            async with collecting(sink):
                await subscribed(engine)
                publish(engine, 5, 6)
                publish(engine, 7, 8, lost=True)
                publish(engine, 9, 9)
                await until(lambda: sink.applied == [5, 6, 9], "live")
            assert [("apply", 5), ("apply", 6), ("gap", 7, 8), ("apply", 9)] == sink.story
            assert {"replay"} == set(sink.warnings)

    run_on(loop, main())


def test_a_loss_in_the_middle_is_healed(loop: str) -> None:
    """Nothing is reported lost, and nothing applied out of order."""

    async def main() -> None:
        with EngineSimulator() as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: settled(sink) and sink.proofs > 0, "join")
                await subscribed(engine)
                publish(engine, 0, 4)
                publish(engine, 5, 7, lost=True)
                publish(engine, 8, 9)
                await until(lambda: applied(sink, 0, 9) and settled(sink), "healed")
            assert 1 == sink.counts["gaps"]
            assert not sink.counts["batches_lost"]

    run_on(loop, main())


def test_a_lost_tail_is_found_on_an_idle_engine(loop: str) -> None:
    """No message follows the lost ones: the probe finds them, and then proves the end."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 4)
            sink = sink_for(engine)
            async with collecting(sink):
                await until(lambda: applied(sink, 0, 4) and settled(sink), "join")
                publish(engine, 5, 6, lost=True)
                await until(lambda: applied(sink, 0, 6) and settled(sink), "tail")

    run_on(loop, main())


def test_a_hole_in_a_replay_is_asked_for_again(loop: str) -> None:
    """The engine loses replies in the middle, silently, and sends its end marker."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 49)
            engine.fault_next_replay(ReplayFault(omit=frozenset(range(20, 30))))
            engine.fault_next_replay(ReplayFault(omit=frozenset({31})))
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: applied(sink, 0, 49) and settled(sink), "healed")
            assert {"replay_loss"} == set(sink.warnings)
            assert ("gap",) not in {entry[:1] for entry in sink.story}

    run_on(loop, main())


def test_a_replay_without_end_marker_is_resumed(loop: str) -> None:
    """The marker never comes: after the time limit a fresh socket asks for the rest, and gets a marker."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 9)
            engine.fault_next_replay(ReplayFault(end_marker=False, omit=frozenset(range(5, 10))))
            sink = sink_for(engine)
            async with collecting(sink):
                await until(lambda: applied(sink, 0, 9) and settled(sink), "resumed")
            assert 1 == sink.counts["replays_timeout"]

    run_on(loop, main())


def test_a_silent_replay_endpoint_does_not_stop_live_events(loop: str) -> None:
    """It never answers: live events are applied after the time limit, a loss is reported, the operator is told."""

    async def main() -> None:
        with EngineSimulator() as engine:
            for _ in range(200):
                engine.fault_next_replay(ReplayFault(silent=True))
            sink = sink_for(engine)
            async with collecting(sink):
                await subscribed(engine)
                publish(engine, 0, 1)
                await until(lambda: applied(sink, 0, 1) and settled(sink), "live")
                publish(engine, 2, 2, lost=True)
                publish(engine, 3, 3)
                await until(lambda: sink.applied == [0, 1, 3] and settled(sink), "live after a loss")
            assert ("gap", 2, 2) in sink.story
            assert "replay" in sink.warnings
            assert sink.counts["replays_timeout"]

    run_on(loop, main())


def test_a_replay_endpoint_that_refuses_does_not_stop_live_events(loop: str) -> None:
    """Nobody listens there: the same, and as soon as somebody does it is used."""

    async def main() -> None:
        with EngineSimulator() as engine:
            endpoint, replay_endpoint = engine.endpoint, engine.replay_endpoint
        with EngineSimulator(endpoint, None) as engine:
            sink = RecordingSink(Descriptor(pod="a", endpoint=endpoint, replay_endpoint=replay_endpoint))
            async with collecting(sink):
                await subscribed(engine)
                publish(engine, 0, 1)
                await until(lambda: applied(sink, 0, 1) and settled(sink), "live")
                assert "replay" in sink.warnings

    run_on(loop, main())


def test_an_engine_restart_on_the_same_ports(loop: str) -> None:
    """Numbers from 0 again, the first batches missed: a new life, complete from its beginning."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 9)
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: applied(sink, 0, 9) and settled(sink), "first life")
                engine.restart()
                publish(engine, 0, 4, life=1)
                await until(lambda: applied(sink, 0, 4, life=1) and settled(sink), "second life")
                publish(engine, 5, 9, life=1)
                await until(lambda: applied(sink, 0, 9, life=1), "second life goes on")
            assert 1 == sink.counts["restarts"]

    run_on(loop, main())


def test_a_restart_that_looks_like_a_small_gap(loop: str) -> None:
    """The new process is past the old number before we are back: only the stamp of the old number tells."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 4)
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: applied(sink, 0, 4) and settled(sink), "first life")
                engine.stop()
                publish(engine, 0, 6, life=1)
                engine.come_back()
                await until(lambda: applied(sink, 0, 6, life=1) and settled(sink), "second life")
            assert ("restart", "probe_differs") in sink.story

    run_on(loop, main())


def test_a_reconnect_to_the_same_engine_loses_nothing(loop: str) -> None:
    """What was published meanwhile is fetched; no new life begins."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 4)
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: applied(sink, 0, 4) and settled(sink), "join")
                engine.hang_up()
                await until(lambda: not sink.connected, "loss noticed")
                publish(engine, 5, 9)
                engine.come_back()
                await until(lambda: applied(sink, 0, 9) and settled(sink), "caught up")
            assert 1 == sink.counts["reconnects"]
            assert not sink.counts["restarts"]

    run_on(loop, main())


@pytest.mark.parametrize("last", [2, 4, 5, 9], ids=["behind", "even", "next", "ahead"])
def test_a_restart_behind_a_connection_that_seems_to_stand(loop: str, last: int) -> None:
    """Nothing tells that the old process is gone but what the new one has in the place of its last batch."""

    async def main() -> None:
        with EngineSimulator() as engine:
            publish(engine, 0, 3)
            async with Proxy(int(engine.endpoint.rpartition(":")[2])).running() as way:
                endpoint = f"tcp://127.0.0.1:{way.port}"
                sink = RecordingSink(Descriptor(pod="a", endpoint=endpoint, replay_endpoint=engine.replay_endpoint))
                async with collecting(sink):
                    await until(lambda: applied(sink, 0, 3) and settled(sink), "history")
                    await subscribed(engine)
                    publish(engine, 4, 4)
                    await until(lambda: applied(sink, 0, 4), "live")
                    proofs = sink.proofs
                    await until(lambda: sink.proofs > proofs, "the endpoint to have what arrived")
                    way.sever()
                    engine.restart()
                    publish(engine, 0, last, life=1)
                    await until(lambda: applied(sink, 0, last, life=1) and settled(sink), "second life")
                    await subscribed(engine)
                    publish(engine, last + 1, last + 1, life=1)
                    await until(lambda: applied(sink, 0, last + 1, life=1), "second life goes on")
            assert ("restart", "probe_differs") in sink.story
            assert [1, 1, 0] == [sink.counts[what] for what in ("restarts", "reconnects", "gaps")]

    run_on(loop, main())


@pytest.mark.parametrize(("min_restart_s", "outcome"), [(60.0, ("gap", 5, 6)), (0.0, ("restart", "reconnect_jump"))])
def test_without_replay_the_length_of_the_absence_decides(
    loop: str, min_restart_s: float, outcome: tuple[object, ...]
) -> None:
    """A jump after a reconnect: a gap when no engine could be back so soon, else a restart."""

    async def main() -> None:
        options = CollectOptions(min_engine_restart_s=min_restart_s)
        with EngineSimulator(replay_endpoint=None) as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=options):
                await subscribed(engine)
                publish(engine, 0, 4)
                await until(lambda: applied(sink, 0, 4), "live")
                engine.hang_up()
                publish(engine, 5, 6)
                engine.come_back()
                await subscribed(engine)
                publish(engine, 7, 7)
                await until(lambda: sink.cursor == 7, "live again")
            assert outcome == [step for step in sink.story if step[0] not in {"doubt", "syncing"}][-2]

    run_on(loop, main())


def test_what_is_no_event_batch_is_counted_and_skipped(loop: str) -> None:
    """Too few and too many frames, short numbers, the end marker's number: skipped, the connection stays."""

    async def main() -> None:
        with EngineSimulator() as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: sink.proofs > 0 and settled(sink), "join")
                await subscribed(engine)
                publish(engine, 0, 0)
                number = (1).to_bytes(8, "big")
                for frames in (
                    [b""],
                    [b"", payload(1)],
                    [b"", b"\0", payload(1)],
                    [b"", number, payload(1), b"more"],
                    [b"", number + b"\0", payload(1)],
                    [b"", b"\xff" * 8, payload(1)],
                ):
                    engine.publish_raw(frames)
                publish(engine, 1, 1)
                await until(lambda: applied(sink, 0, 1), "the real ones")
            assert 6 == sink.counts["frames_malformed"]
            assert not sink.counts["reconnects"]

    run_on(loop, main())


def test_a_message_over_the_limit_costs_no_more_than_itself_and_what_replay_cannot_pass(loop: str) -> None:
    """ZMQ cuts the connection over it, live and replayed alike: reported as lost, and live goes on behind it."""

    async def main() -> None:
        options = replace(QUICK, message_max_bytes=10_000, reconnect_anew_min_s=0.1)
        with EngineSimulator() as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=options):
                await until(lambda: sink.proofs > 0 and settled(sink), "join")
                publish(engine, 0, 1)
                await until(lambda: applied(sink, 0, 1), "live")
                engine.publish(payload(2, size_bytes=20_000))
                await until(lambda: sink.counts["reconnects"] > 0 and settled(sink), "connected again")
                publish(engine, 3, 3)
                await until(lambda: sink.cursor == 3 and settled(sink), "the rest")
            assert [("gap", 2, 2), ("apply", 3)] == [each for each in sink.story if each[0] != "syncing"][-2:]

    run_on(loop, main())


def test_another_topic_and_rank_are_reported_and_ignored(loop: str) -> None:
    """The registration wins; the operator reads what was claimed; the claim withdrawn, the remark goes."""

    async def main() -> None:
        with EngineSimulator(topic=b"kv@b@m") as engine:
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await until(lambda: sink.proofs > 0 and settled(sink), "join")
                await subscribed(engine)
                engine.publish(payload(0, rank=3))
                await until(lambda: applied(sink, 0, 0) or bool(sink.applied), "applied all the same")
                assert {"topic", "rank"} == set(sink.warnings)
                engine.publish(payload(1), topic=b"kv@a@m")
                await until(lambda: sink.cursor == 1, "the next")
                assert {} == sink.warnings
            assert (1, 1) == (sink.counts["topic_mismatch"], sink.counts["rank_mismatch"])

    run_on(loop, main())


def test_a_flood_over_a_full_lane_is_healed(loop: str) -> None:
    """While a replay is slow more arrives than may be held: the loss is found and fetched."""

    async def main() -> None:
        options = replace(QUICK, lane_bytes=20_000, replay_timeout_s=3.0)
        with EngineSimulator() as engine:
            publish(engine, 0, 9)
            engine.fault_next_replay(ReplayFault(end_marker=False, omit=frozenset(range(5, 100_000))))
            sink = sink_for(engine)
            async with collecting(sink, options=options):
                await until(lambda: sink.cursor == 4, "the first part of the history")
                publish(engine, 10, 4_999)
                await until(lambda: applied(sink, 0, 4_999) and settled(sink), "everything")
            assert sink.counts["lane_overflows"]

    run_on(loop, main())


def test_a_long_history_on_a_busy_engine(loop: str) -> None:
    """Ten thousand batches to replay while more arrive: all applied in order, once."""

    async def main() -> None:
        with EngineSimulator(wire=Wire(buffer_steps=50_000)) as engine:
            publish(engine, 0, 9_999)
            sink = sink_for(engine)
            async with collecting(sink, options=PATIENT):
                await subscribed(engine)
                publish(engine, 10_000, 14_999)
                await until(lambda: applied(sink, 0, 14_999) and settled(sink), "everything")

    run_on(loop, main())
