"""Refusals as the originals' clients know them: status and form by protocol. Pure.

    Dynamo    a body it cannot take: 400, 413, 415 or 422 in plain text; else JSON `{"error"}`
    Mooncake  400 with JSON `{"error", "reason", "field"}` for whatever the caller must change; 404 in plain text
    picker    JSON `{"error"}`; its client reads the status alone

What this service refuses where the originals have no word for it (a limit, a store that is away) keeps our status, in
the protocol's form.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response

from api.problems import Headers, RequestRefused, refusal_of

Protocol = Literal["dynamo", "mooncake", "picker"]
Reply = tuple[int, Headers, bytes]

TEXT: Final = b"text/plain; charset=utf-8"
JSON: Final = b"application/json"
MSGPACK: Final = b"application/msgpack"

_BODY_REFUSED: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class FaceRefused(RequestRefused):
    """Refused in a protocol's own words: Dynamo's errors that are JSON, whatever the status."""


def reply(status: int, content_type: bytes, body: bytes, further: Headers | None = None) -> Reply:
    """A whole answer."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *(further or [])]
    return status, headers, body


def as_response(told: Reply) -> Response:
    """The same for the application."""
    status, headers, content = told
    response = Response(content, status)
    response.raw_headers = headers
    return response


def refused(error: Exception, protocol: Protocol | None) -> Reply:
    """The answer to a request that failed. `protocol` None: the body does not even tell which one it is in."""
    refusal = refusal_of(error)
    headers = list(refusal.headers)
    if protocol == "mooncake":
        return _mooncakes(refusal, headers)
    in_text = refusal.status in _BODY_REFUSED and not isinstance(refusal, FaceRefused)
    if protocol != "picker" and in_text:
        return reply(refusal.status, TEXT, f"{refusal}\n".encode(), headers)
    return reply(refusal.status, JSON, msgspec.json.encode({"error": str(refusal)}), headers)


def _mooncakes(refusal: RequestRefused, headers: Headers) -> Reply:
    status = refusal.status
    if status == HTTPStatus.NOT_FOUND:
        return reply(status, TEXT, f"{refusal}\n".encode(), headers)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        status = HTTPStatus.BAD_REQUEST
    said: dict[str, Any] = {"error": str(refusal), "reason": refusal.code}
    if refusal.issues:
        said["field"] = refusal.issues[0].field
    return reply(status, JSON, msgspec.json.encode(said), headers)
