"""Which source a report is about. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.errors import BadRequestError, FieldIssue

if TYPE_CHECKING:
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex

RANKS_NAMED: Final = 8


def source_of(registry: Registry, pod: str, dp_rank: int | None, tenant: str) -> SourceIndex:
    """A pod's only rank need not be told. Raises `SourceUnknownError`, and `BadRequestError` where it must be."""
    sources = registry.named(pod, dp_rank, tenant)
    if len(sources) > 1:
        ranks = ", ".join(str(each.descriptor.dp_rank) for each in sources[:RANKS_NAMED])
        issue = FieldIssue("dp_rank", "required: the pod has several ranks", None, f"one of {ranks}")
        raise BadRequestError("dp_rank.missing", [issue])
    return sources[0]
