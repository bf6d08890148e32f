"""What was counted of a source since it was registered, over all processes that applied its events. Pure.

A process counts from its own start (`SourceIndex.counters`, `tier_events`): metrics are of a process. What those before
it counted is kept beside, and people are shown the sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.model import Tier

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex, TierEvents

ENDED_WAITING: Final = "orphans_ended"
"""Counts blocks that waited for their parent, and went before it came."""
COUNT_MAX: Final = (1 << 63) - 1
"""A count stays there: more cannot be stored, nor read back by whoever takes the source over."""


class TierCounts(NamedTuple):
    """Of one tier: events, their blocks, and when the last came, on our clock; None: none did."""

    stored: int = 0
    stored_blocks: int = 0
    removed: int = 0
    removed_blocks: int = 0
    last_at: float | None = None

    def plus(self, events: TierEvents) -> TierCounts:
        """With those of this process."""
        last_at = events.last_at
        return TierCounts(
            min(self.stored + events.stored, COUNT_MAX),
            min(self.stored_blocks + events.stored_blocks, COUNT_MAX),
            min(self.removed + events.removed, COUNT_MAX),
            min(self.removed_blocks + events.removed_blocks, COUNT_MAX),
            self.last_at if last_at is None else last_at,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """`tiers` in the order of `Tier`."""

    counters: Counter[str] = field(default_factory=Counter)
    tiers: tuple[TierCounts, ...] = (TierCounts(),) * len(Tier)

    @property
    def total(self) -> int:
        """Only grows while anything is counted."""
        return self.counters.total() + sum(sum(each[:4]) for each in self.tiers)


def counts_of(source: SourceIndex) -> Counts:
    """All that was counted of it."""
    earlier = source.earlier
    counters = Counter(source.counters) if earlier is None else earlier.counters + source.counters
    if source.map.ended:
        counters[ENDED_WAITING] += source.map.ended
    for name, count in counters.items():
        counters[name] = min(count, COUNT_MAX)
    before = Counts().tiers if earlier is None else earlier.tiers
    return Counts(counters, tuple(was.plus(events) for was, events in zip(before, source.tier_events, strict=True)))
