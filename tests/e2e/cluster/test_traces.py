"""Recorded streams through three replicas that are asked in turn, while they die, stand still, and join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from api.demo.publisher import VLLM_NOW, Wire
from tests.support.core_traces import NAMES, Recording, recording
from tests.support.in_trouble import assert_clean
from tests.support.many import Cluster
from tests.support.played import Play, marks, playing
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHORT_MEMORY: Final = Wire(buffer_steps=160)
"""Engines that replay what is published between two probes, and not their whole history."""
CASES: Final = [
    pytest.param(name, replay, id=f"{name}-{'replay' if replay else 'no-replay'}", marks=marked)
    for name in NAMES
    for replay in (False, True)
    for marked in [[] if name == "clear" and replay else [pytest.mark.slow]]
]


def final_truth(recorded: Recording) -> list[tuple[int, int]]:
    """Blocks and copies, as the engines count them."""
    assert recorded.truth.final is not None
    return [(truth.distinct, truth.copies) for truth in recorded.truth.final]


class Mishaps:
    """What befalls the replicas, one thing after the other. With a standby, each waits until the one before is over.

    Two at once would cost more than a standby makes good: only an engine's replay does.
    """

    def __init__(self, play: Play) -> None:
        self.play = play
        self.cluster: Cluster = play.cluster
        self.steps: list[tuple[int, Callable[[], None]]] = list(
            zip(marks(play.recorded, 5), [self.kill, self.join, self.pause, self.resume, self.kill], strict=True)
        )

    def next_before(self, until: int) -> int | None:
        """Where the next one is due, if that is before."""
        return self.steps[0][0] if self.steps and self.steps[0][0] < until else None

    def happen(self) -> None:
        """The next one."""
        self.steps.pop(0)[1]()

    def kill(self) -> None:
        """SIGKILL of a pod's owner; the engines go on at once."""
        self.settle()
        self.cluster.kill(self.cluster.owner_of(self.play.pods[len(self.steps) % 3]).name)

    def join(self) -> None:
        """A new replica: partitions move to it under traffic."""
        self.settle()
        self.cluster.join("fourth")

    def pause(self) -> None:
        """SIGSTOP of a pod's owner, until the others have taken its partitions."""
        self.settle()
        self.cluster.pause(self.cluster.owner_of(self.play.pods[1]).name)

    def resume(self) -> None:
        """SIGCONT, once its lease is over and its partitions are somebody else's."""
        (paused,) = self.cluster.paused
        self.cluster.wait_taken_from(paused)
        self.cluster.resume(paused)

    def settle(self) -> None:
        """All is as planned for those that run, and every engine is heard by two."""
        self.cluster.wait_settled()
        self.cluster.wait_for(self.play.is_live, "every source to be live everywhere")
        for number in self.play.fleet.engines:
            self.play.wait_heard(number)


def play_on(play: Play, until: int, mishaps: Mishaps) -> None:
    """Publish up to there, with what happens on the way. Engines go on while it does."""
    while (at := mishaps.next_before(until)) is not None:
        play.play(at)
        mishaps.happen()
        play.play(min(at + 20, until))
    play.play(until)


@pytest.mark.parametrize(("name", "replay"), CASES)
def test_every_answer_is_the_engines_own(
    tmp_path: Path, name: str, replay: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every probe, for every pod, whichever replica is asked: zero exceptions.

    Two owners are killed, one stands still for longer than its lease and goes on, one joins.
    """
    recorded = recording(name)
    faults: list[str] = []
    with own_server(tmp_path) as server:
        with playing(server.port, recorded, replay=replay, wire=SHORT_MEMORY if replay else VLLM_NOW) as play:
            mishaps = Mishaps(play)
            for probe in recorded.probes:
                if probe.n > play.position or not play.position:
                    play_on(play, probe.n, mishaps)
                faults += play.ask_in_turn(probe)
            mishaps.settle()
            for _ in play.cluster.running:
                faults += play.ask_in_turn(recorded.probes[-1])
            held = play.held_at_the_end()
            gaps = play.counted("gaps")
        assert_clean(server)

    assert [] == faults
    assert not mishaps.steps, "all of it happened"
    assert final_truth(recorded) == held
    assert dict.fromkeys(gaps, 0) == gaps
    assert play.position == len(recorded.messages)
    with capsys.disabled():
        print(f" ({play.certain_at_once} of {play.turns} answers certain at once)")
