"""A recording played to a service, which is asked on the way: every entry of every answer is judged.

Each entry is compared at the message that it names. Which process of an engine it speaks of, its generation tells:
generations only grow, and the newest one is noted before an engine begins anew. Does I/O.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, Self

from api.demo.fleet import TraceFleet
from api.demo.publisher import ReplayFault
from loadtest.trust.asking import WAIT_MAX_S, Answer, Asker
from loadtest.trust.caches import Moment
from loadtest.trust.judging import NOTICED_MAX_S, PROBE_S, Figures, Told, Truth
from loadtest.trust.unsaid import Rest, Rests, Unsaid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.demo.trace import TraceMessage
    from loadtest.trust.recordings import Place, Recorded
    from loadtest.trust.unsaid import Words

LOOPBACK: Final = "tcp://127.0.0.1:0"
LOOK_S: Final = 0.005


class Play:
    """Engines of one recording. A context manager: nothing listens any more afterwards.

    `messages`: what is sent in place of the recorded ones, whose `words` are not true; `lost`: places of messages that
    no subscriber gets; `probe_s`: how often the replay of an idle engine is asked, whose answer is to be known a second
    later; `replay_loses`: what got lost is lost in a replay once more; `listeners`: how many have to listen to an
    engine; `fed`: what engines hold is reported back for each settled answer.
    """

    def __init__(
        self,
        recorded: Recorded,
        *,
        replay: bool,
        messages: Sequence[TraceMessage] | None = None,
        words: Words | None = None,
        probe_s: float = PROBE_S,
        lost: frozenset[int] = frozenset(),
        listeners: int = 1,
        fed: bool = False,
        replay_loses: bool = False,
    ) -> None:
        self.recorded = recorded
        self.figures = Figures()
        self.fleet = TraceFleet(recorded.header, LOOPBACK, LOOPBACK if replay else None)
        self.pods = [self.fleet.identities[pod.pod].pod for pod in recorded.header.pods]
        self.replay = replay
        self.lost = lost
        self.position = 0
        self.published = {pod.pod: Moment(0, -1) for pod in recorded.header.pods}
        self.listeners = listeners
        self._fed, self._replay_loses = fed, replay_loses
        self._messages = recorded.messages if messages is None else messages
        self._words = words
        self._known_within_s = probe_s + NOTICED_MAX_S if replay and not replay_loses else math.inf
        self._delivered = dict(self.published)
        self._lives: list[list[tuple[int, int]]] = [[(0, 0)] for _ in self.pods]
        """By engine: the generation after which each of its processes began, as far as generations tell."""
        self._tail_lost_at: dict[int, float] = {}
        self._rests_since: dict[int, float] = {}
        """By engine whose last message is lost: since when answers have been certain without it."""
        self._rested_s: dict[int, float] = {}
        """And how long at most they were."""
        self._ailing_since: float | None = None
        self._unheard = False
        self._unsaid, self._rests = Unsaid(), Rests()
        self._asker: Asker | None = None

    def __enter__(self) -> Self:
        self.fleet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures.rested += self._rests.lasted
        self.figures.unending += self._rests.unending
        if self._asker is not None:
            self._asker.close()
        self.fleet.close()

    def ask_at(self, url: str) -> None:
        """Ask this service from now on."""
        if self._asker is not None:
            self._asker.close()
        self._asker = Asker(url, self.fleet.identities[0].model)

    def wait_heard(self) -> None:
        """Until every engine is listened to."""
        for engine in self.fleet.engines.values():
            engine.wait_subscribers(self.listeners, WAIT_MAX_S)

    @property
    def asker(self) -> Asker:
        """Of the service that is asked."""
        assert self._asker is not None
        return self._asker

    # -- what engines do -----------------------------------------------------------------------------------------------

    def publish(self, until: int) -> None:
        """The messages up to that place. A process that ends is killed; the next one is heard before it speaks."""
        for number in range(self.position, until):
            message = self._messages[number]
            is_another = message.life != self.published[message.pod].life
            if is_another:
                self._begin_anew(message)
            self._publish(message, lost=number in self.lost)
            if is_another:
                self.settle()
        self.position = max(self.position, until)

    def _publish(self, message: TraceMessage, *, lost: bool) -> None:
        if lost and self._replay_loses:
            fault = ReplayFault(omit=frozenset({message.sequence}))
            self.fleet.engines[message.pod].fault_next_replay(fault)
        self.fleet.publish(message, lost=lost)
        self._unsaid.publishes(message.pod)
        moment = self.published[message.pod] = Moment(message.life, message.sequence)
        if lost:
            self._unsaid.does(message.pod, moment, time.monotonic())
            self._lose_tail(message.pod)
            self.ails()
        else:
            self._unsaid.speaks(message.pod)
            self._delivered[message.pod] = moment
            if not self._unheard:
                self._forget_tail(message.pod)

    def _forget_tail(self, pod: int) -> None:
        """What is lost is not the last any more."""
        for each in (self._tail_lost_at, self._rests_since, self._rested_s):
            each.pop(pod, None)

    def _lose_tail(self, pod: int) -> None:
        """Its newest message is not heard: answers that are certain rest on what was before, from now on."""
        now = time.monotonic()
        if self._tail_lost_at.setdefault(pod, now) == now:
            self._rests_since[pod] = now

    def _begin_anew(self, message: TraceMessage) -> None:
        self.settle()
        newest = int(self.asker.sources()[self.pods[message.pod]]["generation"], 16)
        engine = self.fleet.engines[message.pod]
        killed_at = time.monotonic()
        engine.stop(linger_ms=0)
        self.ails()
        self.fleet.enter_life(message)
        self._lives[message.pod].append((newest, message.life))
        begun = self.published[message.pod] = self._delivered[message.pod] = Moment(message.life, -1)
        self._unsaid.speaks(message.pod)
        self._unsaid.does(message.pod, begun, killed_at)
        self._forget_tail(message.pod)
        engine.wait_subscribers(self.listeners, WAIT_MAX_S)
        told = self._telling_prompt(message.pod)
        self.ask([told], settled=False)
        if self.replay:  # who is there is asked at once
            self.until(lambda: self._names_life(self.ask([told], settled=False), message), "the new process known")
            self.figures.noticed_s.append(time.monotonic() - killed_at)

    def _telling_prompt(self, pod: int) -> int:
        """A prompt of which the engine held something just before it began anew."""
        last = Moment(self.published[pod].life - 1, 1 << 62)
        held = self.recorded.caches.held
        return next((i for i, tokens in enumerate(self.recorded.prompts) if held(pod, last, tokens)), 0)

    def _names_life(self, answer: Answer, message: TraceMessage) -> bool:
        return self._named(answer)[message.pod].life == message.life

    def begin_to_listen(self) -> None:
        """Another process of the service is asked: its generations are of processes that run now."""
        self._lives = [[(0, self.published[pod].life)] for pod in self.published]

    def reset_in_silence(self, pod: int) -> None:
        """The engine empties its cache, and says nothing before its next message."""
        self._unsaid.empties(pod, time.monotonic())

    def go_unheard(self) -> None:
        """From now on nobody hears the engines who could tell the one that is asked; until all is well again."""
        self._unheard = True
        for pod in self.published:
            self._lose_tail(pod)
        self.ails()

    def hear_again(self) -> None:
        """Another replica has taken over; what was lost meanwhile stays lost."""
        self._unheard = False
        for pod in list(self._tail_lost_at):
            self._forget_tail(pod)

    def ails(self) -> None:
        """Something has gone wrong just now: from here on it is counted until answers are exact again."""
        if self._ailing_since is None:
            self._ailing_since = time.monotonic()

    # -- what answers say ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until all that was not lost is applied. Raises AssertionError where that does not come."""
        self.until(lambda: self._has_delivered(self.ask([0], settled=False)), f"{self._delivered} applied")

    def _has_delivered(self, answer: Answer) -> bool:
        named = self._named(answer)
        return all(each.sequence < 0 or named[pod] >= each for pod, each in self._delivered.items())

    def heal(self, prompt: int = 0) -> None:
        """Until an answer is exact, and names each engine's last message. Notes how long all that was wrong lasted."""
        self.until(lambda: self._is_whole(self.ask([prompt], settled=False)), "an exact answer")
        now = time.monotonic()
        for pod in list(self._tail_lost_at):
            self.figures.noticed_s.append(self._rested_s.get(pod, 0.0))
            self._forget_tail(pod)
        self._unheard = False
        self._delivered = dict(self.published)
        if self._ailing_since is not None:
            self.figures.healed_s.append(now - self._ailing_since)
            self._ailing_since = None

    def _is_whole(self, answer: Answer) -> bool:
        named = self._named(answer)
        return answer.state == "exact" and all(
            each.sequence < 0 or named[pod] == each for pod, each in self.published.items()
        )

    def ask_place(self, place: Place) -> None:
        """Its questions, at a settled position."""
        self.ask(place.prompts, settled=True)

    def ask(self, prompts: Sequence[int], *, settled: bool) -> Answer:
        """Ask and judge; returns the last answer."""
        return [self._ask_one(prompt, settled=settled) for prompt in prompts][-1]

    def _ask_one(self, prompt: int, *, settled: bool) -> Answer:
        tokens = self.recorded.prompts[prompt]
        asked_at = time.monotonic()
        answer = self.asker.ask(tokens)
        self.figures.note_answer(answer.state, settled=settled)
        reuse: list[dict[str, object]] = []
        for told in answer.pods:
            pod = self.pods.index(told.pod)
            self._note_reliance(pod, told)
            truth = self._judge(pod, told, prompt, asked_at, settled=settled)
            reuse.append({"request_id": answer.request_id, "pod": told.pod, "cached_tokens": truth.now})
        if self._fed and settled:
            self.asker.report_reuse(reuse)
        return answer

    def _note_reliance(self, pod: int, told: Told) -> None:
        if pod not in self._tail_lost_at:
            return
        now = time.monotonic()
        if not told.certain:
            self._rests_since.pop(pod, None)
        elif self._moment(pod, told) < self.published[pod]:
            began = self._rests_since.setdefault(pod, now)
            self._rested_s[pod] = max(self._rested_s.get(pod, 0.0), now - began)

    def _judge(self, pod: int, told: Told, prompt: int, now: float, *, settled: bool) -> Truth:
        named, published = self._moment(pod, told), self.published[pod]
        since = self._unknown_since(pod, named)
        truth = self._truth(pod, named, prompt, None if since is None else now - since)
        where = f"{self.recorded.name} n={self.position} prompt={prompt}"
        if self.figures.note(told, truth, settled=settled, where=where):
            rest = Rest(now, None, published.sequence) if since is None else Rest(since, named, published.sequence)
            self._rests.goes_on(pod, rest)
        else:
            self._rests.hears(pod, named, published, certain=told.certain, now=now)
        return truth

    def _unknown_since(self, pod: int, named: Moment) -> float | None:
        """Since when who knows it up to there could not know better, though its words are true."""
        if self._unheard:  # the replica that owned it knew
            return None
        since = self._unsaid.emptied_since(pod, named, self.published[pod])
        return self._unsaid.lost_since(pod, named, self._delivered[pod]) if since is None else since

    def _truth(self, pod: int, named: Moment, prompt: int, unknown_s: float | None) -> Truth:
        held, tokens = self.recorded.caches.held, self.recorded.prompts[prompt]
        is_empty = self._unsaid.is_empty(pod)
        now, then = 0 if is_empty else held(pod, self.published[pod], tokens), held(pod, named, tokens)
        if unknown_s is None:
            said = self._words.unknown(pod, named, tokens) if self._words else None
            return Truth(now, then, None if said == then else said)
        is_due = not is_empty and unknown_s > self._known_within_s
        return Truth.unheard(now, then, is_due=is_due)

    def _named(self, answer: Answer) -> dict[int, Moment]:
        return {pod: self._moment(pod, told) for told in answer.pods for pod in (self.pods.index(told.pod),)}

    def _moment(self, pod: int, told: Told) -> Moment:
        generation = int(told.generation, 16)
        life = max(life for after, life in self._lives[pod] if generation > after)
        return Moment(life, -1 if told.sequence is None else told.sequence)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Look again and again. Raises AssertionError by its name where it does not come."""
        ends_at = time.monotonic() + WAIT_MAX_S
        while not holds():
            assert time.monotonic() < ends_at, f"{self.recorded.name} n={self.position}: waited for {what}"
            time.sleep(LOOK_S)
