"""What happens in the demo: engines replay a recording, lookups go on, answers are held against the engines' own.

One thing at a time, in `step`, which never blocks for longer than one request: no thread of its own. The facts it
leaves behind are what `screen` draws. Talks to engines by socket and to the service by HTTP.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from api.demo.facts import Every, LookupFacts, SourceFacts, SourceList, Totals
from api.demo.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.demo.asked import Asked
    from api.demo.fleet import TraceFleet
    from api.demo.outage import Killable
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
KILL_AFTER: Final = 20
"""Batches after every third position at which answers are checked the service is killed, where there is a store."""
AWAY_S: Final = 1.5
"""So long nobody starts it again: longer than it takes to see."""

CHECK_MAX_MS: Final = 2_000
"""So long an answer that is held against the engines' own may wait for what they published last."""

Phase = Literal["waiting", "playing", "settling", "checking", "resting", "restarting", "killed", "starting"]


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


class Show:
    """The demo's course of events. `now` is a monotonic clock in seconds."""

    def __init__(
        self,
        trace: Trace,
        truth: Truth,
        fleet: TraceFleet,
        asked: Asked,
        now: Callable[[], float],
        *,
        killable: Killable | None = None,
    ) -> None:
        """Nothing is published or asked before `step`. With `killable` it is killed on the way and started again."""
        self.phase: Phase = "waiting"
        self.totals = Totals()
        self.sources: dict[str, SourceFacts] = {}
        """As one of those says that are asked."""
        self.answers: Counter[str] = Counter()
        """By the address of who answered."""
        self.lookups: deque[LookupFacts] = deque(maxlen=LOOKUPS_SHOWN)
        self.model = next(iter(fleet.identities.values())).model
        self.pods = {number: identity.pod for number, identity in fleet.identities.items()}
        self._fleet, self._asked, self._now = fleet, asked, now
        self._seen: list[dict[str, SourceFacts]] = []
        can_replay = all(engine.replay_endpoint is not None for engine in fleet.engines.values())
        self._loss = LOSS if can_replay else 0.0
        self._truth = truth
        self._messages: list[TraceMessage] = list(trace.messages())
        self._probes: dict[int, list[Probe]] = {}
        for probe in truth.probes:
            self._probes.setdefault(probe.n, []).append(probe)
        self._chance = random.Random(7)  # noqa: S311  which prompt is asked next
        self._position = 0
        self._killable = killable
        places = sorted(self._probes)[::3] if killable is not None else []
        self._kill_at = {place + KILL_AFTER for place in places if place + KILL_AFTER < len(self._messages)}
        self.outages: list[Outage] = []
        self.said: list[str] = []
        """What happened to the service, a sentence each."""
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

    @property
    def all_live(self) -> bool:
        """Whether all that can be asked said so of every engine when they were asked last."""
        pods = self.pods.values()
        return bool(self._seen) and all(
            pod in seen and seen[pod].state == "live" for seen in self._seen for pod in pods
        )

    @property
    def away(self) -> bool:
        """Whether the service is not there, as we know since we killed it."""
        return self.phase in {"killed", "starting"}

    @property
    def is_listened(self) -> bool:
        """Whether as many subscribe to each engine as should."""
        return all(engine.subscribers >= self._asked.listeners for engine in self._fleet.engines.values())

    @property
    def all_known(self) -> bool:
        """Whether all of them know every engine's present process: what was seen is nothing of the one before."""
        sent = self.sent
        return bool(self._seen) and all(
            pod in seen and 0 <= seen[pod].applied <= at for seen in self._seen for pod, at in sent.items()
        )

    def step(self) -> None:
        """Do what is due now. Raises `CommandFailed` when the service does not answer."""
        if self.away:
            self._play_on()
            return
        self._advance()
        if self._looking.due() and not self.away:
            self._look()
        if self._asking.due() and not self.away:
            self._ask(self._chance.randrange(len(self._truth.prompts)), None)

    def _advance(self) -> None:
        match self.phase:
            case "playing":
                self._play()
            case "settling":
                self._settle()
            case "checking":
                self._check()
            case "waiting" if self._may_play():
                self._enter("playing")
            case "resting" if self._now() - self._since >= REST_S and self._asked.is_calm():
                self._fleet.restart_all()
                self._enter("restarting")
            case "restarting" if self._may_play():
                self._position = 0
                self.totals.rounds += 1
                self._enter("playing")
            case _:
                pass

    def _may_play(self) -> bool:
        return self.is_listened and self._asked.is_calm()

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
            lost = self._chance.random() < self._loss
            self._publish(lost=lost)
            if self._position in self._kill_at:
                self._kill()
                return
            if self._position in self._probes:
                self._to_check.extend(self._probes[self._position])
                self._enter("settling")
                return

    def _publish(self, *, lost: bool = False) -> None:
        self._fleet.publish(self._messages[self._position], lost=lost)
        self._position += 1
        self._publish_at += 1 / MESSAGES_PER_S
        self.totals.messages += 1
        self.totals.lost += lost

    def _kill(self) -> None:
        """What it knew just before is what must be there again."""
        assert self._killable is not None  # noqa: S101  else there is no position to kill it at
        self._look()
        self.outages.append(Outage.begin(self.sources, self._now()))
        self.said.append(self.outages[-1].said_killed())
        self._killable.kill()
        self.phase = "killed"

    def _play_on(self) -> None:
        """The engines do not wait for the service; only where answers are to be checked do they."""
        outage, killable = self.outages[-1], self._killable
        assert killable is not None  # noqa: S101  as above
        while self._now() >= self._publish_at and self._position + 1 < len(self._messages):
            if self._position + 1 in self._probes:
                self._publish_at = self._now()
                break
            self._publish()
            outage.missed += 1
        if self.phase == "killed" and self._now() - outage.killed_at >= AWAY_S:
            killable.start()
            self.phase = "starting"
        elif self.phase == "starting" and killable.listens():
            outage.away_s = self._now() - outage.killed_at
            self.said.append(outage.said_back())
            self.phase = "playing"

    def _settle(self) -> None:
        """The engines pause until all that are asked have applied all they sent: the truth is about this position."""
        self._look()
        sent = self.sent
        there = all(pod in seen and seen[pod].applied == at for seen in self._seen for pod, at in sent.items())
        if there and self.all_live:
            self._judge_outage()
            self._enter("checking")
        elif self._now() - self._since >= SETTLE_MAX_S:
            self.totals.unsettled += 1
            self._to_check.clear()
            self._enter("playing")

    def _judge_outage(self) -> None:
        if self.outages and self.outages[-1].kept is None:
            self.outages[-1].judge(self.sources)
            self.said.append(self.outages[-1].said_judged(self.sources))

    def _check(self) -> None:
        if not self._to_check:
            self._enter("playing")
        elif self._checking.due():
            probe = self._to_check.popleft()
            self._ask(probe.prompt, probe)

    def _look(self) -> None:
        self._seen = []
        for client in self._asked.clients():
            listed = msgspec.json.decode(client.request("GET", "/v1/sources"), type=SourceList)
            self._seen.append({facts.pod: facts for facts in listed.sources})
        self.sources = self._seen[0]

    def _ask(self, prompt: int, probe: Probe | None) -> None:
        question: dict[str, object] = {"model": self.model, "token_ids": self._truth.prompts[prompt].tokens}
        if probe is not None:
            question |= {"min_sequence": self.sent, "timeout_ms": CHECK_MAX_MS}
        clients = self._asked.clients()
        client = clients[self.totals.lookups % len(clients)]
        answer = msgspec.json.decode(client.request("POST", "/v1/lookup", question), type=_Answer)
        self.answers[client.url] += 1
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
