"""Which replicas there are, from what the store tells of their beats. A pure state machine; time is an argument.

Each replica beats: it tells the store of itself, and is told in the same answer what all others told, and how long ago
by the server's clock. Who is silent for a time-out is dead. Two things look like death and are not; after each, who was
live before stays live for one time-out more:

- The store was away, emptied, or restored: all beats in it are old, or missing, and nobody could help it. This replica
  got no answer either.
- This process was paused: its clock jumps, and what it knows of the others is old. Silence counts for little longer
  than an answer is recent.

Dead is a word for planning. Whether somebody still owns a partition is not told here but by its lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

BEATS_IN_TIMEOUT: Final = 10
"""Where no interval is given: so many beats are due within the time-out."""


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replica tells of itself with each beat. Readers of another version ignore fields they do not know."""

    name: str
    process: str
    """Nonce of the process: who is started again under the name has another."""
    address: str = ""
    """Where its REST answers; for people."""
    collects: bool = True
    """It owns partitions, if any are given to it."""
    stands_by: bool = True
    """It listens to the engines of the partitions that it is second for."""
    leaving: bool = False
    """It stops, and gives up what it owns."""
    waits: bool = False
    """It has only just come, and nothing is to be given to it yet."""
    owned: dict[int, int] = {}
    """Partition → bytes that wait to be written."""
    ready: list[int] = []
    """Partitions of which every source is followed and listened to: it could take them at once."""
    configuration: str = ""
    """Digest of the sources that its flags and configuration name."""


class Reading(NamedTuple):
    """One answer of the store."""

    beats: dict[str, tuple[int, Member]]
    """Replica → age in ms by the server's clock, and what it said."""
    drains: dict[str, str]
    """Replica → the process that is to give up what it owns."""
    damaged: int = 0
    """Fields that were not ours, and are left out."""


class _Known(NamedTuple):
    member: Member
    beat_at: float


class Members:
    """All replicas, as `me` sees them. `timeout_s` of silence is death; beats are due every `interval_s`."""

    def __init__(self, me: str, *, timeout_s: float, interval_s: float | None = None) -> None:
        self._me = me
        self._timeout_s = timeout_s
        interval_s = timeout_s / BEATS_IN_TIMEOUT if interval_s is None else interval_s
        self._fresh_s = min(2 * interval_s, timeout_s / 2)
        """An answer is the present for so long: one beat may be late."""
        self._known: dict[str, _Known] = {}
        self._drains: Mapping[str, str] = {}
        self._heard_at: float | None = None
        self._is_missing = False
        self._kept: frozenset[str] = frozenset()
        """Live while nobody is judged."""
        self._judge_from = float("-inf")

    # -- what is told -------------------------------------------------------------------------------------------------

    def heard(self, reading: Reading, now: float) -> None:
        """A beat was answered; `now` on our clock, when the answer came."""
        is_first = self._heard_at is None
        was_away = self._heard_at is not None and now - self._heard_at > self._fresh_s
        before = frozenset(self.live(now))
        for name, (age_ms, member) in reading.beats.items():
            self._take(name, member, now - age_ms / 1000)
        self._drains = reading.drains
        self._heard_at, self._is_missing = now, False
        if was_away:
            # Who came shortly before it and is first heard of now, too: the time away was no silence of theirs.
            self._spare(before | frozenset(self.live(now)), now)
        elif is_first and any(self._is_silent(known, now) for known in self._known.values()):
            # Dead for long, or cut off from a store that is only just back: not for a newcomer to tell.
            self._spare(frozenset(self._known), now)
        alive = self.live(now).keys()
        self._known = {name: known for name, known in self._known.items() if name in reading.beats or name in alive}

    def missed(self, now: float) -> None:
        """A beat was not answered: nobody is judged before one is."""
        self._is_missing = self._heard_at is None or now >= self._heard_at

    # -- what follows -------------------------------------------------------------------------------------------------

    def live(self, now: float) -> dict[str, Member]:
        """Who beats and does not leave, `me` among them; nobody before the first answer."""
        at = self._as_of(now)
        return {
            name: known.member
            for name, known in self._known.items()
            if not known.member.leaving
            and (name == self._me or not self._is_silent(known, at) or (name in self._kept and at < self._judge_from))
        }

    def everyone(self, now: float) -> dict[str, tuple[float, Member]]:
        """All that are remembered, the silent and the leaving, too: seconds since the last beat, and what it said."""
        return {name: (max(0.0, now - known.beat_at), known.member) for name, known in self._known.items()}

    def is_judging(self, now: float) -> bool:
        """Whether who is not live is known to be dead: the answers are recent, and no grace is under way."""
        if self._heard_at is None or self._is_missing:
            return False
        return now - self._heard_at <= self._fresh_s and now >= self._judge_from

    def is_draining(self, name: str) -> bool:
        """Whether the process that runs under that name is to give up what it owns. A mark dies with its process."""
        known = self._known.get(name)
        return known is not None and self._drains.get(name) == known.member.process

    def candidates(self, now: float) -> frozenset[str]:
        """Among whom partitions are shared out. Nobody, where all are draining or only look things up."""
        return frozenset(
            name
            for name, member in self.live(now).items()
            if member.collects and not member.waits and not self.is_draining(name)
        )

    # -- how ----------------------------------------------------------------------------------------------------------

    def is_gone(self, name: str, now: float) -> bool:
        """Whether it said that it leaves, and has been silent since for as long as it could have taken."""
        known = self._known.get(name)
        return known is not None and known.member.leaving and now - known.beat_at > self._timeout_s

    def _as_of(self, now: float) -> float:
        """Until when silence counts: what was beaten since the last answer is not known."""
        return now if self._heard_at is None else min(now, self._heard_at + self._fresh_s)

    def _is_silent(self, known: _Known, at: float) -> bool:
        return at - known.beat_at > self._timeout_s

    def _take(self, name: str, member: Member, beat_at: float) -> None:
        known = self._known.get(name)
        if known is not None:
            if beat_at < known.beat_at - self._timeout_s:
                return  # a restored store remembers what was said long before what is known
            beat_at = max(beat_at, known.beat_at)  # the server's clock may have jumped ahead
        self._known[name] = _Known(member, beat_at)

    def _spare(self, names: frozenset[str], now: float) -> None:
        self._kept, self._judge_from = names, now + self._timeout_s
