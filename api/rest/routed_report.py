"""From the bytes of one report of `POST /v1/routed` to what the node is told. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from api.access.caller import Caller, tenant_of
from api.rest.items import items_of
from api.rest.lookup_request import LookupRequests, token_image, told_hashes
from api.rest.media import BodyForm
from api.rest.prompt_text import TEXT_FIELDS
from api.rest.why_not import why_not
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
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
    tokens = _image(told.token_ids)
    if len(tokens or b"") > tokens_left * TOKEN_BYTES:
        rule = "at most limits.tokens tokens in all prompts of a request together"
        raise BadRequestError("token_ids.too_many", [FieldIssue("token_ids", rule)])
    query = LookupQuery(
        tokens=tokens,
        block_hashes=_hashes(told.block_hashes),
        block_size=told.block_size,
        scheme=told.scheme,
        model=told.model,
        lora_name=told.lora_name,
        cache_salt=told.cache_salt,
        tenant=tenant_of(caller, told.tenant),
        mm_items=items_of(told.mm_items),
    )
    return RoutedReport(pod=told.pod, dp_rank=told.dp_rank, request_id=told.request_id, of=told.of, query=query)


def _image(ids: bytes | list[int] | None) -> bytes | None:
    if ids is None or isinstance(ids, bytes):
        return None if ids is None else token_image(ids, "token_ids")
    return struct.pack(f"<{len(ids)}I", *ids)


def _hashes(given: bytes | list[int | str] | None) -> Sequence[int] | None:
    return None if given is None else told_hashes(given)


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
