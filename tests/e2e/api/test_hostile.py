"""Callers that send slowly, nothing, too much or nonsense, or never read: each ends, is counted, and costs nobody else.

Times are short here, so that what must end ends within the test; nothing is asserted on how soon.
"""

import contextlib
import http.client
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.rest.limits import RestLimits
from api.server import ServerSettings
from tests.support.core_service import RunningService
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, exchange, request, served_in_thread

Address = tuple[str, int]
SHORT_S = 0.1
QUESTION = b'{"token_ids":[1,2,3]}'
HEAD = b"POST /v1/lookup HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def _asked(body: bytes = QUESTION, more: bytes = b"") -> bytes:
    return HEAD + more + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def node() -> FakeNode:
    """What it counts is seen here."""
    return FakeNode()


@pytest.fixture(scope="module")
def address(node: FakeNode) -> Iterator[Address]:
    """A server that is impatient."""
    limits = RestLimits(body_bytes=100_000, head_wait_s=SHORT_S, body_wait_s=SHORT_S, unread_wait_s=SHORT_S)
    with served_in_thread(node, ServerSettings(port=0, keep_alive_s=SHORT_S, limits=limits)) as bound:
        yield bound


@pytest.fixture(autouse=True)
def _others_are_served(address: Address) -> Iterator[None]:
    """After whatever a caller did; and nothing of it is left open."""
    before = _open_files()
    yield
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    status, _, _ = request(connection, "POST", "/v1/lookup", QUESTION, content_type="application/json")
    connection.close()
    assert 200 == status
    _until(lambda: _open_files() <= before, "all connections are closed")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _until(holds: Callable[[], bool], what: str) -> None:
    waits = threading.Event()
    for _ in range(int(DEADLINE_S / 0.01)):
        if holds():
            return
        waits.wait(0.01)
    pytest.fail(f"not seen: {what}")


# --- slow and silent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"GET /he",
        b"GET /healthz HTTP/1.1\r\nhost",
        HEAD + b"content-length: 20\r\n\r\n",
        HEAD + b"content-length: 20\r\n\r\n{",
        HEAD + b"transfer-encoding: chunked\r\n\r\n",
        HEAD + b'transfer-encoding: chunked\r\n\r\n5\r\n{"tok',
        HEAD + b"expect: 100-continue\r\ncontent-length: 20\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\ncontent-length: 9\r\n\r\n",
        b"POST /v1/nothing HTTP/1.1\r\ncontent-length: 9\r\n\r\n1",
        b"POST /v1/hash HTTP/1.1\r\ncontent-length: 9\r\n\r\n1",
        _asked() + b"G",
        _asked() + b"\r\n",
        _asked() + _asked()[:-2],
    ],
)
@pytest.mark.parametrize("drips", [b"", b"\r\n", b"1"])
def test_whoever_says_nothing_more_is_left(address: Address, sent: bytes, drips: bytes) -> None:
    """At any point of a request, also when a byte comes now and then."""
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.sendall(sent)
        sock.settimeout(0.05)
        for _ in range(int(DEADLINE_S / 0.05)):
            try:
                if sock.recv(65_536) == b"":
                    return
            except TimeoutError:
                with contextlib.suppress(OSError):
                    sock.sendall(drips)
            except OSError:
                return
    pytest.fail("the connection stays open")


@pytest.mark.parametrize(
    ("sent", "limit"),
    [(b"GET /he", "limits.head_wait_s"), (HEAD + b"content-length: 20\r\n\r\n{", "limits.body_wait_s")],
)
def test_what_does_not_arrive_is_counted(address: Address, node: FakeNode, sent: bytes, limit: str) -> None:
    """Under the setting it was measured by."""
    before = node.limits_reached[limit]
    exchange(address, sent)

    assert before + 1 == node.limits_reached[limit]


def test_a_body_that_never_comes_is_answered(address: Address) -> None:
    """408, also where not a byte of it came; the connection ends."""
    answer = exchange(address, HEAD + b"content-length: 20\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.parametrize("path", [b"/v1/lookup", b"/v1/sources", b"/openapi.json"])
def test_answers_that_nobody_takes_end_their_connection(address: Address, node: FakeNode, path: bytes) -> None:
    """Whoever asks and never reads is left, and what was written for it is dropped: or it has asked too far ahead."""

    def ended() -> int:
        return node.limits_reached["limits.unread_wait_s"] + node.limits_reached["rest.pipelined"]

    before = ended()
    asked = _asked() if path == b"/v1/lookup" else b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.settimeout(1.0)
        sock.connect(address)
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(asked * 20)
        _until(lambda: ended() > before, "the limit is counted")


# --- too much --------------------------------------------------------------------------------------------------------


def test_a_head_has_so_many_headers_at_most(address: Address, node: FakeNode) -> None:
    """431, and counted."""
    before = node.limits_reached["rest.headers"]
    answer = exchange(address, HEAD + b"a:b\r\n" * 300 + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head.too_many_headers"' in answer
    assert before + 1 == node.limits_reached["rest.headers"]


def test_one_large_answer_is_not_waited_for(address: Address, node: FakeNode) -> None:
    """Nothing was sent ahead; the caller asks for the last time, and takes the first bytes only."""
    before = node.limits_reached["limits.unread_wait_s"]
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.settimeout(DEADLINE_S)
        sock.connect(address)
        sock.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 60)
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
        _until(lambda: node.limits_reached["limits.unread_wait_s"] > before, "the limit is counted")


def test_requests_sent_far_ahead_end_the_connection(address: Address, node: FakeNode) -> None:
    """Behind the answers to those before: a read of small requests is no way to fill the memory."""
    before = node.limits_reached["rest.pipelined"]
    answer = exchange(address, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 2_000)

    assert 2 <= answer.count(b"HTTP/1.1 200 ") < 200
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 200 ")
    assert before < node.limits_reached["rest.pipelined"]


# --- smuggling and oddities ------------------------------------------------------------------------------------------

_BODY = b"content-length: 5\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        _BODY + b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\n" + _BODY,
        _BODY + b"content-length: 6\r\n",
        _BODY + _BODY,
        b"content-length: 5, 5\r\n",
        b"content-length: +5\r\n",
        b"content-length: -5\r\n",
        b"content-length: 0x5\r\n",
        b"content-length: 5 5\r\n",
        b"content-length: 99999999999999999999999999\r\n",
        b"content-length : 5\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"transfer-encoding : chunked\r\n",
        b" folded: x\r\n",
        b"a: b\r\n c\r\n" + _BODY,
        b"a\x00b: c\r\n" + _BODY,
        b"a: b\x00c\r\n" + _BODY,
        b"no colon\r\n" + _BODY,
        b"a: b\r" + _BODY,
    ],
)
def test_a_request_has_one_end(address: Address, framing: bytes) -> None:
    """Where two readers could differ on it there is no 200, and nothing behind it is taken for a request."""
    smuggled = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    sent = b"POST /v1/lookup HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n0\r\n\r\n" + smuggled
    answer = exchange(address, sent)

    assert b"HTTP/1.1 200 " not in answer
    assert answer.count(b"\r\ncontent-type: ") <= 1


@pytest.mark.parametrize(
    "chunks",
    [
        b"-1\r\n",
        b"zz\r\n",
        b"fffffffffffffffff\r\n",
        b'5\r\n{"tokXX0\r\n\r\n',
        b"5 ;\x00\r\n",
        b'5\n{"tok\n0\n\n',
    ],
)
def test_chunks_are_read_strictly(address: Address, chunks: bytes) -> None:
    """400, and the connection ends."""
    assert exchange(address, HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks).startswith(b"HTTP/1.1 400 ")


def test_chunks_of_one_byte_are_a_body(address: Address) -> None:
    """With extensions and trailers: odd, and allowed."""
    chunks = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in QUESTION) + b"0\r\nx: y\r\n\r\n"
    sent = HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunks

    assert exchange(address, sent).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST http://elsewhere/v1/lookup HTTP/1.1", 200),
        (b"POST /v1/lookup?model=a#b HTTP/1.1", 200),
        (b"POST /v1//lookup HTTP/1.1", 404),
        (b"POST /v1/lookup/ HTTP/1.1", 404),
        (b"POST /v1/sources/%ff/clear HTTP/1.1", 404),
        (b"POST /v1/%00 HTTP/1.1", 404),
        (b"POST /v1/../v1/lookup HTTP/1.1", 404),
        (b"POST /\xc3\xa9 HTTP/1.1", 400),
        (b"POST * HTTP/1.1", 404),
        (b"CONNECT x:1 HTTP/1.1", 400),
        (b"POST /v1/lookup HTTP/1.0", 200),
        (b"POST /v1/lookup HTTP/2.0", 200),
        (b"POST /v1/lookup HTTP/9.9", 400),
        (b"POST /v1/lookup", 200),
    ],
)
def test_odd_request_lines_are_answered(address: Address, line: bytes, status: int) -> None:
    """None as a fault of ours."""
    sent = line + b"\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    answer = exchange(address, sent + b"content-length: %d\r\n\r\n" % len(QUESTION) + QUESTION)

    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]


def test_garbage_is_answered_or_left(address: Address) -> None:
    """TLS, HTTP/2, Redis and random bytes on a plain port."""
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"*1\r\n$4\r\nPING\r\n",
        bytes(range(256)) * 40,
    ):
        assert b" 500 " not in exchange(address, sent, half_close=True)


# --- connections -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(address: Address, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, timeout=DEADLINE_S)) for _ in range(count)]


def _first_answer(sock: socket.socket) -> bytes:
    sock.sendall(_asked())
    return sock.recv(65_536)


@pytest.mark.parametrize("limits", [RestLimits(connections=5), RestLimits(connections_per_caller=4)])
def test_a_connection_too_many_is_told_so(limits: RestLimits) -> None:
    """429 with Retry-After to its first request; those that were there go on, and when they go there is room."""
    node = FakeNode()
    with served_in_thread(node, ServerSettings(port=0, limits=limits)) as address:
        with _held(address, 4) as held:
            assert all(_first_answer(each).startswith(b"HTTP/1.1 200 ") for each in held)
            with _held(address, 1) as more:
                answer = _first_answer(more[0])
                assert answer.startswith(b"HTTP/1.1 429 ")
                assert b"\r\nretry-after: 1\r\n" in answer
                assert b'"code":"connections.too_many"' in answer
                assert b"" == more[0].recv(1)
            assert 1 == node.limits_reached["limits.connections"]
            assert _first_answer(held[0]).startswith(b"HTTP/1.1 200 ")
        _until(lambda: exchange(address, _asked(more=b"connection: close\r\n")).startswith(b"HTTP/1.1 200"), "room")


def test_connections_that_are_reset_leave_nothing(address: Address) -> None:
    """In the middle of requests and of answers; the fixture counts what is open afterwards."""
    for sent in (b"", b"GET", _asked(), _asked()[:-3], _asked() * 50) * 20:
        with socket.create_connection(address, timeout=DEADLINE_S) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(sent)


# --- memory ----------------------------------------------------------------------------------------------------------

MIB = 2**20


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_what_a_flood_took_is_given_back() -> None:
    """Forty bodies that are not complete, of a process of its own."""
    with RunningService([]) as service, contextlib.ExitStack() as stack:
        before = _resident(service.pid)
        host, _, port = service.url.removeprefix("http://").partition(":")
        for _ in range(40):
            sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=DEADLINE_S))
            sock.sendall(HEAD + b'content-length: 16000000\r\n\r\n{"token_ids":[' + b"1," * (3 * MIB // 2))
        _until(lambda: _resident(service.pid) > before + 100 * MIB, "all of it is held")
        stack.close()
        _until(lambda: _resident(service.pid) < before + 60 * MIB, "it is given back")
