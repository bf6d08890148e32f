"""A collecting service on Redis that may die, a replica that only answers, and engines that outlive both."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from api.demo.fleet import TraceFleet
from api.demo.publisher import VLLM_NOW, Wire
from tests.support.core_service import RunningService, standing
from tests.support.redis_servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.demo.trace import Probe
    from tests.support.core_traces import Recording

LOOPBACK: Final = "tcp://127.0.0.1:0"


class Service:
    """The command as a process on a store, again and again. A context manager: nothing is left afterwards."""

    def __init__(self, redis_url: str, sources: list[str] | None = None, **settings: str) -> None:
        """`settings`: as in the environment, `section__key`. Nothing runs before `start`."""
        self._sources = sources or []
        self._settings = {"redis__url": redis_url, **settings}
        self._running: RunningService | None = None

    @property
    def now(self) -> RunningService:
        """The process that runs."""
        assert self._running is not None, "it does not run"
        return self._running

    def start(self) -> None:
        """Returns once it listens; it may still load."""
        assert self._running is None, "it runs"
        self._running = RunningService(self._sources, **self._settings)

    def kill(self) -> None:
        """SIGKILL."""
        running, self._running = self.now, None
        running.kill()

    def stop(self) -> None:
        """SIGTERM; it must end in order and have nothing to complain of."""
        running, self._running = self.now, None
        running.__exit__()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self.stop()


@dataclass(slots=True)
class Stage:
    """Recorded engines, the service that collects from them, and the replica that is asked."""

    recorded: Recording
    fleet: TraceFleet
    collecting: Service
    asked: Service
    position: int = 0
    """Messages published."""
    heard: dict[str, int] = field(default_factory=dict)
    """By pod, the newest number that was published to the service that runs: no more is known to arrive."""
    old_generations: dict[str, str] = field(default_factory=dict)
    """By pod, the generation of the engine's life before."""

    @property
    def pods(self) -> list[str]:
        """By the recording's numbers."""
        return [self.fleet.identities[pod.pod].pod for pod in self.recorded.header.pods]

    def play(self, until: int) -> None:
        """Publish up to that message, to whoever is subscribed; a new life begins once the service is, if it runs."""
        for message in self.recorded.messages[self.position : until]:
            pod, engine = self.pods[message.pod], self.fleet.engines[message.pod]
            listens = engine.subscribers > 0
            if message.sequence == 0 and message.life:
                self.old_generations[pod] = self.asked.now.sources()[pod]["generation"]
                self.fleet.enter_life(message)
                if listens:
                    engine.wait_subscribers()
            self.fleet.publish(message)
            if listens:
                self.heard[pod] = message.sequence
        self.position = until

    def kill(self) -> None:
        """SIGKILL the collecting service, whatever it is at; from here on nobody listens."""
        self.collecting.kill()
        self.heard.clear()
        engines = self.fleet.engines.values()
        wait_for(lambda: all(engine.subscribers == 0 for engine in engines), "the connections to break")

    def start_again(self) -> None:
        """Until it has subscribed to all engines."""
        self.collecting.start()
        self.wait_subscribed()

    def wait_subscribed(self) -> None:
        """From here on every engine is heard."""
        engines = self.fleet.engines.values()
        self.collecting.now.wait_for(lambda: all(engine.subscribers > 0 for engine in engines), "the subscriptions")

    def wait_applied(self, probe: Probe, *, healed: bool = True) -> None:
        """The replica names the sequences of that probe, in the lives they belong to, and nothing is under way.

        Not `healed`: what was published while nobody listened is not to be had again, so no more than what was heard is
        waited for.
        """
        wanted = {
            pod: sequence
            for pod, (_, sequence) in zip(self.pods, probe.at, strict=True)
            if healed or self.heard.get(pod) == sequence
        }

        def applied() -> bool:
            sources = self.asked.now.sources()
            return all(
                pod in sources
                and sources[pod]["sequence"] == sequence
                and (not healed or sources[pod]["state"] == "live")
                and sources[pod]["generation"] != self.old_generations.get(pod)
                for pod, sequence in wanted.items()
            )

        self.asked.now.wait_for(applied, f"sequences {wanted}")

    def generations(self) -> dict[str, str]:
        """By pod, as the replica names them."""
        sources = self.asked.now.sources()
        return {pod: sources[pod]["generation"] for pod in self.pods}

    def compare(self, probe: Probe) -> Comparison:
        """One answer of the replica against the engines' own."""
        answer = self.asked.now.ask(self.recorded.truth.prompts[probe.prompt].tokens, model="tiny-llama")
        found = Comparison(answer.state)
        for index, (pod, (_, sequence)) in enumerate(zip(self.pods, probe.at, strict=True)):
            entry = answer[pod]
            got, truth = (entry.matched_tokens, entry.reusable_tokens), (probe.chain[index], probe.cached[index])
            certain = standing(entry) == ("live", "exact", sequence)
            if got != truth:
                found.wrong.append(f"n={probe.n} pod={pod} prompt={probe.prompt}: got {got}, engine {truth}")
                if certain:
                    found.wrong_exact.append(found.wrong[-1])
            if not certain:
                found.marked.append(f"n={probe.n} pod={pod}: {standing(entry)}, the engine is at {sequence}")
        return found


@dataclass(slots=True)
class Comparison:
    """What one answer says otherwise than the engines: `wrong_exact` are those that called themselves certain."""

    state: str
    wrong: list[str] = field(default_factory=list)
    wrong_exact: list[str] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    """Entries that are not live and exact at the engine's own sequence, right or wrong."""

    @property
    def faults(self) -> list[str]:
        """All that must not be where nothing is missing."""
        return [*self.wrong, *self.marked, *([] if self.state == "exact" else [f"the answer is {self.state}"])]


@contextmanager
def staged(
    redis_url: str, recorded: Recording, *, replay: bool, wire: Wire = VLLM_NOW, **settings: str
) -> Iterator[Stage]:
    """Everything runs, and every engine is heard. `settings` are the collecting service's."""
    with ExitStack() as stack:
        fleet = TraceFleet(recorded.header, LOOPBACK, LOOPBACK if replay else None, wire=wire)
        fleet.start()
        stack.callback(fleet.close)
        collecting = stack.enter_context(Service(redis_url, fleet.source_flags(), **settings))
        asked = stack.enter_context(Service(redis_url, server__roles="lookup"))
        stage = Stage(recorded, fleet, collecting, asked)
        assert fleet.wait_subscribers(threading.Event())
        yield stage
