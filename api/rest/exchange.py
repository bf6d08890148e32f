"""What the routes beside the lookup have in common: read a body, write an answer, refuse. One instance a server."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from api.access.caller import ANYONE, Caller, sharer_of_token
from api.admission import LOCAL, peer_of
from api.ports import Encoding
from api.problems import RequestRefused, counted_refusal, problem_response
from api.rest.body import BodyReader
from api.rest.media import ANSWER_TYPES, answer_encoding, body_form
from api.rest.request_ids import RequestIds
from api.rest.why_not import why_not

T = TypeVar("T")

_ENCODE: Final[dict[Encoding, Callable[[object], bytes]]] = {
    "json": msgspec.json.encode,
    "msgpack": msgspec.msgpack.encode,
}


class Exchange:
    """Bodies in, answers out."""

    def __init__(
        self,
        bodies: BodyReader,
        request_ids: RequestIds,
        reached: Callable[[str], None] = lambda _: None,
        denied: Callable[[int, str], None] = lambda _, __: None,
    ) -> None:
        self._bodies = bodies
        self._request_ids = request_ids
        self._reached = reached
        self._denied = denied

    async def raw_body(self, request: Request) -> bytes:
        """The body as bytes, within the limits."""
        headers = dict(request.headers.raw)
        sharer = sharer_of(request.scope)
        return await self._bodies.plain(await self._bodies.read(request.receive, headers, sharer), headers, sharer)

    async def body(self, request: Request, expected: type[T]) -> T:
        """The body as that type, from JSON or MessagePack. Raises `RequestRefused`, `BadRequestError`."""
        content = await self.raw_body(request)
        form = body_form(dict(request.headers.raw).get(b"content-type"), ids_allowed=False)
        decode = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
        try:
            return decode(content, type=expected)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise why_not(expected, form, content, error) from None

    def answer(self, request: Request, content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """The answer in the encoding the caller likes."""
        headers = dict(request.headers.raw)
        known = {b"application/msgpack", b"application/x-msgpack"}
        form = "msgpack" if headers.get(b"content-type") in known else "json"
        encoding = answer_encoding(headers.get(b"accept"), form)  # type: ignore[arg-type]
        return Response(_ENCODE[encoding](content), status, media_type=ANSWER_TYPES[encoding].decode())

    def request_id(self, request: Request) -> str:
        """The caller's, or a new one."""
        return self._request_ids.of(dict(request.headers.raw).get(b"x-request-id"))

    def refuse(self, request: Request, error: Exception) -> Response:
        """The problem that says why not."""
        request_id = self.request_id(request)
        traceparent = dict(request.headers.raw).get(b"traceparent")
        refusal = counted_refusal(error, self._reached, self._denied, request_id, traceparent)
        status, headers, body = problem_response(refusal, request_id)
        return Response(body, status, {name.decode(): value.decode() for name, value in headers})


CALLER: Final = "kvindexer.caller"
"""Where a request's scope holds who asks."""


def caller_of(request: Request) -> Caller:
    """Who asks, where the path has a scope."""
    caller: Caller = request.scope[CALLER]
    return caller


def sharer_of(scope: Scope) -> str:
    """To whose share of a limit a request counts: its token's, else its address's."""
    caller: Caller | None = scope.get(CALLER)
    if caller is not None and caller is not ANYONE:
        return sharer_of_token(caller)
    client = scope.get("client")
    return peer_of(client[0]) if client else LOCAL


_OF: Final = {"pod": "source", "hash": "block", "name": "replica"}
"""Whose name a parameter is."""


def path_name(request: Request, parameter: str = "pod") -> str:
    """A path segment as it was before percent-encoding. Raises `RequestRefused` 404 for what is no text."""
    try:
        return unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, f"{_OF[parameter]}.unknown", "the name is not percent-encoded UTF-8"
        ) from None
