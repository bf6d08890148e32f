"""Heads of lookups that the HTTP parser has judged before, byte for byte but for the length of the body. Pure.

A router's connection sends the same request line and headers thousands of times; parsing them costs more than walking
the index. The same bytes have the same meaning, so a head that was accepted once need not be parsed again; its body's
length, which differs with every prompt, is read from it. Kept are heads alone, never a body, only of questions that
were answered, and none that carries a secret (P10) or changes with every request. A bearer token is cut out first, and
judged anew with each request: who it is of is none of this module's business.
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

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,8})\r\n")
_SHOWN: Final = re.compile(rb"\r\n[Aa]uthorization: ([!-~]+ [!-~]+)\r\n")
"""Written so that the parser, too, takes it as it stands."""
_CONTENT_LENGTH: Final = b"content-length"
_AUTHORIZATION: Final = b"authorization"
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


class KnownHeads:
    """Those of one server. Lives on one event loop."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def find(self, head: bytes) -> tuple[Head, int] | None:
        """What this head says, and the length of its body in bytes; None where the parser has to judge."""
        told = _LENGTH.search(head)
        if told is None:
            return None
        begin, end = told.span(1)
        text, shown = _without_shown(head[:begin] + head[end:])
        known = self._heads.get(text)
        if known is None:
            return None
        if shown is not None:
            known = Head(known.answer, known.query_string, {**known.headers, _AUTHORIZATION: shown})
        return known, int(told[1])

    def learn(self, head: bytes, answer: AnswerNow, query_string: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Keep a head that the parser accepted, whose request was answered, and whose body ended as it said.

        `headers`: all of them, none given twice.
        """
        told = _LENGTH.search(head)
        if told is None or told[1] != headers.get(_CONTENT_LENGTH):
            return
        begin, end = told.span(1)
        text, shown = _without_shown(head[:begin] + head[end:])
        if shown != headers.get(_AUTHORIZATION):
            return
        kept = {name: value for name, value in headers.items() if name not in {_CONTENT_LENGTH, _AUTHORIZATION}}
        if len(head) > HEAD_BYTES_MAX or not _KEPT_HEADERS.issuperset(kept):
            return
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[text] = Head(answer, query_string, kept)


def _without_shown(head: bytes) -> tuple[bytes, bytes | None]:
    """A head without what its caller shows, and that; the header's name stays, so that the key tells there was one."""
    shown = _SHOWN.search(head)
    if shown is None:
        return head, None
    begin, end = shown.span(1)
    return head[:begin] + head[end:], shown[1]
