"""Heads of lookups that the HTTP parser has judged before, byte for byte. Pure.

A router's connection sends the same request line and headers thousands of times; parsing them costs more than walking
the index. The same bytes have the same meaning, so a head that was accepted once need not be parsed again. Kept are
heads alone, never a body, only of questions that were answered, and none that carries a secret (P10) or changes with
every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

HEADS_MAX: Final = 2_048
"""Heads kept; then all are forgotten and learnt anew. Lengths of JSON bodies vary by hundreds, so a caller has many."""
HEAD_BYTES_MAX: Final = 1_024
"""The longest head kept: 2 MB of keys, and about as much of parsed headers, at the most."""

_KEPT_HEADERS: Final = frozenset(
    {
        *(b"host", b"accept", b"accept-encoding", b"accept-language", b"connection", b"user-agent"),
        *(b"content-type", b"content-length"),
        *(b"x-kvindexer-timeout-ms", b"x-envoy-expected-rq-timeout-ms"),
    }
)
"""A head with any other is left to the parser: it may be a secret, differ each time, or change how the body is read."""


class Head(NamedTuple):
    """What a head says. `length`: of the body, in bytes."""

    url: bytes
    headers: dict[bytes, bytes]
    length: int


class KnownHeads:
    """Those of one server. Lives on one event loop."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self.get = self._heads.get

    def learn(self, head: bytes, url: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Keep a head that the parser accepted, whose request was answered, and whose body ended as it said."""
        length = headers.get(b"content-length")
        if length is None or len(head) > HEAD_BYTES_MAX or not _KEPT_HEADERS.issuperset(headers):
            return
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[head] = Head(url, dict(headers), int(length))
