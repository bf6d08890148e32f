"""One recovery: a series of conversations with a replay endpoint that fetch what one source lacks. Pure.

What makes replay hard: neither truncation nor a restart is signalled; up to vLLM 0.32 an engine loses
replies in the middle or at the end, silently, and still sends the end marker; the marker itself may be lost. So every
reply is held against the tracker, a hole is asked for again, and what cannot be had is named, never skipped.

And who answers? A connection of messages that seems to stand is no proof that the process at its other end lives:
behind a cut another may have taken its place, and its replay socket answers first. So every conversation asks for the
last applied batch, too, where there is one: number and stamp tell whether what follows continues it (promise P4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from indexer.collect.commands import ReplayEnd
from indexer.collect.options import CollectOptions
from indexer.collect.sequence import Gap, Next, SequenceTracker, Verdict

ENGINE_REPLAY_HWM: Final = 1_000
"""Replies that an engine's socket queues before it drops (ZMQ's default, vLLM up to 0.32). An end marker after fewer
proves that all before it came; after more, only another question does."""


class Purpose(Enum):
    """Why the endpoint is asked."""

    JOIN = auto()
    """The whole history of a life of which nothing is known."""
    HEAL = auto()
    """What is missing after the last applied batch, of who was seen to have that one, or where there is none."""
    IDENTIFY = auto()
    """From the last applied batch on, after a reconnect: does the same process answer?"""
    VERIFY = auto()
    """From the last applied batch on, while the connection seems to stand: does the endpoint have the same?"""
    IDLE = auto()
    """The same while nothing arrives: what comes after that batch is a lost tail, and nothing the proof of none."""


class Answer(Enum):
    """What one reply means."""

    TAKE = auto()
    """Apply it."""
    TAKE_UNPROVEN = auto()
    """Apply it; it is the next number, and nothing shows that it is of the process that was known."""
    SKIP = auto()
    """Older than what was asked for."""
    SAME_PROCESS = auto()
    """The endpoint has the last applied batch as it is known: what follows continues it."""
    OTHER_PROCESS = auto()
    """The engine has another batch in that place, or none."""
    DIFFERS = auto()
    """It has another in its place: it speaks for another engine, or for another process of this one."""
    HOLE = auto()
    """Replies before this one got lost: ask again."""
    NOTHING_OLDER = auto()
    """The engine's buffer starts no earlier than the live messages held back: those are all there is."""


@dataclass(frozen=True, slots=True)
class TakeAfterLoss:
    """Apply it; batches `first..last` before it are no longer in the engine's buffer."""

    first: int
    last: int


class Outcome(Enum):
    """What follows the end of a conversation."""

    DONE = auto()
    AGAIN = auto()
    OTHER_PROCESS = auto()
    LACKS_LAST = auto()
    """It has not even the last applied batch."""
    GIVE_UP = auto()


@dataclass(slots=True)
class Recovery:
    """State of one recovery. `asked` is the first number wanted from the running conversation."""

    purpose: Purpose
    asked: int
    started_at: float
    first: int = field(init=False)
    """Where it began to ask."""
    conversations: int = 1
    replies: int = 0
    """In the running conversation."""
    taken: int = 0
    """Of those, applied."""
    anchored: bool = False
    """The running conversation gave what was wanted first: what is missing behind it got lost on the way to us."""
    incomplete: bool = False
    """Something asked for was no longer there."""
    hole_at: int | None = None
    """Where the conversation before this one had its hole: in the same place again, it is one in the buffer."""

    useless_bytes: int = 0
    """Of replies in a row that brought nothing, and since when they come."""
    useless_since: float = 0.0

    def __post_init__(self) -> None:
        """Later `asked` moves on."""
        self.first = self.asked

    def skipped(self, size_bytes: int, now: float) -> None:
        """A reply that brought nothing."""
        if not self.useless_bytes:
            self.useless_since = now
        self.useless_bytes += size_bytes

    def is_useless(self, now: float, options: CollectOptions) -> bool:
        """Whether a conversation that does answer brings nothing: the same replies again and again, say."""
        for_long = self.useless_bytes > 0 and now - self.useless_since > options.replay_timeout_s
        return for_long or self.useless_bytes > options.replay_useless_max_bytes

    def on_reply(
        self, sequence: int, stamp: float, tracker: SequenceTracker, held_first: int | None
    ) -> Answer | TakeAfterLoss:
        """Judge the next reply. `held_first` is the number of the oldest live message held back, if any is."""
        self.replies += 1
        if self.purpose is Purpose.IDENTIFY:
            return self._on_last(same=(sequence, stamp) == (tracker.last, tracker.last_stamp))
        if self.purpose in {Purpose.VERIFY, Purpose.IDLE} and sequence == tracker.last:
            return self._on_last(same=stamp == tracker.last_stamp)
        if tracker.expected is not None and sequence < tracker.expected:
            return Answer.SKIP
        verdict = tracker.judge(sequence, stamp)
        unproven = self.purpose is Purpose.VERIFY  # its buffer does not reach back that far
        if unproven:
            self.purpose = Purpose.HEAL
        if isinstance(verdict, Next):
            self._take()
            return Answer.TAKE_UNPROVEN if unproven else Answer.TAKE
        if self.anchored and self.hole_at != tracker.expected:
            self.hole_at = tracker.expected
            return Answer.HOLE
        return self._beginning_is_gone(verdict, sequence, held_first)

    def _on_last(self, *, same: bool) -> Answer:
        if not same:
            return Answer.OTHER_PROCESS if self.purpose is Purpose.IDENTIFY else Answer.DIFFERS
        if self.purpose is not Purpose.IDLE:
            self.purpose = Purpose.HEAL
        self.anchored = True
        return Answer.SAME_PROCESS

    def _beginning_is_gone(self, verdict: Verdict, sequence: int, held_first: int | None) -> Answer | TakeAfterLoss:
        """The first usable reply is above what was asked for: the engine has nothing older in its buffer."""
        self.incomplete = True
        if held_first is not None and held_first <= sequence:
            return Answer.NOTHING_OLDER
        self._take()
        if isinstance(verdict, Gap):
            return TakeAfterLoss(verdict.first, verdict.last)
        return Answer.TAKE  # nothing of this life was known: its history is truncated at join, which is no gap

    def _take(self) -> None:
        self.taken += 1
        self.anchored = True

    def reached(self, tracker: SequenceTracker, held_first: int | None) -> bool:
        """Whether the live messages held back go on from here: no need to wait for the end marker."""
        unanswered = self.purpose in {Purpose.IDENTIFY, Purpose.VERIFY}
        if held_first is None or tracker.expected is None or unanswered:
            return False
        return held_first <= tracker.expected

    def on_end(self, end: ReplayEnd, tracker: SequenceTracker, held_first: int | None) -> Outcome:
        """Judge the end of a conversation."""
        if end is not ReplayEnd.COMPLETE:
            return Outcome.AGAIN if self.taken else Outcome.GIVE_UP
        if self.purpose is Purpose.IDENTIFY:
            return Outcome.OTHER_PROCESS
        if self.purpose in {Purpose.VERIFY, Purpose.IDLE} and not self.anchored and tracker.last is not None:
            return Outcome.LACKS_LAST
        tail_lost = held_first is not None and tracker.expected is not None and held_first > tracker.expected
        # Asked twice, and nothing behind the last batch: there is no more.
        brings_more = self.taken > 0 or self.conversations == 1
        if self.anchored and ((tail_lost and brings_more) or self.replies >= ENGINE_REPLAY_HWM):
            return Outcome.AGAIN
        self.incomplete = self.incomplete or tail_lost
        return Outcome.DONE

    def ask_again(self, tracker: SequenceTracker) -> None:
        """A new conversation begins at the last batch that was applied, or where all begins."""
        self.purpose = Purpose.HEAL if tracker.last is None else Purpose.VERIFY
        self.asked = tracker.asked_from
        self.conversations += 1
        self.replies = 0
        self.taken = 0
        self.useless_bytes = 0
        self.anchored = False
