"""The prompt that a report tells, if it does, as a lookup's question: what any kind of report says of it. Pure."""

from __future__ import annotations

from typing import Final

from api.access.caller import Caller, tenant_of
from api.rest.items import items_of
from api.rest.lookup_request import token_image, told_hashes
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
from schemas.feedback import FeedbackBody, PackedFeedbackBody
from schemas.lookup import LookupQuery
from schemas.receipts import PackedRoutedBody, RoutedBody

ReportBody = RoutedBody | PackedRoutedBody | FeedbackBody | PackedFeedbackBody

_WITH_HASHES: Final = ("block_size", "scheme")


def reported_prompt(told: ReportBody, caller: Caller, tokens_left: int) -> LookupQuery:
    """Tokens within what is left of a request's, or hashes, and what else identifies it. Raises `BadRequestError`."""
    _check_hashes(told)
    tokens = None if told.token_ids is None else token_image(told.token_ids, "token_ids")
    if len(tokens or b"") > tokens_left * TOKEN_BYTES:
        rule = "at most limits.tokens tokens in all prompts of a request together"
        raise BadRequestError("token_ids.too_many", [FieldIssue("token_ids", rule)])
    return LookupQuery(
        tokens=tokens,
        block_hashes=None if told.block_hashes is None else told_hashes(told.block_hashes),
        block_size=told.block_size,
        scheme=told.scheme,
        model=told.model,
        lora_name=told.lora_name,
        cache_salt=told.cache_salt,
        tenant=tenant_of(caller, told.tenant),
        mm_items=items_of(told.mm_items),
    )


def _check_hashes(told: ReportBody) -> None:
    """Hashes come with their block size, and what is said of hashes comes with some."""
    if told.block_hashes is not None:
        if told.block_size is None:
            raise BadRequestError("block_size.missing", [FieldIssue("block_size", "required with block_hashes")])
        return
    for name in _WITH_HASHES:
        if getattr(told, name) is not None:
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, "only together with block_hashes")])
