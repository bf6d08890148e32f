"""From the bytes of one report of `POST /v1/routed` to what the node is told. Pure."""

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
from schemas.lookup import LookupQuery
from schemas.receipts import PackedRoutedBody, RoutedBody, RoutedReport

_TOLD_BY: Final = ("token_ids", "block_hashes", "of")
_WITH_PROMPT: Final = ("lora_name", "cache_salt", "mm_items", "block_size", "scheme")
"""What the lookup that `of` names has said already."""
_HINTS: Final = {
    name: FieldIssue(name, "no text is taken here", hint="name the lookup in `of`, or send token_ids")
    for name in TEXT_FIELDS
}
_decode_json: Final = msgspec.json.Decoder(RoutedBody).decode
_decode_msgpack: Final = msgspec.msgpack.Decoder(PackedRoutedBody).decode


def routed_report(
    requests: LookupRequests, form: BodyForm, body: bytes, caller: Caller, tokens_left: int
) -> RoutedReport:
    """One report, of no more tokens than are left. Raises `BadRequestError` and `RequestRefused`."""
    requests.look_over(form, body)
    kind: type[RoutedBody | PackedRoutedBody] = RoutedBody if form == "json" else PackedRoutedBody
    decode: Callable[[bytes], RoutedBody | PackedRoutedBody] = _decode_json if form == "json" else _decode_msgpack
    try:
        told = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise why_not(kind, form, body, error, _HINTS) from None
    _check(told)
    tokens, hashes = reported_prompt(told.token_ids, told.block_hashes, tokens_left)
    query = LookupQuery(
        tokens=tokens,
        block_hashes=hashes,
        block_size=told.block_size,
        scheme=told.scheme,
        model=told.model,
        lora_name=told.lora_name,
        cache_salt=told.cache_salt,
        tenant=tenant_of(caller, told.tenant),
        mm_items=items_of(told.mm_items),
    )
    return RoutedReport(pod=told.pod, dp_rank=told.dp_rank, request_id=told.request_id, of=told.of, query=query)


def _check(told: RoutedBody | PackedRoutedBody) -> None:
    """What spans several fields. Raises `BadRequestError`."""
    named = [name for name in _TOLD_BY if getattr(told, name) is not None]
    if len(named) != 1:
        issue = FieldIssue("token_ids", f"exactly one of {', '.join(_TOLD_BY)}", ", ".join(named) or "none")
        raise BadRequestError("prompt.exactly_one", [issue])
    if named == ["block_hashes"] and told.block_size is None:
        raise BadRequestError("block_size.missing", [FieldIssue("block_size", "required with block_hashes")])
    barred = _WITH_PROMPT if named == ["of"] else () if named == ["block_hashes"] else ("block_size", "scheme")
    for name in barred:
        if getattr(told, name) is not None:
            beside = "block_hashes" if name in {"block_size", "scheme"} else "token_ids or block_hashes"
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, f"only together with {beside}")])
