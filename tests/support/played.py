"""A recording played to many replicas, and probes asked of them in turn."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from api.demo.fleet import TraceFleet
from api.demo.publisher import VLLM_NOW, Wire
from tests.support.core_service import standing
from tests.support.durable import LOOPBACK
from tests.support.many import Cluster
from tests.support.redis_servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.demo.trace import Probe
    from tests.support.core import Answer
    from tests.support.core_traces import Recording

PARTITIONS: Final = 3
"""Each of the recordings' three pods lies in another one, so each of three replicas collects from one."""
DEADLINE_MS: Final = 20_000
"""For a replica to be as far as a probe: longer than any take-over lasts."""


@dataclass(slots=True)
class Play:
    """Recorded engines and the replicas that collect from them."""

    recorded: Recording
    fleet: TraceFleet
    cluster: Cluster
    position: int = 0
    """Messages published."""
    turns: int = 0
    """Answers."""
    certain_at_once: int = 0
    """Of those."""
    old_generations: dict[str, set[str]] = field(default_factory=dict)
    """By pod, of lives that are over: what an answer says of them is not about the engine that is there."""

    @property
    def pods(self) -> list[str]:
        """By the recording's numbers."""
        return [self.fleet.identities[pod.pod].pod for pod in self.recorded.header.pods]

    def play(self, until: int) -> None:
        """Publish up to that message. A new life begins once it is heard by all that can listen."""
        for message in self.recorded.messages[self.position : until]:
            if message.sequence == 0 and message.life:
                pod = self.pods[message.pod]
                generations = {self.cluster.replicas[name].sources()[pod]["generation"] for name in self._running}
                self.old_generations.setdefault(pod, set()).update(generations)
                self.fleet.enter_life(message)
                self.wait_heard(message.pod)
            self.fleet.publish(message)
        self.position = max(self.position, until)

    @property
    def _running(self) -> list[str]:
        return self.cluster.running

    def wait_heard(self, number: int) -> None:
        """Until an owner and a standby, if there can be one, listen to that pod."""
        wanted = min(2, len(self._running))
        engine = self.fleet.engines[number]
        wait_for(lambda: engine.subscribers >= wanted, f"{engine.endpoint} to have {wanted} subscribers")

    def is_live(self) -> bool:
        """Whether everybody says so of every source."""
        told = [self.cluster.replicas[name].sources() for name in self._running]
        return all(sources[pod]["state"] == "live" for sources in told for pod in self.pods)

    def ask_in_turn(self, probe: Probe) -> list[str]:
        """One replica, another one each time: what it says otherwise than the engines.

        Once all of the probe is applied, what an answer is certain of must be right; and it must be certain of all in
        the end, and right.
        """
        names = self._running
        name = names[self.turns % len(names)]
        self.turns += 1
        faults, reservations = self._compare(name, probe)
        self.certain_at_once += not reservations
        if reservations:
            self.cluster.wait_for(
                lambda: not self._compare(name, probe)[1],
                f"{name} to be certain of n={probe.n}",
                lambda: str(self._compare(name, probe)[1]),
            )
            faults += [fault for found in self._compare(name, probe) for fault in found]
        return faults

    def _compare(self, name: str, probe: Probe) -> tuple[list[str], list[str]]:
        """What is certain and wrong, and what is not certain, or wrong, at the sequence asked for."""
        wanted = {pod: seq for pod, (_, seq) in zip(self.pods, probe.at, strict=True) if seq >= 0}
        answer: Answer = self.cluster.replicas[name].ask(
            self.recorded.truth.prompts[probe.prompt].tokens,
            model="tiny-llama",
            min_sequence=wanted,
            timeout_ms=DEADLINE_MS,
        )
        faults, reservations = [], []
        for index, pod in enumerate(self.pods):
            entry, sequence = answer[pod], wanted.get(pod)
            truth = (probe.chain[index], probe.cached[index])
            got = (entry.matched_tokens, entry.reusable_tokens)
            what = f"{name} n={probe.n} pod={pod} prompt={probe.prompt}: {standing(entry)}"
            is_old = entry.generation in self.old_generations.get(pod, ())
            if is_old or standing(entry) != ("live", "exact", sequence):
                why = self.cluster.replicas[name].sources()[pod]["why"]
                reservations.append(f"{what} ({why}), the engine is at {sequence}")
            elif got != truth:
                faults.append(f"{what}: {got}, engine {truth}")
        if not reservations and answer.state != "exact":
            faults.append(f"{name} n={probe.n}: the answer is {answer.state}")
        return faults, reservations

    def held_at_the_end(self) -> list[tuple[int, int]]:
        """By pod, blocks and copies, as its owner counts them."""
        sources = {pod: self.cluster.owner_of(pod).sources()[pod] for pod in self.pods}
        return [(sources[pod]["blocks"]["gpu"], sources[pod]["copies"]) for pod in self.pods]

    def counted(self, what: str) -> dict[str, int]:
        """By pod, a counter of its owner: of what it saw itself."""
        owners = self.cluster.owners()
        return {
            pod: self.cluster.replicas[owners[self.cluster.partition(pod)]].sources()[pod]["counters"].get(what, 0)
            for pod in self.pods
        }


def marks(recorded: Recording, count: int) -> list[int]:
    """So many messages, spread evenly over the recording, not just before an engine's new life."""
    births = [number for number, message in enumerate(recorded.messages) if message.life and not message.sequence]
    found = []
    for turn in range(1, count + 1):
        at = turn * len(recorded.messages) // (count + 1)
        while any(at <= birth < at + 5 for birth in births):
            at += 5
        found.append(at)
    assert all(before < after for before, after in pairwise(found))
    return found


@contextlib.contextmanager
def playing(port: int, recorded: Recording, *, replay: bool, wire: Wire = VLLM_NOW, **settings: str) -> Iterator[Play]:
    """Everything runs, partitions are shared as planned, and every engine is heard."""
    with contextlib.ExitStack() as stack:
        fleet = TraceFleet(recorded.header, LOOPBACK, LOOPBACK if replay else None, wire=wire)
        fleet.start()
        stack.callback(fleet.close)
        cluster = stack.enter_context(Cluster(port, fleet.source_flags(), partitions=PARTITIONS, **settings))
        play = Play(recorded, fleet, cluster)
        cluster.wait_settled()
        for number in fleet.engines:
            play.wait_heard(number)
        yield play
