"""What happens in the demo: engines replay a recording, lookups go on, answers are held against the engines' own.

One thing at a time, in `step`, which never blocks for longer than one request: no thread of its own. The facts it
leaves behind are what `screen` draws. Talks to engines by socket and to the service by HTTP.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.cli.client import ServiceClient
    from api.demo.fleet import TraceFleet
    from api.demo.trace import Probe, Trace, TraceMessage, Truth

MESSAGES_PER_S: Final = 40.0
LOSS: Final = 0.01
"""Of the batches, lost on their way: nothing to see but a replay, which is the point."""
ASK_EVERY_S: Final = 0.2
CHECK_EVERY_S: Final = 0.1
LOOK_EVERY_S: Final = 0.4
SETTLE_MAX_S: Final = 30.0
REST_S: Final = 3.0
LOOKUPS_SHOWN: Final = 9

Phase = Literal["playing", "settling", "checking", "resting", "restarting"]


class SourceFacts(msgspec.Struct):
    """What the service says of a source, as far as it is shown."""

    pod: str
    state: str = "new"
    bound: str = "?"
    sequence: int | None = None
    lag_ms: int | None = None
    blocks: dict[str, int] = {}
    generation: str = ""


class _SourceList(msgspec.Struct):
    sources: list[SourceFacts]


class _Entry(msgspec.Struct):
    pod: str
    matched_tokens: int
    reusable_tokens: int
    score: float


class _Answer(msgspec.Struct):
    state: str
    prompt_tokens: int
    pods: list[_Entry]
    took_us: int


@dataclass(frozen=True, slots=True)
class LookupFacts:
    """One lookup. `expected` is what the engines say themselves, a pod, where they were asked at this very moment."""

    prompt_tokens: int
    best_pod: str | None
    matched_tokens: int
    score: float
    state: str
    took_us: int
    got: tuple[int, ...]
    expected: tuple[int, ...] | None
    agrees: bool


@dataclass(slots=True)
class Totals:
    """Since the demo began. `compared` counts pods in answers that were held against the engines' own."""

    messages: int = 0
    lost: int = 0
    lookups: int = 0
    compared: int = 0
    agreeing: int = 0
    unsettled: int = 0
    rounds: int = 1
    took_us: deque[int] = field(default_factory=lambda: deque(maxlen=200))


class Every:
    """Says yes once a period."""

    def __init__(self, period_s: float, now: Callable[[], float]) -> None:
        """Due at once."""
        self._period_s, self._now, self._at = period_s, now, now()

    def due(self) -> bool:
        """Whether the period is over; the next one begins then."""
        if self._now() < self._at:
            return False
        self._at = self._now() + self._period_s
        return True


class Show:
    """The demo's course of events. `now` is a monotonic clock in seconds."""

    def __init__(
        self, trace: Trace, truth: Truth, fleet: TraceFleet, client: ServiceClient, now: Callable[[], float]
    ) -> None:
        """Nothing is published or asked before `step`."""
        self.phase: Phase = "playing"
        self.totals = Totals()
        self.sources: dict[str, SourceFacts] = {}
        self.lookups: deque[LookupFacts] = deque(maxlen=LOOKUPS_SHOWN)
        self.model = next(iter(fleet.identities.values())).model
        self.pods = {number: identity.pod for number, identity in fleet.identities.items()}
        self._fleet, self._client, self._now = fleet, client, now
        self._truth = truth
        self._messages: list[TraceMessage] = list(trace.messages())
        self._probes: dict[int, list[Probe]] = {}
        for probe in truth.probes:
            self._probes.setdefault(probe.n, []).append(probe)
        self._chance = random.Random(7)  # noqa: S311  which prompt is asked next
        self._position = 0
        self._to_check: deque[Probe] = deque()
        self._since = self._publish_at = now()
        self._asking, self._looking = Every(ASK_EVERY_S, now), Every(LOOK_EVERY_S, now)
        self._checking = Every(CHECK_EVERY_S, now)

    @property
    def progress(self) -> float:
        """How much of the recording was published in this round, 0..1."""
        return self._position / len(self._messages)

    @property
    def sent(self) -> dict[str, int]:
        """Number of the last batch that each engine published; -1 before its first."""
        return {self.pods[number]: engine.sequence for number, engine in self._fleet.engines.items()}

    def step(self) -> None:
        """Do what is due now. Raises `CommandFailed` when the service does not answer."""
        match self.phase:
            case "playing":
                self._play()
            case "settling":
                self._settle()
            case "checking":
                self._check()
            case "resting" if self._now() - self._since >= REST_S:
                self._fleet.restart_all()
                self._enter("restarting")
            case "restarting" if all(engine.subscribers for engine in self._fleet.engines.values()):
                self._position = 0
                self.totals.rounds += 1
                self._enter("playing")
            case _:
                pass
        if self._looking.due():
            self._look()
        if self._asking.due():
            self._ask(self._chance.randrange(len(self._truth.prompts)), None)

    def popular_prefix(self, length: int) -> list[int]:
        """The beginning that most prompts share: what to try by hand."""
        heads = Counter(p.tokens[:length] for p in self._truth.prompts if len(p.tokens) > length)
        ((head, _),) = heads.most_common(1)
        return list(head)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since = self._publish_at = self._now()

    def _play(self) -> None:
        while self._now() >= self._publish_at:
            if self._position == len(self._messages):
                self._enter("resting")
                return
            lost = self._chance.random() < LOSS
            self._fleet.publish(self._messages[self._position], lost=lost)
            self._position += 1
            self._publish_at += 1 / MESSAGES_PER_S
            self.totals.messages += 1
            self.totals.lost += lost
            if self._position in self._probes:
                self._to_check.extend(self._probes[self._position])
                self._enter("settling")
                return

    def _settle(self) -> None:
        """The engines pause until the service has applied all they sent: the truth is about this very position."""
        self._look()
        sent = self.sent
        known = {pod: facts.sequence for pod, facts in self.sources.items() if facts.state == "live"}
        if all(known.get(pod) == sequence for pod, sequence in sent.items()):
            self._enter("checking")
        elif self._now() - self._since >= SETTLE_MAX_S:
            self.totals.unsettled += 1
            self._to_check.clear()
            self._enter("playing")

    def _check(self) -> None:
        if not self._to_check:
            self._enter("playing")
        elif self._checking.due():
            probe = self._to_check.popleft()
            self._ask(probe.prompt, probe)

    def _look(self) -> None:
        listed = msgspec.json.decode(self._client.request("GET", "/v1/sources"), type=_SourceList)
        self.sources = {facts.pod: facts for facts in listed.sources}

    def _ask(self, prompt: int, probe: Probe | None) -> None:
        question = {"model": self.model, "token_ids": self._truth.prompts[prompt].tokens}
        answer = msgspec.json.decode(self._client.request("POST", "/v1/lookup", question), type=_Answer)
        entries = {entry.pod: entry for entry in answer.pods}
        got = tuple(entries[pod].reusable_tokens if pod in entries else 0 for pod in self.pods.values())
        chain = tuple(entries[pod].matched_tokens if pod in entries else 0 for pod in self.pods.values())
        best = answer.pods[0] if answer.pods and answer.pods[0].score else None
        agreeing = 0
        if probe is not None and answer.state == "exact":  # a cordon or clear from another terminal is no disagreement
            pairs = zip(zip(got, chain, strict=True), zip(probe.cached, probe.chain, strict=True), strict=True)
            agreeing = sum(ours == theirs for ours, theirs in pairs)
            self.totals.compared += len(got)
            self.totals.agreeing += agreeing
        self.totals.lookups += 1
        self.totals.took_us.append(answer.took_us)
        self.lookups.append(
            LookupFacts(
                prompt_tokens=answer.prompt_tokens,
                best_pod=best.pod if best else None,
                matched_tokens=best.matched_tokens if best else 0,
                score=best.score if best else 0.0,
                state=answer.state,
                took_us=answer.took_us,
                got=got,
                expected=probe.cached if probe is not None and answer.state == "exact" else None,
                agrees=agreeing == len(got),
            )
        )
