"""What an answer is worth beside the truth. Pure.

Four things an entry that calls itself certain (live, bound exact) may be, beside the recorded truth: right; right at
the message that it names and not any more, as what came since is on its way (`outrun`); not right as far as what the
engine published up to that message could not tell (`unknown`), by rules for each fault that are not the service's
(`unsaid`); or wrong, a violation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES_MAX: Final = 5
PROBE_S: Final = 5.0
"""`events.probe_interval_s` as it is by default."""
NOTICED_MAX_S: Final = 1.0
"""Beyond a probe interval with a replay endpoint; in all, where the engine's next message tells."""
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

    Where what is published up to there cannot tell, `unknown` is the number that nobody could know better; else None.
    """

    now: int
    then: int
    unknown: int | None = None

    @classmethod
    def unheard(cls, now: int, then: int, *, is_due: bool) -> Truth:
        """Where what the engine did since is not heard. Once it is due, only what is true now is right."""
        return cls(now, now) if is_due else cls(now, then, then)


@dataclass(slots=True)
class Figures:
    """Sums over answers. Tokens and `exact` are of settled ones: all that is on its way has come, or is lost."""

    answers: int = 0
    """All, those asked in the middle of a fault too."""
    settled: int = 0
    exact: int = 0
    violations: int = 0
    outrun: int = 0
    """Entries, certain and right at the message they name, and not any more: the next one is on its way."""
    unknown: int = 0
    """Entries, certain and not right, as nobody could know; by how many tokens."""
    unknown_tokens: int = 0
    rested: list[tuple[float, int]] = field(default_factory=list)
    """How long answers were so: seconds, and messages of an engine whose words are not true."""
    unending: int = 0
    """How often they were so to the end."""
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

    def note(self, told: Told, truth: Truth, *, settled: bool, where: str = "") -> bool:
        """One entry. Whether it is certain and not right, as nobody could know."""
        unknown = told.certain and self._note_certain(told, truth, where)
        if settled:
            self.samples += 1
            self.right += told.reusable_tokens == truth.now
            self.told_tokens += told.reusable_tokens
            self.true_tokens += truth.now
            self.false_tokens += max(0, told.reusable_tokens - truth.now)
            self.lost_tokens += max(0, truth.now - told.reusable_tokens)
        return unknown

    def _note_certain(self, told: Told, truth: Truth, where: str) -> bool:
        said = told.reusable_tokens
        if said == truth.now == truth.then:
            return False
        if said == truth.unknown:
            self.unknown += 1
            self.unknown_tokens += abs(said - truth.now)
            return True
        if said != truth.then:
            self.violations += 1
            if len(self.examples) < EXAMPLES_MAX:
                self.examples.append(f"{where}: {told} where {truth}")
        else:
            self.outrun += 1
        return False

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
