"""What is known of engines' loads, as those who recommend are told it. Shapes only."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.model import SourceId

LoadSource = Literal["request", "metrics", "receipts", "none"]
"""Where loads come from: the question itself, what engines' metrics say, what was sent to them, or nowhere."""


class KnownLoad(NamedTuple):
    """Of one source. `age_s`: of what was read, on our clock."""

    running: float
    waiting: float
    kv_usage: float | None
    age_s: float
    unseen: int
    """Requests that are known to have been sent there since that was read, and that are not known to be over."""


class LoadView(NamedTuple):
    """Of the sources of one question."""

    source: LoadSource
    age_s: float | None
    """Of the oldest that is used; None where nothing was read."""
    requests: Mapping[SourceId, float]
    """Running, waiting, and unseen ones together. Of `receipts`: who is not in it was sent nothing; else nothing is
    known of who is not in it."""
    kv_usage: Mapping[SourceId, float] = MappingProxyType({})
    """Share of its cache that requests under way take, 0..1, where it is known."""


class Loads(Protocol):
    """What is known of loads in one process. No I/O; time is given."""

    def view(self, sources: Sequence[SourceId], now: float) -> LoadView:
        """Of these."""
        ...

    def sent(self, source: SourceId, request_id: str, tenant: str | None, now: float) -> None:
        """A request goes to that source. Told again, it changes nothing; told of another source, the newest counts."""
        ...

    def ended(self, request_id: str, tenant: str | None) -> None:
        """It is over, as far as anybody told."""
        ...
