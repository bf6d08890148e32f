"""Requests of all kinds behind each other on one connection are answered as each is on a connection of its own.

Good and bad, huge, chunked, compressed, waiting: no refusal takes its successors with it, none is left without an
answer, and none gets another's.
"""

import gzip
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from api.rest.limits import RestLimits
from api.server import ServerSettings
from tests.support.fake_node import FakeNode
from tests.support.serving import exchange, served_in_thread

BODY_MAX = 3_000
IDS = b'{"token_ids":[1,2,3]}'
CHAT = b'{"model":"m","messages":[{"role":"user","content":"Hello"}]}'
PATHS = (
    "/v1/lookup",
    "/v1/lookup/batch",
    "/v1/hash",
    "/v1/explain",
    "/v1/recommend",
    "/v1/pick",
    "/v1/pick/v1/completions",
    "/v1/sources",
)
BODIES = (
    IDS,
    b'{"token_ids":[1],"block_size":1}',
    b'{"prompt":"ab"}',
    b'{"token_ids":[1],"min_sequence":{"p":1},"timeout_ms":1}',
    b'{"items":[{"token_ids":[1]},{"token_ids":[-1]},{"prompt":"a"}]}',
    CHAT,
    b"",
    b"{",
    b"\xff\x00",
    b'{"token_ids":[-1]}',
    b'{"unknown":1}',
    b'{"token_ids":[' + b"1," * BODY_MAX + b"1]}",
    msgspec.msgpack.encode({"token_ids": [1, 2]}),
)


class Sent(msgspec.Struct, frozen=True):
    """One request, without its id."""

    method: str
    path: str
    body: bytes
    coding: str
    kind: str | None
    chunks: tuple[int, ...]

    def on_the_wire(self, request_id: str) -> bytes:
        packed = {"gzip": lambda b: gzip.compress(b, mtime=0), "zstd": zstandard.compress}.get(self.coding, bytes)
        body = packed(self.body)
        head = [f"{self.method} {self.path} HTTP/1.1", "host: x", f"x-request-id: {request_id}"]
        if self.kind is not None:
            head.append(f"content-type: {self.kind}")
        if self.coding:
            head.append(f"content-encoding: {self.coding}")
        head.append("transfer-encoding: chunked" if self.chunks else f"content-length: {len(body)}")
        if self.chunks:
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _cut(body, self.chunks)) + b"0\r\n\r\n"
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _cut(body: bytes, at: tuple[int, ...]) -> Iterator[bytes]:
    edges = sorted({0, len(body), *(edge % (len(body) + 1) for edge in at)})
    for begin, end in itertools.pairwise(edges):
        yield body[begin:end]


_SENT = st.builds(
    Sent,
    method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT"]),
    path=st.sampled_from([*PATHS, "/v1/lookup", "/v1/lookup?limit=1", "/nowhere"]),
    body=st.sampled_from(BODIES),
    coding=st.sampled_from(["", "", "gzip", "zstd", "br", "identity"]),
    kind=st.sampled_from([None, "application/json", "application/msgpack", "application/octet-stream", "text/plain"]),
    chunks=st.just(()) | st.lists(st.integers(0, 5_000), min_size=1, max_size=3).map(tuple),
)
_PLAIN = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Of a server with a small limit for bodies."""
    limits = RestLimits(body_bytes=BODY_MAX)
    with served_in_thread(FakeNode(), ServerSettings(port=0, grpc_port=None, limits=limits)) as bound:
        yield bound


@given(sent=st.lists(_SENT, min_size=1, max_size=6), pieces=st.lists(st.integers(1, 20_000), max_size=4))
def test_answers_are_those_of_single_connections(address: tuple[str, int], sent: list[Sent], pieces: list[int]) -> None:
    """However the stream is cut; whatever came before."""
    alone = [_answers(exchange(address, each.on_the_wire(f"r{i}") + _PLAIN))[0] for i, each in enumerate(sent)]
    stream = b"".join(each.on_the_wire(f"r{i}") for i, each in enumerate(sent)) + _PLAIN
    cuts = sorted(piece for piece in set(pieces) if piece < len(stream))
    together = _answers(exchange(address, stream, pieces=cuts))

    assert alone == together[:-1]
    assert 200 == together[-1][0]


def _answers(stream: bytes) -> list[tuple[int, Any]]:
    """Status and content of each; what differs from one time to the next is left out."""
    found: list[tuple[int, Any]] = []
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = 0 if length is None else int(length[1])
        content, stream = stream[:size], stream[size:]
        assert size == len(content)
        found.append((status, _steady(head, content)))
    return found


def _steady(head: bytes, content: bytes) -> Any:  # noqa: ANN401 - whatever JSON can say
    kind = re.search(rb"(?i)\r\ncontent-type: ([^\r]*)", head)
    if kind is None or kind[1].startswith(b"text/"):
        return content
    return _timeless(msgspec.msgpack.decode(content) if b"msgpack" in kind[1] else json.loads(content))


def _timeless(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key != "took_us"}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
