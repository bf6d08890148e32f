"""A replay endpoint that is another engine's, as a mistyped port gives: it answers in the best of health."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from indexer.model import Descriptor
from tests.support.collect_batches import payload
from tests.support.collecting import LOOPS, QUICK, collecting, run_on, until
from tests.support.recording_sink import RecordingSink

pytestmark = pytest.mark.parametrize("loop", LOOPS)

OTHER = 7
"""Its batches differ from the engine's own."""


def misled(engine: EngineSimulator, other: EngineSimulator) -> RecordingSink:
    """A source whose messages come from the one and whose replays from the other."""
    return RecordingSink(Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=other.replay_endpoint))


def own(sink: RecordingSink) -> bool:
    """Whether nothing of the other engine is left."""
    return all(each == payload(number) for number, each in zip(sink.applied, sink.payloads, strict=True))


@pytest.mark.parametrize("history", [0, 3, 50], ids=["none", "shorter", "longer"])
def test_another_engines_batches_are_not_kept(loop: str, history: int) -> None:
    """Whatever the other has, older or newer: what is claimed in the end came from the engine itself."""

    async def main() -> None:
        with EngineSimulator() as engine, EngineSimulator() as other:
            for number in range(history):
                other.publish(payload(number, OTHER))
            for number in range(6):
                engine.publish(payload(number))
            other.flush()
            engine.flush()
            sink = misled(engine, other)
            async with collecting(sink, options=QUICK):
                await until(lambda: sink.connected and engine.subscribers > 0 and not sink.is_syncing, "join")
                engine.publish(payload(6))
                await until(lambda: sink.cursor == 6, "a live message")
                other.publish(payload(history, OTHER))
                while other.sequence < 40:
                    other.publish(payload(other.sequence + 1, OTHER))
                engine.publish(payload(7), lost=True)
                engine.publish(payload(8))
                await until(lambda: sink.cursor == 8 and not sink.is_syncing, "what follows a gap")
                await until(lambda: "replay_differs" in sink.suspicions, "the suspicion")
                assert own(sink)
                assert "replay_foreign" in sink.warnings
                assert sink.counts["replays_foreign"]

    run_on(loop, main())


def test_the_engines_own_endpoint_ends_the_suspicion(loop: str) -> None:
    """It had been another's for a while: the port was taken by the wrong process."""

    async def main() -> None:
        with EngineSimulator() as engine, EngineSimulator() as other:
            for number in range(10):
                other.publish(payload(number, OTHER))
            other.flush()
            sink = misled(engine, other)
            async with collecting(sink, options=replace(QUICK, replay_backoff_max_s=0.2)):
                await until(lambda: sink.cursor == 9 and engine.subscribers > 0 and not sink.is_syncing, "join")
                engine.publish(payload(0))
                await until(lambda: "replay_differs" in sink.suspicions and sink.applied == [0], "the suspicion")
                other.restart()
                other.publish(payload(0))
                await until(lambda: not sink.suspicions, "the end of the suspicion")
                assert "replay_foreign" not in sink.warnings
                assert own(sink)

    run_on(loop, main())
