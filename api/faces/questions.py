"""From the bytes of a question in one of the originals' protocols to a `LookupQuery`. Pure.

A Mooncake question names its block size, a Dynamo question never does: that is how the two are told apart from here
on. The common JSON body goes the short way of `PlainJson`; whatever is unusual in it, or wrong, the strict one.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np
import simdjson

from api.faces.refusals import FaceRefused
from api.faces.shapes import Asked, Lists, Named, Query, QueryByHash
from api.problems import RequestRefused
from api.rest.lookup_request import LOOKED_AT_BYTES, OTHER_COMMAS_MAX, QUERY_HASHES_MAX
from api.rest.why_not import why_not
from indexer.decode.envelope import array_length
from indexer.errors import BadRequestError, FieldIssue, SchemeConflictError
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES
from schemas.lookup import LookupQuery
from schemas.rest import U64_MAX

if TYPE_CHECKING:
    from api.faces.refusals import Protocol
    from api.rest.media import BodyForm

T = TypeVar("T")

_LE_U32: Final = np.dtype("<u4")
_PLAIN: Final = frozenset(
    {"model_name", "model", "routing_group", "tenant_id", "lora_name", "cache_salt", "block_size"}  # of one value each
)


class Unreadable(Exception):
    """A question that cannot be taken, and the protocol it is in, as far as it tells."""

    def __init__(self, why: Exception, protocol: Protocol | None) -> None:
        super().__init__()
        self.why = why
        self.protocol = protocol


def protocol_of(body: Asked) -> Protocol:
    """The protocol of a question. Raises `BadRequestError`."""
    return told_apart(body.model_name, body.model, "model")


def told_apart(dynamo: str | None, mooncake: str | None, name: str) -> Protocol:
    """By which of the two names the model is called. Raises `BadRequestError` for both or neither."""
    if bool(dynamo) == bool(mooncake):
        rule = f"exactly one of model_name (Dynamo) and {name} (Mooncake)"
        raise BadRequestError("model.exactly_one", [FieldIssue("model_name", rule, "both" if dynamo else "neither")])
    return "dynamo" if dynamo else "mooncake"


def decoded(form: BodyForm, content: bytes, expected: type[T]) -> T:
    """The body as that type. Raises `Unreadable`."""
    decode = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
    try:
        return decode(content, type=expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(why_not(expected, form, content, error), _protocol_named(form, content)) from None


def _look_over(form: BodyForm, content: bytes, most: int) -> None:
    """Refuse what no decoding could make good: each number is an object, made while the event loop waits.

    Raises `Unreadable`.
    """
    if len(content) <= LOOKED_AT_BYTES:
        return
    if form == "json":
        count = content.count(b",") - OTHER_COMMAS_MAX
    else:
        try:
            lists = msgspec.msgpack.decode(content, type=Lists)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # the decoder will say what is wrong
        count = max(array_length(getattr(lists, name)) for name in Lists.__struct_fields__)
    if count > most:
        issue = FieldIssue("body", f"at most {most} numbers")
        raise Unreadable(BadRequestError("body.too_many_numbers", [issue]), _protocol_named(form, content))


def _protocol_named(form: BodyForm, content: bytes) -> Protocol | None:
    """Of a body in which something else is wrong."""
    decode = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
    try:
        named = decode(content, type=Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        named = Named()
    is_dynamo, is_mooncake = bool(named.model_name), bool(named.model or named.modelname)
    if is_dynamo == is_mooncake:
        return "mooncake" if form == "msgpack" else None
    return "dynamo" if is_dynamo else "mooncake"


def by_tokens(form: BodyForm, content: bytes, tokens_max: int) -> LookupQuery:
    """The question of a `/query` body, by the decoder that explains what it refuses. Raises `Unreadable`."""
    _look_over(form, content, tokens_max)
    body = decoded(form, content, Query)
    query = _asked(body)
    try:
        query.tokens = _image(body.token_ids, tokens_max)
    except BadRequestError as error:
        raise Unreadable(error, _of(query)) from None
    return query


def by_hashes(form: BodyForm, content: bytes) -> LookupQuery:
    """The question of a `/query_by_hash` body. Raises `Unreadable`."""
    _look_over(form, content, QUERY_HASHES_MAX)
    body = decoded(form, content, QueryByHash)
    query = _asked(body)
    try:
        query.block_hashes = _hashes(body, _of(query))
    except (BadRequestError, RequestRefused, SchemeConflictError) as error:
        raise Unreadable(error, _of(query)) from None
    query.scheme = "dynamo"
    return query


def plain_options(document: simdjson.Object, prompt: str = "token_ids") -> dict[str, Any] | None:
    """For `PlainJson`: the members beside the prompt's, as the strict way would take them; None: not plain."""
    members: dict[str, Any] = {}
    count = 0
    for key in document:
        count += 1
        if key == prompt:
            continue
        if key not in _PLAIN:
            return None
        members[key] = document[key]
    if len(members) + 1 != count:
        return None  # a key stands twice
    try:
        query = _asked(msgspec.convert(members, Asked))
    except Unreadable:
        return None
    told = {name: getattr(query, name) for name in ("model", "tenant", "lora_name", "cache_salt", "block_size")}
    return {name: value for name, value in told.items() if value is not None}


def _of(query: LookupQuery) -> Protocol:
    return "dynamo" if query.block_size is None else "mooncake"


def _asked(body: Asked) -> LookupQuery:
    """Everything but the prompt."""
    try:
        protocol = protocol_of(body)
    except BadRequestError as error:
        raise Unreadable(error, None) from None
    try:
        return LookupQuery(
            model=body.model_name or body.model,
            tenant=tenant_told(body.tenant_id, body.routing_group),
            lora_name=body.lora_name or None,
            cache_salt=body.cache_salt or None,
            **_mooncakes_own(body, protocol),
        )
    except BadRequestError as error:
        raise Unreadable(error, protocol) from None


def _mooncakes_own(body: Asked, protocol: Protocol) -> dict[str, Any]:
    if protocol == "dynamo":
        return {}
    if body.block_size is None:
        raise BadRequestError("missing", [FieldIssue("block_size", "required: tokens a block, 1..65536")])
    pods = None if body.instance_id in {None, ""} else (str(body.instance_id),)
    return {"block_size": body.block_size, "pods": pods}


def tenant_told(tenant_id: str | None, routing_group: str | None) -> str | None:
    """The tenant that two names for the same thing tell, `default` being no name. Raises `BadRequestError`."""
    names = {name for name in (tenant_id, routing_group) if name and name != DEFAULT_TENANT}
    if len(names) > 1:
        rule = "the same as tenant_id, or left out: both choose the tenant"
        raise BadRequestError("routing_group.differs", [FieldIssue("routing_group", rule)])
    return names.pop() if names else None


def tenant_meant(tenant_id: str | None, routing_group: str | None) -> str | None:
    """The same where naming none means all: `default` is a name then."""
    return tenant_told(tenant_id, routing_group) or (DEFAULT_TENANT if tenant_id or routing_group else None)


def _image(token_ids: list[int] | bytes, tokens_max: int) -> bytes:
    if isinstance(token_ids, bytes):
        if len(token_ids) % TOKEN_BYTES:
            raise BadRequestError("invalid_value", [FieldIssue("token_ids", "whole little-endian int32 numbers")])
        image = token_ids
    else:
        image = np.array(token_ids, _LE_U32).tobytes()
    if len(image) > tokens_max * TOKEN_BYTES:
        raise BadRequestError("token_ids.too_many", [FieldIssue("token_ids", f"at most {tokens_max}")])
    return image


def _hashes(body: QueryByHash, protocol: Protocol) -> list[int]:
    if protocol == "mooncake":
        if body.seq_hashes is None and body.block_hash is None:
            raise BadRequestError("missing", [FieldIssue("seq_hashes", "required")])
        raise SchemeConflictError(
            "rolling hashes of RFC #1403 are not those of this deployment (kvi1), and cannot be turned into them: "
            "ask by token_ids"
        )
    if body.block_hashes is None:
        raise BadRequestError("missing", [FieldIssue("block_hashes", "required")])
    if body.cache_salt:
        raise FaceRefused(
            HTTPStatus.BAD_REQUEST,
            "cache_salt.not_allowed",
            "cache_salt is not taken beside block_hashes: hash the blocks with it",
        )
    if len(body.block_hashes) > QUERY_HASHES_MAX:
        raise BadRequestError("block_hashes.too_many", [FieldIssue("block_hashes", f"at most {QUERY_HASHES_MAX}")])
    for value in (min(body.block_hashes, default=0), max(body.block_hashes, default=0)):
        if not -(2**63) <= value <= U64_MAX:
            i = body.block_hashes.index(value)
            raise BadRequestError("block_hashes.out_of_range", [FieldIssue(f"block_hashes[{i}]", "-2^63..2^64-1")])
    return [value & U64_MAX for value in body.block_hashes]
