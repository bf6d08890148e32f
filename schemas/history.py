"""What `GET /v1/sources/{pod}/history` takes and gives. Shapes only."""

from __future__ import annotations

from typing import Annotated

import msgspec

from schemas.rest import Rank

HISTORY_LIMIT = 100
"""Items where the caller names no number."""


class HistoryFilters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of `GET /v1/sources/{pod}/history`. `after` is the `next` of the answer before."""

    dp_rank: Rank | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    after: (
        Annotated[
            str,
            msgspec.Meta(
                pattern=r"^[0-9]{1,15}-[0-9]{1,18}-[0-9]{1,5}$(?!\n)", description="`next` of the answer before"
            ),
        ]
        | None
    ) = None


class HistoryNumbers(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an item is about, in numbers; those that say nothing of it are left out."""

    first: int | None = None
    last: int | None = None
    lost: int | None = None
    sequence: int | None = None
    generation: str | None = None
    generation_before: str | None = None
    epoch: int | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """One thing that happened to a source, or `count` of the same within a second."""

    at: str
    dp_rank: int
    what: str
    cause: str | None
    count: int
    numbers: HistoryNumbers
    replica: str | None


class HistoryList(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/sources/{pod}/history`, the newest first.

    `next` goes into `after` for the rest; null = that was all. `complete` is false where the store did not answer: the
    items are what this replica itself saw.
    """

    pod: str
    items: list[HistoryItem]
    next: str | None
    complete: bool
