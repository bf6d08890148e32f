"""`POST /v1/explain`: a lookup's question, asked by somebody who wants to know why.

The body is a lookup's in all its forms. `pod` and `dp_rank` beside it are taken out first, of the body or of the query
string; the rest is read as a lookup is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import tenant_of
from api.admission import Shares
from api.ports import NodePort
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.explain import explain
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm, body_form
from api.rest.query_options import options_from_query
from api.rest.readying import Readying, in_time_left, overload, while_there
from indexer.errors import BadRequestError, FieldIssue
from schemas.explain import ExplainTarget
from schemas.lookup import LookupQuery

_OURS: Final = ExplainTarget.__struct_fields__
_MARKS: Final[Mapping[BodyForm, tuple[bytes, ...]]] = {
    "json": tuple(b'"%b"' % name.encode() for name in _OURS),
    "msgpack": tuple(msgspec.msgpack.encode(name) for name in _OURS),
}
"""What stands in a body that may say so: most say nothing of it and need not be taken apart."""
_CODECS: Final[Mapping[BodyForm, tuple[Callable[[bytes], dict[str, msgspec.Raw]], Callable[[object], bytes]]]] = {
    "json": (msgspec.json.Decoder(dict[str, msgspec.Raw]).decode, msgspec.json.encode),
    "msgpack": (msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode, msgspec.msgpack.encode),
}


class ExplainRoute:
    """The handler."""

    def __init__(
        self, node: NodePort, exchange: Exchange, requests: LookupRequests, limits: RestLimits, readying: Readying
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._requests = requests
        self._readying = readying
        self._at_once = Shares("rest.explanations", limits.explanations, reached=node.limit_reached)

    async def explain(self, request: Request) -> Response:
        """`POST /v1/explain`."""
        with self._at_once.place(sharer_of(request.scope)) as granted:
            if not granted:
                raise overload("explain.too_many", "too many explanations are under way, of all or of this caller")
            return await self._answered(request)

    async def _answered(self, request: Request) -> Response:
        headers = dict(request.headers.raw)
        body = await self._exchange.raw_body(request)
        began = time.perf_counter()
        form = body_form(headers.get(b"content-type"), ids_allowed=True)
        target, body, query_string = _target(form, body, request.scope["query_string"])
        query = (await self._requests.parse_long(form, body, query_string, headers)).query
        if target.pod is not None:
            query.pods = _only(target.pod, query)
        query.tenant = tenant_of(caller_of(request), query.tenant)
        query.request_id = query.request_id or self._exchange.request_id(request)
        if self._readying.has_to_wait(query):
            query = await while_there(request.receive, self._readying.ready(query, sharer_of(request.scope)))
        answer = await self._node.explain(in_time_left(query, began), target.dp_rank)
        answer.took_us = int((time.perf_counter() - began) * 1e6)
        return self._exchange.answer(request, answer)


def _only(pod: str, query: LookupQuery) -> tuple[str, ...]:
    if query.pods is not None:
        raise BadRequestError("pod.not_allowed", [FieldIssue("pod", "not beside pods")])
    return (pod,)


def _target(form: BodyForm, body: bytes, query_string: bytes) -> tuple[ExplainTarget, bytes, bytes]:
    """Whom it is about, and what is left of body and query string."""
    parts = query_string.split(b"&") if query_string else []
    mine = [part for part in parts if part.partition(b"=")[0].decode("latin-1") in _OURS]
    target = options_from_query(b"&".join(mine), ExplainTarget)
    rest = b"&".join(part for part in parts if part not in mine)
    if form == "ids":
        return target, body, rest
    told, body = _taken_out(form, body)
    for name in _OURS:
        if getattr(told, name) is not None:
            setattr(target, name, getattr(told, name))
    return target, body, rest


def _taken_out(form: BodyForm, body: bytes) -> tuple[ExplainTarget, bytes]:
    """What the body says of it, and the body without. One that says nothing of it, or is none, stays as it is."""
    decode, encode = _CODECS[form]
    if not any(mark in body for mark in _MARKS[form]):
        return ExplainTarget(), body
    try:
        members = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ExplainTarget(), body  # what reads a lookup says what is wrong
    mine = {name: members.pop(name) for name in _OURS if name in members}
    if not mine:
        return ExplainTarget(), body
    read = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
    values: dict[str, object] = {name: read(bytes(raw)) for name, raw in mine.items()}
    try:
        return msgspec.convert(values, ExplainTarget), encode(members)
    except msgspec.ValidationError as error:
        raise explain(ExplainTarget, values, error, {}) from None
