"""What those who watch the sources are told of each. Shapes only."""

from __future__ import annotations

from typing import NamedTuple


class SourceStatus(NamedTuple):
    """What a router needs to know of a source at once. Compared as a whole: any difference is a change."""

    pod: str
    dp_rank: int
    state: str
    bound: str
    generation: str
    cordoned: bool
    model: str | None
    address: str | None
    role: str
    tenant: str
    ready: bool
