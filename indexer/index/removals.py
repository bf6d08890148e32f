"""The latest blocks that went, and why: what an explanation of a miss reads. Pure; time is set by whoever applies.

A ring of two numbers an entry: the token hash, and in one word which life of which slot, on which lane, why and when.
Written where presence ends, so that it is the same for whoever applies an engine's events and for whoever follows a
journal: gathered there, and put into the ring a thousand at a time. Reading scans all of it, which takes a fraction of
a millisecond and is done when somebody asks why (decisions/0032). Beyond its length the oldest go.
"""

from __future__ import annotations

from enum import IntEnum
from struct import pack
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

REMOVALS_KEPT: Final = 262_144
"""By default: 4 MB, and half a minute of a busy fleet's evictions (8,000 blocks a second)."""
GATHERED: Final = 1_024
"""Written into the ring together: 0.1 ms where they went one by one."""
_TICKS_A_SECOND: Final = 10
_WHY_BITS, _LANE_BITS, _AT_BITS, _LIFE_BITS = 2, 4, 30, 28
"""Of the word, from its low end. Tenths of a second for three years, then they begin anew; lives after 268 million."""
_AT: Final = (1 << _AT_BITS) - 1
_WHY: Final = (1 << _WHY_BITS) - 1
_LANE: Final = (1 << _LANE_BITS) - 1
_LIFE: Final = (1 << _LIFE_BITS) - 1
_LANE_SHIFT: Final = _WHY_BITS
_AT_SHIFT: Final = _LANE_SHIFT + _LANE_BITS
_LIFE_SHIFT: Final = _AT_SHIFT + _AT_BITS


class Why(IntEnum):
    """How a block of a lane came to its end."""

    UNNOTED = 0
    """With all of its life: a clear, a restart, or the end of its registration."""
    REMOVED = 1
    """The engine said so; of a source that another replica applies, the journal did."""
    EXPIRED = 2
    """Its time to live was over, on a tier whose producer announces no removals."""
    GIVEN_UP = 3
    """Messages were lost, and it could not be told any more from a block that is gone."""


class Removal(NamedTuple):
    """One block that went from one lane."""

    lane: int
    why: Why
    at: float


class Removals:
    """Of one mirror. `kept` 0: none are noted. `now`: the present moment."""

    __slots__ = (
        "_before",
        "_begun",
        "_gathered",
        "_hashes",
        "_kept",
        "_lives",
        "_next_life",
        "_noted",
        "_runs",
        "_words",
        "now",
    )

    def __init__(self, kept: int = REMOVALS_KEPT, now: float = 0.0) -> None:
        self._kept = kept
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)  # made when the first come
        self._words: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._gathered: list[int] = []
        """Noted and not in the ring yet."""
        self._runs: list[float] = []
        """Of these: a word without its time, the time, and how many in a row have both; then the next three."""
        self._lives: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self._before: dict[int, int] = {}
        """How many were noted when the slot's life began."""
        self._next_life = 0
        self._noted = 0
        self.now = now
        """The moment of what is being applied, or at least a late one: set by whoever has a clock."""

    @property
    def is_kept(self) -> bool:
        """Whether any are noted."""
        return self._kept > 0

    @property
    def forgotten(self) -> int:
        """How many were noted and gave their place to later ones."""
        return max(0, self._noted + len(self._gathered) - self._kept) if self._kept else 0

    def begin_life(self, slot: int) -> None:
        """The slot stands for another generation, or another source: nothing noted of it is of this one."""
        self._next_life = self._next_life % _LIFE + 1
        self._lives[slot] = self._next_life << _LIFE_SHIFT
        self._begun[slot] = self.now
        self._before[slot] = self._noted + len(self._gathered)

    def end_life(self, slot: int) -> None:
        """The slot stands for nobody."""
        self._lives.pop(slot, None)
        self._begun.pop(slot, None)
        self._before.pop(slot, None)

    def note(self, slot: int, lane: int, hashes: Sequence[int], why: Why) -> None:
        """These went from a lane of the slot."""
        if why and hashes and self._kept:
            self._runs += (self._lives.get(slot, 0) | lane << _LANE_SHIFT | why, self.now, len(hashes))
            self._gathered += hashes
            if len(self._gathered) >= GATHERED:
                self._settle()

    def _settle(self) -> None:
        """Into the ring with what was gathered, of which the latest count where it is more than the ring holds."""
        kept = self._kept
        if not self._hashes.size:
            self._hashes, self._words = np.zeros(kept, np.uint64), np.zeros(kept, np.uint64)
        count = min(len(self._gathered), kept)
        self._noted += len(self._gathered)
        hashes = np.frombuffer(pack(f"={count}Q", *self._gathered[-count:]), np.uint64)
        ticks = (np.array(self._runs[1::3]) * _TICKS_A_SECOND).astype(np.uint64) & np.uint64(_AT)
        lengths = np.array(self._runs[2::3], np.int64)
        words = np.repeat(np.array(self._runs[::3], np.uint64) | ticks << np.uint64(_AT_SHIFT), lengths)[-count:]
        begin = (self._noted - count) % kept
        first = min(count, kept - begin)
        for ring, new in ((self._hashes, hashes), (self._words, words)):
            ring[begin : begin + first] = new[:first]
            ring[: count - first] = new[first:]
        self._gathered, self._runs = [], []

    def newest(self, slot: int, token_hash: int) -> Removal | None:
        """The last time that block went from a lane of the slot in its present life; None where none is known."""
        life = self._lives.get(slot)
        if self._gathered:
            self._settle()
        places = np.flatnonzero(self._hashes == np.uint64(token_hash))
        if life is None or not places.size:
            return None
        of_life = places[self._words[places] >> np.uint64(_LIFE_SHIFT) == life >> _LIFE_SHIFT]
        if not of_life.size:
            return None
        turn = (of_life - self._noted) % self._kept  # the newest lies right before where the next one will
        word = int(self._words[of_life[turn.argmax()]])
        return Removal(word >> _LANE_SHIFT & _LANE, Why(word & _WHY), self._moment(word))

    def known_since(self, slot: int) -> float:
        """From which moment on every removal of the slot's present life is known."""
        if not self._kept:
            return float("inf")
        if self._gathered:
            self._settle()
        begun = self._begun.get(slot, self.now)
        if self._noted <= self._kept:
            return begun
        return max(begun, self._moment(int(self._words[self._noted % self._kept])))

    def has_forgotten(self, slot: int) -> bool:
        """Whether any that was noted since the slot's present life began gave its place to a later one."""
        return self.forgotten > self._before.get(slot, 0)

    def _moment(self, word: int) -> float:
        """The latest moment that a word can mean and that is not in the future."""
        tick = word >> _AT_SHIFT & _AT
        now = int(self.now * _TICKS_A_SECOND)
        return (now - ((now - tick) & _AT)) / _TICKS_A_SECOND
