"""What the history of a source says of its present life: how it began, where we joined it, and what was lost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.explain.facts import Began, Lost

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from indexer.explain.facts import How
    from indexer.happenings import Entry
    from indexer.history import Mark, Told
    from indexer.index.states import SourceFacts

_BEGINS: Final[Mapping[str, How]] = {
    "restart": "restart",
    "clear": "operator_clear",
    "cleared_by_engine": "engine_clear",
    "forgotten": "forgotten",
}
"""Happenings that begin a life."""
_SHORTFALLS: Final[Mapping[str, How]] = {
    "cleared_by_operator": "operator_clear",
    "forgotten": "forgotten",
    "cleared_at_gap": "gap_clear",
}
"""The same as far as the source's own facts tell, where the history does not."""


class Life(NamedTuple):
    """Of one generation."""

    began: Began | None
    lost: Lost
    joined_at: int | None


def life_of(facts: SourceFacts, told: Collection[Told], wall_us: int) -> Life:
    """The present life. `told`: what is known of the source's history, in any order, of other lives too."""
    began: Began | None = None
    gaps = batches = 0
    joined_at = None
    for _, entry in sorted(told, key=_mark):
        happening = entry.happening
        if happening.generation != facts.generation:
            continue
        how = _BEGINS.get(happening.what)
        if happening.what == "gap":
            how = "gap_clear" if happening.cause == "cleared" else None
            gaps += entry.count if how is None else 0
            batches += (happening.lost or 0) if how is None else 0
        if how is not None:
            began = Began(how, _ago_s(entry, wall_us))
        if happening.what == "joined" and happening.cause == "in_the_middle":
            joined_at = happening.sequence
    if began is None:
        how = next((_SHORTFALLS[each] for each in sorted(facts.shortfalls) if each in _SHORTFALLS), None)
        began = None if how is None else Began(how, None)
    return Life(began, Lost(gaps, batches), joined_at)


def _mark(told: Told) -> Mark:
    return told.mark


def _ago_s(entry: Entry, wall_us: int) -> float:
    return max(0.0, wall_us / 1e6 - entry.at_ms / 1_000)
