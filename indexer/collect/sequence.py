"""Is this batch next, late, a gap, or a new life of the engine? One tracker per publisher. Pure: no I/O, no clock.

An engine numbers its batches from 0 per process and puts no epoch on the wire, so all that is known of
its identity is (sequence, stamp) pairs: the same pair again is the same message again, another stamp under an old
number is another process. The tracker judges; its owner decides what to do and says so with `advance` or `forget`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final, TypeAlias

MEMORY_MIN_BATCHES: Final = 1_024
"""Stamps kept per source in steady state: 8 bytes each."""
MEMORY_MAX_BATCHES: Final = 65_536
"""Stamps kept at most, between two calls of `trim`: a replayed run stays known while live messages that overlap it may
come. Older numbers are judged as unknown, hence as a restart."""


@dataclass(frozen=True, slots=True)
class Next:
    """The batch that had to come."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A batch that was already applied: same number, same stamp."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Batches `first..last` (inclusive) are missing before this one."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restart:
    """An old number under another stamp (or one no longer remembered): the engine lives a new life."""


@dataclass(frozen=True, slots=True)
class FirstAbove:
    """Nothing is known of this life yet, and its first batch seen is `first` > 0: history is missing before it."""

    first: int


Verdict: TypeAlias = Next | Duplicate | Gap | Restart | FirstAbove

NEXT: Final = Next()
DUPLICATE: Final = Duplicate()
RESTART: Final = Restart()


class SequenceTracker:
    """Where one publisher's stream stands.

    `expected` is the number that must come next: None while nothing is known of this life, 0 once its history is known
    to be empty. `last` and `last_stamp` identify the newest applied batch: the probe after a reconnect asks for it.
    """

    __slots__ = ("_stamps", "expected", "last", "last_stamp")

    def __init__(self) -> None:
        self.expected: int | None = None
        self.last: int | None = None
        self.last_stamp = 0.0
        self._stamps = array("d")  # of the unbroken run that ends at `last`, oldest first

    @property
    def asked_from(self) -> int:
        """Where a question begins: with the last applied batch, so that who answers shows it; else where all begins."""
        return (self.expected or 0) if self.last is None else self.last

    def judge(self, sequence: int, stamp: float) -> Verdict:
        """What a batch of that number and stamp means here. Changes nothing."""
        expected = self.expected
        if expected is None:
            return NEXT if sequence == 0 else FirstAbove(sequence)
        if sequence == expected:
            return NEXT
        if sequence > expected:
            return Gap(expected, sequence - 1)
        age = expected - sequence
        known = age <= len(self._stamps) and self._stamps[-age] == stamp
        return DUPLICATE if known else RESTART

    def advance(self, sequence: int, stamp: float) -> None:
        """That batch is applied (or on its way in order): the next one has the number after it."""
        if sequence != self.expected:
            self.trim(0)  # memory is indexed by distance from the end, so it holds unbroken runs only
        elif len(self._stamps) >= MEMORY_MAX_BATCHES:
            self.trim(MEMORY_MAX_BATCHES // 2)
        self._stamps.append(stamp)
        self.expected = sequence + 1
        self.last = sequence
        self.last_stamp = stamp

    def forget(self) -> None:
        """A new life begins: nothing is known of it."""
        self.expected = None
        self.last = None
        self._stamps = array("d")

    def expect_first(self) -> None:
        """This life's history is known to be empty: its first batch is 0, and anything above it leaves a gap."""
        self.expected = 0

    def resume(self, sequence: int, stamp: float | None) -> None:
        """Go on behind that batch, which a process before this one applied; -1: the history is known to be empty.

        Without its stamp it cannot be told from another engine's: `last` stays None.
        """
        if sequence >= 0 and stamp is not None:
            self.advance(sequence, stamp)
        else:
            self.expected = sequence + 1

    def trim(self, keep: int = MEMORY_MIN_BATCHES) -> None:
        """Forget all stamps but the newest `keep`."""
        surplus = len(self._stamps) - keep
        if surplus > 0:
            del self._stamps[:surplus]


def after_absence(verdict: Verdict, away_s: float, min_engine_restart_s: float) -> Verdict:
    """The verdict on a batch that comes after a reconnect that no replay could examine (promise P6).

    A jump forward after an absence long enough for an engine to start anew is taken for a restart. All other verdicts
    stand: a number that simply goes on is no sign of anything.
    """
    if isinstance(verdict, Gap) and away_s >= min_engine_restart_s:
        return RESTART
    return verdict
