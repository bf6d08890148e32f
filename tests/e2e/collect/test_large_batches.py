"""Large batches are applied in steps: meanwhile the socket is read, and what comes waits in its order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.demo.engine import EngineSimulator
from indexer.model import Descriptor
from tests.e2e.collect.test_bound import BOUND, all_subscribed, bound_at, engines
from tests.e2e.collect.test_one_engine import PATIENT, publish, subscribed
from tests.support.collecting import LOOPS, collecting, run_on, until
from tests.support.laden_sink import STEPS, LadenSink
from tests.support.recording_registrar import RecordingRegistrar

pytestmark = pytest.mark.parametrize("loop", LOOPS)

LARGE = {3, 40, 41}
QUANTUM = 8
SMALL_QUANTA = replace(PATIENT, quantum_messages=QUANTUM)


@pytest.mark.parametrize("history", [0, 60])
def test_all_is_applied_in_order(loop: str, history: int) -> None:
    """Live and replayed; never more than a few quanta wait behind a large batch, the rest in the lane."""

    async def main() -> None:
        with EngineSimulator(topic=b"kv@a@m") as engine:
            publish(engine, 0, history - 1)
            sink = LadenSink(
                Descriptor(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint), LARGE
            )
            async with collecting(sink, options=SMALL_QUANTA):
                await subscribed(engine)
                publish(engine, history, 199)
                await until(lambda: sink.applied == list(range(200)) and not sink.is_syncing, "all")
            assert len(LARGE) * STEPS == sink.steps
            assert sink.most_waiting <= 3 * QUANTUM
            assert not sink.counts["gaps"]
            assert not sink.counts["lane_overflows"]

    run_on(loop, main())


def test_a_loss_behind_a_large_batch_keeps_its_place(loop: str) -> None:
    """Without replay it is a gap, told after what came before it."""

    async def main() -> None:
        with EngineSimulator(topic=b"kv@a@m") as engine:
            sink = LadenSink(Descriptor(pod="a", endpoint=engine.endpoint), LARGE)
            async with collecting(sink, options=SMALL_QUANTA):
                await subscribed(engine)
                publish(engine, 0, 4)
                publish(engine, 5, 6, lost=True)
                publish(engine, 7, 50)
                await until(lambda: sink.cursor == 50 and not sink.is_syncing, "all")
            kept = [step for step in sink.story if step[0] in {"apply", "gap"}]
            assert [("apply", 4), ("gap", 5, 6), ("apply", 7)] == kept[4:7]
            assert [*range(5), *range(7, 51)] == sink.applied

    run_on(loop, main())


def test_on_a_bound_socket_the_others_go_on(loop: str) -> None:
    """One publisher's large batches, beside two that have none."""

    async def main() -> None:
        laden = LadenSink(Descriptor(pod="pod-0", model="m", origin="topic"), LARGE)
        registrar = RecordingRegistrar(laden)
        async with collecting(options=replace(BOUND, quantum_messages=QUANTUM), registrar=registrar) as fleet:
            with engines(3, await bound_at(fleet)) as started:
                await all_subscribed(started)
                for number, engine in enumerate(started):
                    engine.publish(b"kv@pod-%d@m" % number, 0, 99)
                for number in range(3):
                    pod = f"pod-{number}"
                    await until(
                        lambda pod=pod: registrar.has(pod) and registrar[pod, 0].applied == list(range(100)), pod
                    )
                await until(lambda: not laden.is_syncing, "live")
        assert len(LARGE) * STEPS == laden.steps

    run_on(loop, main())
