"""From the bytes of one report of `POST /v1/feedback` to what the node is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from api.access.caller import Caller, tenant_of
from api.rest.items import items_of
from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm
from api.rest.prompt_text import TEXT_FIELDS
from api.rest.reported_prompt import reported_prompt
from api.rest.why_not import why_not
from indexer.errors import BadRequestError, FieldIssue
from schemas.feedback import FeedbackBody, FeedbackReport, PackedFeedbackBody
from schemas.lookup import LookupQuery

_HINTS: Final = {
    name: FieldIssue(name, "no text is taken here", hint="name the lookup's request_id, or send token_ids")
    for name in TEXT_FIELDS
}
_decode_json: Final = msgspec.json.Decoder(FeedbackBody).decode
_decode_msgpack: Final = msgspec.msgpack.Decoder(PackedFeedbackBody).decode


def feedback_report(
    requests: LookupRequests, form: BodyForm, body: bytes, caller: Caller, tokens_left: int
) -> FeedbackReport:
    """One report, of no more tokens than are left. Raises `BadRequestError` and `RequestRefused`."""
    requests.look_over(form, body)
    kind: type[FeedbackBody | PackedFeedbackBody] = FeedbackBody if form == "json" else PackedFeedbackBody
    decode: Callable[[bytes], FeedbackBody | PackedFeedbackBody] = _decode_json if form == "json" else _decode_msgpack
    try:
        told = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise why_not(kind, form, body, error, _HINTS) from None
    check_feedback(told)
    tokens, hashes = reported_prompt(told.token_ids, told.block_hashes, tokens_left)
    return FeedbackReport(
        pod=told.pod,
        dp_rank=told.dp_rank,
        request_id=told.request_id,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens or 0,
        ok=told.ok is not False,
        query=LookupQuery(
            tokens=tokens,
            block_hashes=hashes,
            block_size=told.block_size,
            prompt_tokens=None if hashes is None else told.prompt_tokens,
            scheme=told.scheme,
            model=told.model,
            lora_name=told.lora_name,
            cache_salt=told.cache_salt,
            tenant=tenant_of(caller, told.tenant),
            mm_items=items_of(told.mm_items),
        ),
    )


def check_feedback(told: FeedbackBody | PackedFeedbackBody) -> None:
    """What spans several fields. Raises `BadRequestError`."""
    if told.token_ids is not None and told.block_hashes is not None:
        issue = FieldIssue("token_ids", "not together with block_hashes")
        raise BadRequestError("prompt.exactly_one", [issue])
    if told.pod is None and told.request_id is None:
        raise BadRequestError("pod.missing", [FieldIssue("pod", "required, unless request_id is of a routed request")])
    if told.request_id is None and told.token_ids is None and told.block_hashes is None:
        rule = "required: the lookup's, or token_ids or block_hashes instead"
        raise BadRequestError("request_id.missing", [FieldIssue("request_id", rule)])
    if told.cached_tokens is None and told.ok is not False:
        rule = "required, unless ok is false"
        raise BadRequestError("cached_tokens.missing", [FieldIssue("cached_tokens", rule)])
    if told.block_hashes is not None and told.block_size is None:
        raise BadRequestError("block_size.missing", [FieldIssue("block_size", "required with block_hashes")])
    for name in ("block_size", "scheme"):
        if told.block_hashes is None and getattr(told, name) is not None:
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, "only together with block_hashes")])
