"""What an answer is worth beside the truth. Pure.

Three things an entry that calls itself certain (live, bound exact) may be: right now; right at the message that it
names, while what the engine did since has not come, or is never said (`outrun`); or wrong at that very message (a
violation).
Where an engine's words themselves are not true, what it said decides whether anybody could know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES_MAX: Final = 5
NO_TOKENS: Final = 1e-9
"""In place of no hit tokens at all, to divide by."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry of an answer says, and the message that it names (-1: before the first)."""

    pod: str
    reusable_tokens: int
    state: str
    bound: str
    generation: str
    sequence: int | None
    reason: str | None = None

    @property
    def certain(self) -> bool:
        """Whether it vouches for itself."""
        return self.state == "live" and self.bound == "exact"


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one engine and prompt, tokens: held `now`, and after the message that the entry names (`then`).

    `said`: what the engine's own words come to by then, which differs where they are not true.
    """

    now: int
    then: int
    said: int


@dataclass(slots=True)
class Figures:
    """Sums over answers. Tokens and `exact` are of settled ones: all that is on its way has come, or is lost."""

    answers: int = 0
    """All, those asked in the middle of a fault too."""
    settled: int = 0
    exact: int = 0
    violations: int = 0
    outrun: int = 0
    """Entries, certain and right at the message they name, and not any more."""
    samples: int = 0
    """Entries of settled answers, whether certain or not; `right` of them to the token."""
    right: int = 0
    told_tokens: int = 0
    true_tokens: int = 0
    false_tokens: int = 0
    lost_tokens: int = 0
    noticed_s: list[float] = field(default_factory=list)
    """From what was not heard of the engine to the answer that no longer rested on what was before."""
    healed_s: list[float] = field(default_factory=list)
    """From a fault to the answer that is exact again."""
    examples: list[str] = field(default_factory=list)
    """Of violations."""

    def note(self, told: Told, truth: Truth, *, settled: bool, where: str = "") -> None:
        """One entry."""
        if told.certain:
            self._note_certain(told, truth, where)
        if settled:
            self.samples += 1
            self.right += told.reusable_tokens == truth.now
            self.told_tokens += told.reusable_tokens
            self.true_tokens += truth.now
            self.false_tokens += max(0, told.reusable_tokens - truth.now)
            self.lost_tokens += max(0, truth.now - told.reusable_tokens)

    def _note_certain(self, told: Told, truth: Truth, where: str) -> None:
        if told.reusable_tokens not in {truth.then, truth.said}:
            self.violations += 1
            if len(self.examples) < EXAMPLES_MAX:
                self.examples.append(f"{where}: {told} where {truth}")
        elif told.reusable_tokens != truth.now:
            self.outrun += 1

    def note_answer(self, state: str, *, settled: bool) -> None:
        """One answer, besides its entries."""
        self.answers += 1
        self.settled += settled
        self.exact += settled and state == "exact"

    def add(self, others: Iterable[Figures]) -> Figures:
        """Itself, with the sums of others."""
        for other in others:
            for name in self.__slots__:
                mine = getattr(self, name)
                if isinstance(mine, list):
                    mine += getattr(other, name)
                else:
                    setattr(self, name, mine + getattr(other, name))
        return self

    @property
    def exact_share(self) -> float:
        """Of settled answers."""
        return self.exact / self.settled if self.settled else 0.0

    @property
    def false_share(self) -> float:
        """Hit tokens that are not there, of the true ones."""
        return self.false_tokens / max(self.true_tokens, NO_TOKENS)

    @property
    def lost_share(self) -> float:
        """Hit tokens not told, of the true ones."""
        return self.lost_tokens / max(self.true_tokens, NO_TOKENS)


class Outcome(NamedTuple):
    """Of one fault: figures, and what a report of the service should say of it. `off`: by how much it does not."""

    figures: Figures
    report: str | None = None
    off: int = 0
