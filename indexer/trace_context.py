"""W3C's trace context, as callers send it with a lookup: which trace of theirs it belongs to. Pure.

Apart from `tracing`, which makes spans: whoever makes none need not load what makes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


class Asked(NamedTuple):
    """A lookup as it was asked: by which door, in which form, and under which trace of the caller's, if any."""

    api: str
    form: str
    traceparent: bytes | str | None = None
    tracestate: bytes | str | None = None


class Caller(NamedTuple):
    """The caller's span, and its flags."""

    trace_id: int
    span_id: int
    flags: int


def asked_by(headers: Mapping[bytes, bytes], api: str, form: str) -> Asked:
    """A lookup that came with these headers."""
    return Asked(api, form, headers.get(b"traceparent"), headers.get(b"tracestate"))


def caller_of(traceparent: bytes | str) -> Caller | None:
    """The caller's span; None where the header is none of W3C's form: then it is as if there were none."""
    told = _PARENT.fullmatch(header_text(traceparent).strip())
    if told is None or (told[1] == "00" and told[5]):
        return None
    trace_id, span_id = int(told[2], 16), int(told[3], 16)
    return Caller(trace_id, span_id, int(told[4], 16)) if trace_id and span_id else None


def trace_id_of(traceparent: bytes | str | None) -> str | None:
    """For a line of the log: which trace of the caller's it belongs to."""
    caller = None if traceparent is None else caller_of(traceparent)
    return None if caller is None else f"{caller.trace_id:032x}"


def header_text(header: bytes | str) -> str:
    """As it came; any bytes are some text."""
    return header if isinstance(header, str) else header.decode("latin-1")
