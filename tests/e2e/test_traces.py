"""Recorded streams of a real engine through real sockets into a running service, asked over HTTP at every probe.

The engines are restarted as the recorded ones were: as new processes on the same ports.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from api.demo.fleet import TraceFleet
from tests.support.core_service import RunningService, standing
from tests.support.core_traces import NAMES, Recording, recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.demo.trace import Probe

Setting = tuple[Recording, TraceFleet, RunningService]


@pytest.fixture
def playing(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """A recording, its engines, and a service that has subscribed to all of them."""
    name, replay = request.param
    recorded = recording(name)
    fleet = TraceFleet(recorded.header, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0" if replay else None)
    fleet.start()
    try:
        with RunningService(fleet.source_flags()) as service:
            assert fleet.wait_subscribers(threading.Event())
            yield recorded, fleet, service
    finally:
        fleet.close()


class Player:
    """Publishes up to a position and waits until the service has all of it."""

    def __init__(self, setting: Setting) -> None:
        self.recorded, self.fleet, self.service = setting
        self.pods = [self.fleet.identities[pod.pod].pod for pod in self.recorded.header.pods]
        self.position = 0
        self.old_generations: dict[str, str] = {}

    def play(self, until: int) -> None:
        """Publish; a new life begins when the service has subscribed to it, as with a real engine's slow start."""
        for message in self.recorded.messages[self.position : until]:
            pod = self.pods[message.pod]
            generation = self.service.sources()[pod]["generation"] if message.sequence == 0 and message.life else ""
            if self.fleet.enter_life(message):
                self.old_generations[pod] = generation
                self.fleet.engines[message.pod].wait_subscribers()
            self.fleet.publish(message)
        self.position = until

    def wait_applied(self, at: tuple[tuple[int, int], ...]) -> None:
        """The service names these sequences, in the lives they belong to, and nothing is under way."""
        wanted = {pod: sequence for pod, (_, sequence) in zip(self.pods, at, strict=True)}

        def applied() -> bool:
            sources = self.service.sources()
            return all(
                sources[pod]["sequence"] == sequence
                and sources[pod]["state"] == "live"
                and sources[pod]["generation"] != self.old_generations.get(pod)
                for pod, sequence in wanted.items()
            )

        self.service.wait_for(applied, f"sequences {wanted}")


def compare(player: Player, probe: Probe) -> list[str]:
    """What one probe's answer says otherwise than the engines; empty when nothing."""
    tokens = player.recorded.truth.prompts[probe.prompt].tokens
    answer = player.service.ask(tokens, model="tiny-llama")
    wrong = [] if answer.state == "exact" else [f"n={probe.n}: state {answer.state}"]
    for index, (pod, (_, sequence)) in enumerate(zip(player.pods, probe.at, strict=True)):
        entry = answer[pod]
        got = (entry.matched_tokens, entry.reusable_tokens, *standing(entry))
        expected = (probe.chain[index], probe.cached[index], "live", "exact", sequence)
        if got != expected:
            wrong.append(f"n={probe.n} pod={pod} prompt={probe.prompt}: got {got}, engine {expected}")
    return wrong


@pytest.mark.parametrize(
    "playing",
    [*((name, True) for name in NAMES), ("clear", False), ("eviction", False)],
    indirect=True,
    ids=[*NAMES, "clear-without-replay", "eviction-without-replay"],
)
def test_every_answer_is_the_engines_own(playing: Setting) -> None:
    """At every probe, for every pod: matched = chain, reusable = cached, state exact; at the end the same blocks."""
    player = Player(playing)
    recorded = player.recorded
    wrong: list[str] = []

    for probe in recorded.probes:
        if probe.n > player.position or not player.position:
            player.play(probe.n)
            player.wait_applied(probe.at)
        wrong += compare(player, probe)

    assert [] == wrong
    assert player.position == len(recorded.messages)
    final = recorded.truth.final
    assert final is not None
    sources = player.service.sources()
    assert [(truth.distinct, truth.copies) for truth in final] == [
        (sources[pod]["blocks"]["gpu"], sources[pod]["copies"]) for pod in player.pods
    ]
