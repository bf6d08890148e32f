"""What the span of a write to the store tells: how much of which partition, and what the store said. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.outcomes import Done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.store.journal import SourceRun
    from indexer.store.outcomes import Refusal


def size_of(runs: Sequence[SourceRun]) -> int:
    """Bytes of the maps' changes and of the facts beside them. No more are walked through than go in one piece."""
    return sum(len(run.facts) + _changes_size(run) for run in runs)


def result_of(reply: Done | Refusal | None) -> str:
    """`ok`, why the store refused, or `unknown` where it did not say and was not asked again."""
    if isinstance(reply, Done):
        return "ok"
    return "unknown" if reply is None else type(reply).__name__.lower()


def _changes_size(run: SourceRun) -> int:
    if run.packed is not None:
        return sum(len(segment.packed) for segment in run.packed)
    return sum(len(field) + len(value or b"") for field, value in run.changes)
