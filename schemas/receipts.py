"""What callers report of their requests, and what they are told of it. Shapes and limits only."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from schemas.lookup import LookupQuery
from schemas.rest import (
    BlockHashValue,
    BlockSizeValue,
    MmItemBody,
    Name,
    Problem,
    Rank,
    RequestIdText,
    Text,
    TokenIdValue,
)

REPORTS_MAX = 1_000
"""In one request."""


RoutedResult = Literal["expected", "held", "repeated", "not_placed"]
"""Of a report that is taken. `held`: the engine holds all of it already; `not_placed`: its blocks cannot be known, or
the engine ended while they were looked for."""


class RoutedReport(msgspec.Struct, kw_only=True):
    """A request was sent to that pod: what `query` tells of its prompt, or did in the lookup `of`."""

    pod: str
    dp_rank: int | None
    request_id: str | None
    of: str | None
    query: LookupQuery


class ReportOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What any report of a request may tell, but the prompt; null = not given."""

    dp_rank: Rank | None = None
    request_id: RequestIdText | None = None
    model: Text | None = None
    lora_name: Text | None = None
    cache_salt: Text | None = None
    tenant: Text | None = None
    mm_items: Annotated[list[MmItemBody], msgspec.Meta(max_length=4_096)] | None = None
    block_size: BlockSizeValue | None = None
    scheme: Literal["kvi1", "dynamo"] | None = None


class _RoutedOptions(ReportOptions, kw_only=True, forbid_unknown_fields=True):
    """And where it went, and of which lookup its prompt may be."""

    pod: Name
    of: RequestIdText | None = None


class RoutedBody(_RoutedOptions, kw_only=True, forbid_unknown_fields=True):
    """Of `POST /v1/routed`, alone or in an array: exactly one of `token_ids`, `block_hashes` and `of`."""

    token_ids: list[TokenIdValue] | None = None
    block_hashes: list[BlockHashValue] | None = None


class PackedRoutedBody(_RoutedOptions, kw_only=True, forbid_unknown_fields=True):
    """The same in MessagePack, where token ids may also be one bin of little-endian u32, and hashes one of u64."""

    token_ids: bytes | list[TokenIdValue] | None = None
    block_hashes: bytes | list[BlockHashValue] | None = None


class ItemProblem(Problem, kw_only=True):
    """Why one report of an array was refused: the problem that it would be alone, and its place."""

    index: int


class ReportsTaken(msgspec.Struct, kw_only=True):
    """Answer to an array of reports, or one: how many were taken, and those that were not."""

    accepted: int
    items: list[ItemProblem]


class RoutedTaken(ReportsTaken, kw_only=True):
    """Answer to what was routed. `results`: what became of those that were taken."""

    results: dict[RoutedResult, int]
