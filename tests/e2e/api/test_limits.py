"""Every limit that a setting names: what is beyond it is refused as promised, and counted under the setting's name."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Callable

import pytest

from api.rest.limits import RestLimits
from api.server import ServerSettings
from indexer.settings.sections import Limits
from schemas.lookup import LookupQuery
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, request, served_in_thread

Address = tuple[str, int]
JSON = "application/json"

ELSEWHERE = {
    "sources": "tests/unit/node/test_topic_sources.py",
    "orphans": "tests/unit/index",
    "speculative_blocks": "tests/unit/receipts",
    "removals_kept": "tests/unit/explain/test_explaining.py",
    "max_clears_per_minute": "tests/unit/node/test_clear_limit.py",
    "handshakes": "tests/e2e/api/test_tls.py",
    "head_wait_s": "tests/e2e/api/test_hostile.py",
    "body_wait_s": "tests/e2e/api/test_hostile.py",
    "unread_wait_s": "tests/e2e/api/test_hostile.py",
    "text_bytes": "tests/e2e/test_texts.py",
    "text_timeout_ms": "tests/e2e/test_texts.py",
    "text_threads": "tests/unit/texts",
    "texts_waiting": "tests/unit/texts",
    "text_cache_bytes": "tests/unit/texts",
}
"""Those that are not about requests to this face alone."""


class Patient(FakeNode):
    """Events that a question waits for never come."""

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        assert query.min_sequence
        await asyncio.sleep(timeout_s)


def _lookup(address: Address, document: object) -> tuple[int, str]:
    return _post(address, "/v1/lookup", document)


def _post(address: Address, path: str, document: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    body = json.dumps(document).encode()
    status, _, content = request(connection, "POST", path, body, content_type=JSON)
    connection.close()
    return status, json.loads(content).get("code", "")


def _answer(sock: socket.socket) -> tuple[int, str]:
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response.status, json.loads(response.read())["code"]


def _held(address: Address, sent: bytes) -> socket.socket:
    """A connection on which that was sent."""
    sock = socket.create_connection(address, timeout=DEADLINE_S)
    sock.sendall(sent)
    return sock


def _part(body: bytes, length: int) -> bytes:
    head = b"POST /v1/lookup HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % length + body


def _body_bytes(address: Address) -> tuple[int, str]:
    return _lookup(address, {"token_ids": [1] * 2_000})


def _tokens(address: Address) -> tuple[int, str]:
    return _lookup(address, {"token_ids": [1] * 101})


def _batch(address: Address) -> tuple[int, str]:
    return _post(address, "/v1/lookup/batch", {"items": [{"token_ids": [1]}] * 3})


def _connections(address: Address) -> tuple[int, str]:
    with contextlib.closing(_held(address, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")) as first:
        first.recv(1)
        return _lookup(address, {"token_ids": [1]})


def _head_bytes(address: Address) -> tuple[int, str]:
    with contextlib.closing(_held(address, b"GET / HTTP/1.1\r\nx: ")) as sock:
        for _ in range(3):
            sock.sendall(b"a" * 1_000)
        return _answer(sock)


def _lookups_waiting(address: Address) -> tuple[int, str]:
    """The second one's body is asked for, the first one's is waited for."""
    with contextlib.closing(_held(address, _part(b"", 20))) as first:
        assert first.recv(12) == b"HTTP/1.1 100"
        with contextlib.closing(_held(address, _part(b"", 20))) as second:
            return _answer(second)


def _waits(address: Address, tokens: int) -> tuple[int, str]:
    waits = {"token_ids": [1] * tokens, "min_sequence": {"a": 1}, "timeout_ms": 500}
    body = json.dumps(waits).encode()
    head = b"POST /v1/lookup HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with contextlib.closing(_held(address, head % len(body) + body)):
        while (told := _lookup(address, waits))[0] == 200:
            pass
        return told


def _sequence_waits(address: Address) -> tuple[int, str]:
    return _waits(address, 1)


def _sequence_wait_bytes(address: Address) -> tuple[int, str]:
    return _waits(address, 300)


def _pending_bytes(address: Address) -> tuple[int, str]:
    with contextlib.closing(_held(address, _part(b"", 3_000))) as sock:
        assert sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b" " * 1_500)
        return _answer(sock)


BEYOND: dict[str, tuple[Callable[[Address], tuple[int, str]], float, tuple[int, str]]] = {
    "body_bytes": (_body_bytes, 1_024, (413, "body.too_large")),
    "tokens": (_tokens, 100, (422, "token_ids.too_many")),
    "batch": (_batch, 2, (422, "batch.too_many")),
    "connections": (_connections, 1, (429, "connections.too_many")),
    "connections_per_caller": (_connections, 1, (429, "connections.too_many")),
    "head_bytes": (_head_bytes, 1_024, (431, "head.too_large")),
    "lookups_waiting": (_lookups_waiting, 1, (429, "lookups.too_many")),
    "sequence_waits": (_sequence_waits, 1, (429, "lookups.too_many_waits")),
    "sequence_wait_bytes": (_sequence_wait_bytes, 1_024, (429, "lookups.too_many_waits")),
    "pending_bytes": (_pending_bytes, 1_024, (429, "body.pending_bytes")),
}
"""How to go beyond it, its value meanwhile, and what the caller is told."""


def test_no_limit_is_without_a_test() -> None:
    """A new setting has to come here."""
    assert set(Limits.__struct_fields__) == set(BEYOND) | set(ELSEWHERE)
    no_settings = set(RestLimits.__struct_fields__) - set(Limits.__struct_fields__)
    assert no_settings == {"batches_waiting", "explanations", "headers"}


@pytest.mark.parametrize("limit", BEYOND)
def test_beyond_a_limit_is_refused_and_counted(limit: str) -> None:
    """By its name; and the next request is answered."""
    go_beyond, value, told = BEYOND[limit]
    node = Patient()
    settings = ServerSettings(port=0, limits=RestLimits(**{limit: value}))  # type: ignore[arg-type]
    with served_in_thread(node, settings) as address:
        assert told == go_beyond(address)
        counted = {"connections_per_caller": "connections"}.get(limit, limit)
        assert 1 <= node.limits_reached[f"limits.{counted}"]
        for _ in range(1_000):
            if _lookup(address, {"token_ids": [1]})[0] == 200:
                return
        pytest.fail("nobody is answered any more")
