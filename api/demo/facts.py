"""What the demo knows at a moment: of sources, of lookups, in total. Values only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec


class SourceFacts(msgspec.Struct):
    """What the service says of a source, as far as it is shown."""

    pod: str
    state: str = "new"
    bound: str = "?"
    sequence: int | None = None
    lag_ms: int | None = None
    blocks: dict[str, int] = {}
    generation: str = ""
    owner: str | None = None

    @property
    def applied(self) -> int:
        """Its sequence; -1 before the first, as engines count."""
        return -1 if self.sequence is None else self.sequence


class SourceList(msgspec.Struct):
    """All of them."""

    sources: list[SourceFacts]


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
