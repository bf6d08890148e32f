"""Heads of lookups that the HTTP parser has judged before, byte for byte but for a few values. Pure.

A router's connection sends the same request line and headers thousands of times; parsing them costs more than walking
the index. The same bytes have the same meaning, so a head that was accepted once need not be parsed again. What differs
with every prompt or request (the body's length, ids), and a caller's token, is cut out and read anew from each head, by
rules narrower than HTTP's: who a token is of is none of this module's business. Kept are heads alone, never a body,
only of questions that were answered, and none that carries a secret (P10).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from api.problems import Headers

HEADS_MAX: Final = 2_048
"""Heads kept; then all are forgotten and learnt anew."""
HEAD_BYTES_MAX: Final = 1_024
"""The longest head kept: 2 MB of keys, and about as much of parsed headers, at the most."""

Reply = tuple[int, Headers, bytes]
"""Status, headers, body."""
AnswerNow = Callable[[bytes, Mapping[bytes, bytes], bytes], Reply | None]
"""From query string, headers and body to the reply; None where the request has to take the general way."""

_CONTENT_LENGTH: Final = b"content-length"
_NAMES: Final = (_CONTENT_LENGTH, b"authorization", b"x-request-id", b"traceparent")
_CUT: Final = re.compile(
    rb"\r\n(?:"
    rb"[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,8})"
    rb"|[Aa]uthorization: ([!-~]+ [!-~]+)"
    rb"|[Xx]-[Rr]equest-[Ii][Dd]: ([!-~]+)"
    rb"|[Tt]raceparent: ([!-~]+)"
    rb")(?=\r\n)"
)
"""Groups as in `_NAMES`. Written so that the parser, too, takes each value as it stands."""
_KEPT_HEADERS: Final = frozenset(
    {
        *(b"host", b"accept", b"accept-encoding", b"accept-language", b"connection", b"user-agent"),
        b"content-type",
        *(b"x-kvindexer-timeout-ms", b"x-envoy-expected-rq-timeout-ms"),
    }
)
"""A head with any other is left to the parser: it may be a secret, differ each time, or change how the body is read."""


class Head(NamedTuple):
    """What a head says beside the length of the body."""

    answer: AnswerNow
    query_string: bytes
    headers: dict[bytes, bytes]


_Key = tuple[bytes, tuple[bytes, ...]]
"""A head without the values that are read anew, and the names of these."""


def _cut(head: bytes) -> tuple[_Key, dict[bytes, bytes]] | None:
    """The key of a head, and the values that are not part of it; None where one of their headers stands twice."""
    parts: list[bytes] = []
    told: dict[bytes, bytes] = {}
    at = 0
    for found in _CUT.finditer(head):
        group = found.lastindex or 0
        begin, end = found.span(group)
        parts.append(head[at:begin])
        name = _NAMES[group - 1]
        if name in told:
            return None
        told[name] = head[begin:end]
        at = end
    parts.append(head[at:])
    return (b"".join(parts), tuple(told)), told


class KnownHeads:
    """Those of one server. Lives on one event loop."""

    def __init__(self) -> None:
        self._heads: dict[_Key, Head] = {}

    def find(self, head: bytes) -> tuple[Head, int] | None:
        """What this head says, and the length of its body in bytes; None where the parser has to judge."""
        cut = _cut(head)
        if cut is None:
            return None
        key, told = cut
        known = self._heads.get(key)
        if known is None:
            return None
        length = int(told.pop(_CONTENT_LENGTH))  # no key is without
        if told:
            known = Head(known.answer, known.query_string, {**known.headers, **told})
        return known, length

    def learn(self, head: bytes, answer: AnswerNow, query_string: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Keep a head that the parser accepted, whose request was answered, and whose body ended as it said.

        `headers`: all of them, none given twice.
        """
        cut = _cut(head)
        if cut is None or len(head) > HEAD_BYTES_MAX:
            return
        key, told = cut
        if _CONTENT_LENGTH not in told or told != {name: headers[name] for name in _NAMES if name in headers}:
            return
        kept = {name: value for name, value in headers.items() if name not in told}
        if not _KEPT_HEADERS.issuperset(kept):
            return
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[key] = Head(answer, query_string, kept)
