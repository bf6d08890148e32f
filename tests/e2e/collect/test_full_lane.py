"""More arrives than is applied and than a lane may hold: what is thrown away is said at once, over real sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from indexer.model import Descriptor
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, QUICK, collecting, run_on, until
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

NARROW = replace(QUICK, lane_bytes=20_000, read_ahead_after_s=0.0)
"""A source with a backlog is behind at once, and its lane holds some seventy messages."""
FLOOD = 20_000


def test_a_source_is_suspect_from_the_drop_until_it_is_a_gap(loop: str) -> None:
    """Without replay nothing heals it, and the engine falls silent: it stays suspect however long that takes."""

    async def main() -> None:
        with EngineSimulator(replay_endpoint=None) as engine:
            sink = RecordingSink(Descriptor(pod="a", endpoint=engine.endpoint))
            async with collecting(sink, options=NARROW):
                await until(lambda: engine.subscribers > 0, "subscription")
                for number in range(FLOOD):
                    engine.publish(payload(number))
                await until(lambda: sink.counts["lane_overflows"] > 0, "a full lane")
                engine.flush()

                def got_through() -> bool:
                    """One more message, until one comes when there is room."""
                    if sink.cursor == engine.sequence:
                        return not sink.is_syncing
                    if not sink.is_syncing:
                        engine.publish(payload(engine.sequence + 1))
                    return False

                await until(got_through, "a message behind it")
            dropped = sink.story.index(("suspect", "dropped", True))
            assert "gap" not in [entry[0] for entry in sink.story[:dropped]]
            assert ("gap",) in [entry[:1] for entry in sink.story[dropped:]]
            assert set() == sink.suspicions

    run_on(loop, main())


def test_a_source_is_suspect_from_the_drop_until_it_is_healed(loop: str) -> None:
    """With replay the hole is asked for without waiting for another message."""

    async def main() -> None:
        options = replace(NARROW, probe_interval_s=300.0, replay_timeout_s=3.0)
        with EngineSimulator() as engine:
            sink = RecordingSink(Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint))
            async with collecting(sink, options=options):
                await until(lambda: sink.proofs > 0 and engine.subscribers > 0, "join")
                for number in range(8_000):
                    engine.publish(payload(number))
                await until(lambda: sink.cursor == engine.sequence and not sink.is_syncing, "everything")
                await until(lambda: not sink.suspicions, "the end of the suspicion")
            assert ("suspect", "dropped", True) in sink.story
            assert list(range(8_000)) == sink.applied

    run_on(loop, main())


def test_a_message_larger_than_the_lane_is_received(loop: str) -> None:
    """The lane and the largest message have limits of their own."""

    async def main() -> None:
        with EngineSimulator() as engine:
            engine.publish(payload(0, size_bytes=100_000))
            engine.publish(payload(1))
            engine.flush()
            sink = RecordingSink(Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint))
            async with collecting(sink, options=NARROW):
                await until(lambda: sink.cursor == 1 and engine.subscribers > 0, "history")
                engine.publish(payload(2), lost=True)
                engine.publish(payload(3, size_bytes=100_000))  # held until 2 is fetched
                await until(lambda: sink.applied == [0, 1, 2, 3], "the large one")
            assert 0 == sink.counts["lane_overflows"]

    run_on(loop, main())
