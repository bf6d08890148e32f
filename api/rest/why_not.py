"""From what a decoder raised to what the caller is told: no document at all, or what is wrong in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from api.problems import RequestRefused
from api.rest.explain import explain, vague
from api.rest.media import BodyForm
from indexer.errors import FieldIssue, IndexerError

EXPLAINED_BYTES_MAX: Final = 2**20
"""Longer bodies are refused in the decoder's own words: walking one in Python would hold the event loop."""
NO_HINTS: Final[Mapping[str, FieldIssue]] = {}

_BEYOND: Final = re.compile(r"(?:Integer value|Number) out of range")
"""Said of a number of hundreds of digits: it is JSON, and nothing that Python holds."""


def why_not(
    expected: type, form: BodyForm, body: bytes, error: Exception, hints: Mapping[str, FieldIssue] = NO_HINTS
) -> IndexerError:
    """What to raise for a body that the decoder of `expected` refused with `error`. `hints` as `explain` has them."""
    if not isinstance(error, msgspec.ValidationError):
        return _no_document(form, error if body else ValueError("it is empty"))
    if len(body) > EXPLAINED_BYTES_MAX:
        return vague(error)
    try:
        document = msgspec.json.decode(body) if form == "json" else msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as further:
        if _BEYOND.search(str(further)):
            return vague(error)
        # Wrong in one place and no document at all in another: the second is what has to be mended first.
        return _no_document(form, further)
    return explain(expected, document, error, hints)


def _no_document(form: BodyForm, error: Exception) -> RequestRefused:
    """400 for a body that is not even its format. The decoder's words name a byte position, never the bytes."""
    name = "JSON" if form == "json" else "MessagePack"
    why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return RequestRefused(HTTPStatus.BAD_REQUEST, f"body.not_{form}", f"the body is no {name}: {why}"[:200])
