"""Media types: which form a body has, and in which encoding the answer leaves. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

from api.ports import Encoding
from api.problems import RequestRefused
from indexer.errors import FieldIssue

BodyForm = Literal["json", "msgpack", "ids"]

_FORMS: Final[dict[bytes | None, BodyForm]] = {
    None: "json",
    b"application/json": "json",
    b"application/msgpack": "msgpack",
    b"application/x-msgpack": "msgpack",
    b"application/octet-stream": "ids",
}
_ENCODINGS: Final[dict[bytes, Encoding]] = {
    b"application/json": "json",
    b"application/msgpack": "msgpack",
    b"application/x-msgpack": "msgpack",
}
ANSWER_TYPES: Final[dict[Encoding, bytes]] = {"json": b"application/json", "msgpack": b"application/msgpack"}
SHOWN_MAX: Final = 60
_HINT: Final = "curl sends a form unless told otherwise: -H 'content-type: application/json'"
HEADER_MAX: Final = 1_024
"""Longest `Accept` that is read; a longer one counts as absent."""


def body_form(content_type: bytes | None, *, ids_allowed: bool) -> BodyForm:
    """The form that `Content-Type` names; a body without one is taken for JSON. Raises `RequestRefused` 415."""
    form = _FORMS.get(content_type)
    if form is None and content_type is not None:
        essence, _, parameters = content_type.partition(b";")
        form = _FORMS.get(essence.strip().lower())
        if form == "json" and parameters and not _is_utf8(parameters):
            form = None
    if form is None or (form == "ids" and not ids_allowed):
        known = "application/json, application/msgpack" + (", application/octet-stream" if ids_allowed else "")
        issue = FieldIssue("content-type", f"one of {known}", _shown(content_type), _HINT)
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "content_type.unsupported",
            f"this path takes {known} (text in UTF-8)",
            [issue],
            headers=[(b"accept-post", known.encode())],
        )
    return form


def _shown(content_type: bytes | None) -> str | None:
    return None if content_type is None else content_type[:SHOWN_MAX].decode("ascii", "replace")


def answer_encoding(accept: bytes | None, form: BodyForm) -> Encoding:
    """JSON or MessagePack: what `Accept` likes best, else as the body came (token bytes are answered in JSON)."""
    fallback: Encoding = "msgpack" if form == "msgpack" else "json"
    if accept is None or accept == b"*/*":
        return fallback
    known = _ENCODINGS.get(accept)
    if known is not None:
        return known
    best, best_weight = fallback, 0.0
    for media_range in accept[:HEADER_MAX].lower().split(b","):
        essence, *parameters = (part.strip() for part in media_range.split(b";"))
        encoding, weight = _ENCODINGS.get(essence), _weight(parameters)
        if encoding is not None and weight > best_weight:
            best, best_weight = encoding, weight
    return best


def _is_utf8(parameters: bytes) -> bool:
    """Whether the parameters of a JSON content type name no other character set."""
    for parameter in parameters.lower().split(b";"):
        name, _, value = parameter.strip().partition(b"=")
        if name == b"charset" and value.strip(b'"') not in {b"utf-8", b"utf8", b"us-ascii"}:
            return False
    return True


def _weight(parameters: list[bytes]) -> float:
    for parameter in parameters:
        if parameter.startswith(b"q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
