"""What callers report of what engines really reused, and what they are told of it. Shapes and limits only."""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.lookup import LookupQuery
from schemas.receipts import ReportOptions, ReportsTaken
from schemas.rest import BlockHashValue, Name, Position, TokenIdValue

FeedbackResult = Literal["joined", "unjoined", "repeated", "failed"]
"""What became of a report: compared with what was answered; no answer to it is known; it came before; the request
failed, so there is nothing to compare."""


class FeedbackReport(msgspec.Struct, kw_only=True):
    """What an engine really reused of a prompt.

    `query` has the prompt where it is told, and what else identifies it: tenant, model, adapter, salt.
    """

    pod: str | None = None
    """None: where the request was reported to have been routed."""
    dp_rank: int | None = None
    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    ok: bool = True
    query: LookupQuery


class FeedbackOptions(ReportOptions, kw_only=True, forbid_unknown_fields=True):
    """And what came of it, where."""

    pod: Name | None = None
    prompt_tokens: Position | None = None
    cached_tokens: Position | None = None
    ok: bool | None = None


class FeedbackBody(FeedbackOptions, kw_only=True, forbid_unknown_fields=True):
    """Of `POST /v1/feedback`, alone or in an array: `request_id`, or one of `token_ids` and `block_hashes`, or both."""

    token_ids: list[TokenIdValue] | None = None
    block_hashes: list[BlockHashValue] | None = None


class PackedFeedbackBody(FeedbackOptions, kw_only=True, forbid_unknown_fields=True):
    """The same in MessagePack, where token ids may also be one bin of little-endian u32, and hashes one of u64."""

    token_ids: bytes | list[TokenIdValue] | None = None
    block_hashes: bytes | list[BlockHashValue] | None = None


class FeedbackTaken(ReportsTaken, kw_only=True):
    """Answer to feedback. `joined`: so many of those accepted count in the consistency report.

    `results`: what became of all of them.
    """

    joined: int
    results: dict[FeedbackResult, int]
