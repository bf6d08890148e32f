"""The server as a process sees it: addresses, lanes and pieces, connections, and the end."""

import asyncio
import http.client
import json
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import server
from api.rest import lane
from api.rest.heads import AnswerNow, KnownHeads
from api.rest.limits import RestLimits
from api.server import ServerSettings, serve
from api.unix_listener import UDS_MODE
from indexer.errors import SettingsError
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, exchange, request, served, served_in_thread

Address = tuple[str, int]
JSON = "application/json"


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    """One server for the tests that do not end it."""
    settings = ServerSettings(port=0, limits=RestLimits(body_bytes=100_000))
    with served_in_thread(FakeNode(), settings) as bound:
        yield bound


# --- a request is the same however it arrives ------------------------------------------------------------------------


def _raw(
    body: bytes, *, content_type: str = JSON, close: bool = True, more: str = "", path: str = "/v1/lookup"
) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{more}"
    return (head + ("connection: close\r\n" if close else "") + "\r\n").encode() + body


def _told(answer: bytes) -> list[tuple[bytes, object]]:
    """Status line and document of each answer, without what differs from request to request."""
    told = []
    for part in answer.split(b"HTTP/1.1 ")[1:]:
        head, _, body = part.partition(b"\r\n\r\n")
        document = json.loads(body)
        told.append((head.split(b"\r\n")[0], {k: v for k, v in document.items() if k not in {"request_id", "took_us"}}))
    return told


_QUESTIONS = {
    "plain": (b'{"token_ids":[1,2,3],"model":"m"}', JSON, "/v1/lookup"),
    "waits": (b'{"token_ids":[1,2,3],"min_sequence":{"p":1}}', JSON, "/v1/lookup"),
    "wrong": (b'{"token_ids":[-1]}', JSON, "/v1/lookup"),
    "no json": (b"{", JSON, "/v1/lookup"),
    "empty": (b"", JSON, "/v1/lookup"),
    "no form": (b'{"token_ids":[1]}', "text/plain", "/v1/lookup"),
    "options": (b'{"token_ids":[1],"limit":1}', JSON, "/v1/lookup?model=m"),
    "bytes": (struct.pack("<2I", 1, 2), "application/octet-stream", "/v1/lookup?model=m&limit=2"),
    "odd bytes": (b"123", "application/octet-stream", "/v1/lookup"),
    "too large": (b"x" * 100_001, "application/octet-stream", "/v1/lookup"),
    "large": (b'{"token_ids":[1]' + b" " * 90_000 + b"}", JSON, "/v1/lookup"),
}


@given(st.sampled_from(sorted(_QUESTIONS)), st.lists(st.floats(0, 1), max_size=3))
def test_an_answer_does_not_depend_on_how_the_request_is_cut(address: Address, name: str, cuts: list[float]) -> None:
    """Whole in one read it takes the lane, in pieces or closing its connection the general way."""
    body, content_type, path = _QUESTIONS[name]
    last = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"
    staying = _raw(body, content_type=content_type, path=path, close=False)
    closing = _raw(body, content_type=content_type, path=path)
    pieces = sorted(int(cut * len(closing)) for cut in cuts)

    assert _told(exchange(address, staying + last))[0] == _told(exchange(address, closing, pieces=pieces))[0]


def test_requests_sent_at_once_are_answered_in_order(address: Address) -> None:
    """Pipelined: lookups of the lane, of the general way, and others, each answered once."""
    bodies = [json.dumps({"token_ids": list(range(n))}).encode() for n in range(20)]
    sent = b"".join(_raw(body, close=False) for body in bodies)
    answers = _told(exchange(address, sent + _raw(b"{")))

    assert [*range(20), None] == [document.get("prompt_tokens") for _, document in answers]  # type: ignore[attr-defined]


@given(
    st.lists(st.sampled_from(sorted(_QUESTIONS)), min_size=1, max_size=6),
    st.lists(st.sampled_from(["whole", "pieces", "together"]), min_size=6, max_size=6),
)
def test_a_head_that_comes_back_means_what_it_meant(address: Address, names: list[str], ways: list[str]) -> None:
    """On one connection and over many: known heads, in whole reads, in pieces and with others behind them."""
    expected, answers = [], b""
    with socket.create_connection(address, timeout=DEADLINE_S) as connection:
        waiting = b""
        for name, way in zip(names, ways, strict=False):
            body, content_type, path = _QUESTIONS[name]
            sent = waiting + _raw(body, content_type=content_type, path=path, close=False)
            expected += _told(exchange(address, _raw(body, content_type=content_type, path=path)))
            waiting = sent if way == "together" else b""
            if waiting:
                continue
            for piece in (sent[:40], sent[40:]) if way == "pieces" else (sent,):
                connection.sendall(piece)
            answers = _read_until(connection, answers, len(expected))
        connection.sendall(waiting)
        answers = _read_until(connection, answers, len(expected))

    assert expected == _told(answers)


@pytest.mark.parametrize("header", ["user-agent", "accept: application/msgpack\r\naccept-language"])
@pytest.mark.parametrize("method", ["POST /v1/lookup", "DELETE /v1/sources/x", "GET /readyz"])
def test_nobody_decides_what_the_heads_of_others_mean(address: Address, header: str, method: str) -> None:
    """A head that was sent in two pieces, of which the second looks like a whole head of another request."""
    body = b'{"token_ids":[1,2,3]}'
    head = f"{method} HTTP/1.1\r\nhost: x\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    def ask(first: bytes) -> list[tuple[bytes, object]]:
        with socket.create_connection(address, timeout=DEADLINE_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if first:
                connection.sendall(first)
                for _ in range(3):  # so that this piece is read alone
                    ask(b"")
            connection.sendall(head + body)
            return [] if first else _told(_read_until(connection, b"", 1))

    before = ask(b"")
    ask(f"POST /v1/lookup HTTP/1.1\r\n{header}: ".encode())
    for _ in range(3):
        assert before == ask(b"")


def test_only_heads_of_answered_questions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may hold what nobody should keep: a salt, a prompt."""
    kept: list[bytes] = []

    class Heads(KnownHeads):
        def learn(self, head: bytes, answer: AnswerNow, query_string: bytes, headers: Mapping[bytes, bytes]) -> None:
            kept.append(query_string)
            super().learn(head, answer, query_string, headers)

    monkeypatch.setattr(server, "KnownHeads", Heads)
    last = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"
    with served_in_thread(FakeNode(), ServerSettings(port=0)) as bound:
        for query in ("cache_salt=geheim", "prompt=text", "limit=1"):
            with socket.create_connection(bound, timeout=DEADLINE_S) as connection:
                connection.sendall(_raw(b'{"token_ids":[1]}', close=False, path=f"/v1/lookup?{query}"))
                _read_until(connection, b"", 1)
                connection.sendall(last)

    assert [b"limit=1"] == kept


# --- bodies of several reads -----------------------------------------------------------------------------------------

_IMAGE = struct.pack("<150000I", *range(150_000))
_LONG = {
    "bytes": (_IMAGE, "application/octet-stream", "/v1/lookup?model=m"),
    "json": (b'{"token_ids":[1]' + b" " * 600_000 + b"}", JSON, "/v1/lookup"),
    "waits": (b'{"token_ids":[1],"min_sequence":{"p":1}' + b" " * 600_000 + b"}", JSON, "/v1/lookup"),
    "wrong": (b'{"token_ids":[-1]' + b" " * 600_000 + b"}", JSON, "/v1/lookup"),
    "odd": (_IMAGE + b"1", "application/octet-stream", "/v1/lookup?model=m"),
    "face": (b'{"token_ids":[1],"model_name":"m"' + b" " * 600_000 + b"}", JSON, "/query"),
    "larger": (b" " * 3_000_000 + b'{"token_ids":[1]}', JSON, "/v1/lookup"),
}


@pytest.fixture(scope="module")
def roomy() -> Iterator[Address]:
    """One server that takes long prompts."""
    with served_in_thread(FakeNode(), ServerSettings(port=0)) as bound:
        yield bound


@pytest.mark.parametrize("name", sorted(_LONG))
def test_a_long_body_is_read_where_it_stays(roomy: Address, name: str) -> None:
    """Behind a head that is new, and one that is known; what follows in the same read is the next request."""
    body, content_type, path = _LONG[name]
    expected = _told(exchange(roomy, _raw(body, content_type=content_type, path=path)))
    sent = _raw(body, content_type=content_type, path=path, close=False)
    with socket.create_connection(roomy, timeout=DEADLINE_S) as connection:
        answers = b""
        for count in (1, 2):
            connection.sendall(sent)
            answers = _read_until(connection, answers, count)
        connection.sendall(sent + sent)
        answers = _read_until(connection, answers, 4)

    assert expected * 4 == _told(answers)


@pytest.mark.parametrize("name", sorted(_LONG))
def test_a_slow_body_takes_the_general_way(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Which has a limit for that. Its connection stays what it was."""
    monkeypatch.setattr(lane, "HAND_OVER_S", 0.0)
    body, content_type, path = _LONG[name]
    sent = _raw(body, content_type=content_type, path=path, close=False)
    with served_in_thread(FakeNode(), ServerSettings(port=0)) as bound:
        expected = _told(exchange(bound, _raw(body, content_type=content_type, path=path)))
        with socket.create_connection(bound, timeout=DEADLINE_S) as connection:
            answers = b""
            for count in (1, 2):
                connection.sendall(sent[:300_000])
                exchange(bound, b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")  # the loop has gone round
                connection.sendall(sent[300_000:])
                answers = _read_until(connection, answers, count)

    assert expected * 2 == _told(answers)


def test_who_has_begun_to_ask_is_answered_at_the_end() -> None:
    """The server stops while half of a long body is there."""
    body, content_type, path = _LONG["bytes"]
    sent = _raw(body, content_type=content_type, path=path, close=False)

    async def ask() -> bytes:
        stop, bound = asyncio.Event(), asyncio.Event()
        addresses: list[str] = []

        def announce(told: Sequence[str]) -> None:
            addresses.extend(told)
            bound.set()

        async with asyncio.TaskGroup() as tasks:
            serving = serve(FakeNode(), ServerSettings(port=0), stop, announce=announce)
            running = tasks.create_task(serving, name="serve")
            await bound.wait()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(addresses[0].rpartition(":")[2]))
            writer.write(sent)
            await writer.drain()
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent[:300_000])
            await writer.drain()
            stop.set()
            writer.write(sent[300_000:])
            answers = await reader.read()
            await running
            writer.close()
            return answers

    assert b'"prompt_tokens":150000' in asyncio.run(ask()).partition(b"HTTP/1.1 200 OK")[2]


def _read_until(connection: socket.socket, answers: bytes, count: int) -> bytes:
    """Receive until so many whole answers are there."""
    while True:
        at = whole = 0
        while (end := answers.find(b"\r\n\r\n", at)) >= 0:
            length = re.search(rb"content-length: (\d+)", answers[at:end])
            assert length is not None
            at = end + 4 + int(length[1])
            whole += at <= len(answers)
        if whole >= count:
            return answers
        received = connection.recv(2**16)
        assert received, f"closed after {whole} of {count} answers"
        answers += received


@pytest.mark.parametrize("more", ["expect: 100-continue\r\n", "transfer-encoding: chunked\r\n"])
def test_unusual_requests_take_the_general_way(address: Address, more: str) -> None:
    """An expectation is met, chunks are read."""
    body = b'{"token_ids":[1]}'
    if "chunked" in more:
        sent = f"POST /v1/lookup HTTP/1.1\r\ncontent-type: {JSON}\r\n{more}connection: close\r\n\r\n".encode()
        sent += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        sent = _raw(body, more=more)

    assert re.search(rb'HTTP/1\.1 200 OK\r\n.*"prompt_tokens":1', exchange(address, sent), re.DOTALL)


_UPGRADE = "{0}: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n"


@pytest.mark.parametrize("name", ["Upgrade", "upgrade", "UPGRADE"])
@pytest.mark.parametrize("pieces", [[], [70], [180], [200]])
def test_a_wish_to_upgrade_is_passed_over(address: Address, name: str, pieces: list[int]) -> None:
    """Clients that can do HTTP/2 send one with their first request; the connection stays what it was."""
    sent = _raw(b'{"token_ids":[1,2]}', more=_UPGRADE.format(name), close=False)
    answers = _told(exchange(address, sent + _raw(b'{"token_ids":[1]}'), pieces=pieces))

    assert [2, 1] == [document["prompt_tokens"] for _, document in answers]  # type: ignore[index]


def test_a_body_that_an_upgrade_hides_is_missed_by_name(address: Address) -> None:
    """Where the header comes in two reads, and so is not passed over: rather than called empty."""
    sent = _raw(b'{"token_ids":[1]}', more="upgrade: h2c\r\nconnection: upgrade\r\n")
    cut = sent.index(b"upgrade") + 3
    told = _told(exchange(address, sent, pieces=[cut]))[0][1]

    assert "body.lost" == told.get("code", "body.lost")  # type: ignore[attr-defined]


def test_bytes_of_a_body_are_nobodys_header(address: Address) -> None:
    """Whatever they spell, and however they are cut."""
    body = b"\r\nupgrade: x\r\n\r\n\0" * 4
    sent = _raw(body, content_type="application/octet-stream", more="connection: close\r\n", close=False)
    at = sent.index(body)

    for pieces in ([], [at], [at, at + 3], [at + 1]):
        assert b'"prompt_tokens":%d' % (len(body) // 4) in exchange(address, sent, pieces=pieces)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"FOO /v1/lookup HTTP/1.1\r\nhost: x\r\n\r\n", 501, "method.unknown"),
        (b"patch /v1/pick/x HTTP/1.1\r\nhost: x\r\n\r\n", 501, "method.unknown"),
        (b"DESCRIBE /v1/pick/x HTTP/1.1\r\nhost: x\r\n\r\n", 501, "method.unknown"),
        (b"a!b /v1/pick/x HTTP/1.1\r\nhost: x\r\n\r\n", 501, "method.unknown"),
        (b"POST /v1/lookup HTTP/7.1\r\nhost: x\r\n\r\n", 400, "request.malformed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "request.malformed"),
        (b"POST /v1/lookup HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, "request.malformed"),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000, 431, "head.too_large"),
    ],
)
def test_what_is_no_request_gets_a_problem_all_the_same(address: Address, sent: bytes, status: int, code: str) -> None:
    """And the connection ends."""
    head, _, body = exchange(address, sent).partition(b"\r\n\r\n")
    problem = json.loads(body)

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/problem+json" in head
    assert (status, code) == (problem["status"], problem["code"])
    assert problem["request_id"]


def test_an_old_client_is_answered(address: Address) -> None:
    """HTTP/1.0 has no connections that stay."""
    sent = _raw(b'{"token_ids":[1]}', close=False).replace(b"HTTP/1.1", b"HTTP/1.0")

    assert exchange(address, sent).startswith(b"HTTP/1.1 200 OK")


def test_a_connection_serves_many_requests(address: Address) -> None:
    """Lane and general way in turn."""
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    statuses = []
    for _ in range(3):
        statuses.append(request(connection, "POST", "/v1/lookup", b'{"token_ids":[1]}', content_type=JSON)[0])
        statuses.append(request(connection, "POST", "/v1/hash", b'{"token_ids":[1]}', content_type=JSON)[0])
        statuses.append(
            request(connection, "POST", "/v1/lookup", b'{"token_ids":[1]' + b" " * 90_000 + b"}", content_type=JSON)[0]
        )
    connection.close()

    assert [200, 422, 200] * 3 == statuses


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 400_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 400_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: a\r\n" * 80_000,
    ],
)
def test_a_head_has_a_limit(address: Address, head: bytes) -> None:
    """431, and the connection ends; nobody else notices."""
    exchange(address, head)
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)

    assert 200 == request(connection, "GET", "/healthz")[0]
    connection.close()


def test_a_head_beyond_the_limit_is_answered(address: Address) -> None:
    """Where the caller still listens."""
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(100):
            sock.sendall(b"a" * 700)
            sock.setblocking(False)
            try:
                answer = sock.recv(100)
                break
            except BlockingIOError:
                sock.settimeout(DEADLINE_S)
        else:
            answer = sock.recv(100)

    assert answer.startswith(b"HTTP/1.1 431 ")


def test_a_head_that_never_ends_is_cut_off() -> None:
    """And so is a connection that says nothing."""
    settings = ServerSettings(port=0, keep_alive_s=1, limits=RestLimits(head_wait_s=0.05))
    with served_in_thread(FakeNode(), settings) as address:
        assert b"" == exchange(address, b"GET / HTTP/1.1\r\n")
        assert b"" == exchange(address, b"")


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_unix_socket_is_served_beside_the_port(tmp_path: Path) -> None:
    """For callers on the same machine, who count as local; its file goes with the server."""
    path = tmp_path / "kvindexer.sock"
    node = FakeNode()

    async def ask() -> bytes:
        async with served(node, ServerSettings(port=0, uds=str(path))) as addresses:
            assert [f"unix:{path}"] == [each for each in addresses if each.startswith("unix:")]
            assert UDS_MODE == path.stat().st_mode & 0o777
            reader, writer = await asyncio.open_unix_connection(path)
            body = b'{"pod":"p","endpoint":"tcp://10.0.0.1:5557"}'
            writer.write(_raw(body, path="/v1/sources"))
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 201 ")
    assert not path.exists()


def test_a_socket_file_left_behind_is_replaced(tmp_path: Path) -> None:
    """By a process that died."""
    path = tmp_path / "kvindexer.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def up() -> int:
        async with served(FakeNode(), ServerSettings(port=0, uds=str(path))) as addresses:
            return len(addresses)

    assert 2 == asyncio.run(up())


def _refused(settings: ServerSettings) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        asyncio.run(serve(FakeNode(), settings, asyncio.Event()))
    return caught.value


def test_a_socket_in_use_is_not_taken(tmp_path: Path) -> None:
    """Nor is a file that is something else."""
    path, other = tmp_path / "kvindexer.sock", tmp_path / "file"
    other.write_text("precious")
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(path))
        used.listen()

        assert "server.uds" == _refused(ServerSettings(port=0, uds=str(path))).key
    assert "server.uds" == _refused(ServerSettings(port=0, uds=str(other))).key
    assert "server.uds" == _refused(ServerSettings(port=0, uds=str(tmp_path / "x" / "y"))).key
    assert "precious" == other.read_text()


def test_a_path_that_no_socket_can_have_is_explained(tmp_path: Path) -> None:
    """A folder that is missing, and what the system's form of an address has no room for."""
    missing, long = tmp_path / "x" / "s", tmp_path / ("s" * 107)

    assert "the folder" in _refused(ServerSettings(port=None, uds=str(missing))).rule
    assert "at most 107 bytes, got" in _refused(ServerSettings(port=None, uds=str(long))).rule


def test_a_socket_that_took_its_place_is_left_alone(tmp_path: Path) -> None:
    """At the end it removes the file that it made, and no other."""
    path = tmp_path / "kvindexer.sock"

    async def up() -> list[str]:
        async with served(FakeNode(), ServerSettings(port=None, uds=str(path))) as addresses:
            path.unlink()
            path.write_text("another's")
            return list(addresses)

    assert [f"unix:{path}"] == asyncio.run(up())
    assert "another's" == path.read_text()


def test_an_address_that_cannot_be_had_is_named() -> None:
    """With the setting and the rule."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        error = _refused(ServerSettings(port=port))

        assert ("server.port", f"{port} on 127.0.0.1 is in use by another process") == (error.key, error.rule)
    assert "server.host" == _refused(ServerSettings(host="no.such.host.invalid", port=0)).key
    assert "server.host" == _refused(ServerSettings(host="203.0.113.1", port=0)).key


def test_a_name_is_served_at_all_its_addresses() -> None:
    """On one port."""

    async def up() -> list[str]:
        async with served(FakeNode(), ServerSettings(host="localhost", port=0)) as addresses:
            return list(addresses)

    addresses = asyncio.run(up())
    assert 1 == len({each.rpartition(":")[2] for each in addresses})
    assert any("127.0.0.1" in each or "[::1]" in each for each in addresses)


# --- the end ---------------------------------------------------------------------------------------------------------


async def _ask(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE_S)
    finally:
        writer.close()


def _port(addresses: list[str] | tuple[str, ...]) -> int:
    return int(addresses[0].rpartition(":")[2])


def test_a_stop_is_seen_in_readiness_first() -> None:
    """503 while load balancers look, health stays 200, and lookups are answered to the end."""

    async def scenario() -> None:
        stop = asyncio.Event()
        async with served(FakeNode(), ServerSettings(port=0, lame_duck_s=60), stop) as addresses:
            port = _port(list(addresses))
            ask = b"GET %b HTTP/1.1\r\nconnection: close\r\n\r\n"
            assert (await _ask(port, ask % b"/readyz")).startswith(b"HTTP/1.1 200 ")
            stop.set()
            await asyncio.sleep(0)
            async with asyncio.timeout(DEADLINE_S):
                while not (await _ask(port, ask % b"/readyz")).startswith(b"HTTP/1.1 503 "):
                    pass
            assert b'"stopping":true' in await _ask(port, ask % b"/readyz")
            assert (await _ask(port, ask % b"/healthz")).startswith(b"HTTP/1.1 200 ")
            assert (await _ask(port, _raw(b'{"token_ids":[1]}'))).startswith(b"HTTP/1.1 200 ")
            msg = "seen"
            raise EndEarly(msg)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert caught.group_contains(EndEarly)


class EndEarly(Exception):
    """Ends a server that would wait for its load balancers, by cancelling it."""


def test_a_request_under_way_is_answered_at_the_stop() -> None:
    """The listeners close, the answer still goes out."""

    async def scenario() -> bytes:
        stop = asyncio.Event()
        async with served(FakeNode(), ServerSettings(port=0, drain_s=20), stop) as addresses:
            sent = _raw(b'{"token_ids":[1]}')
            reader, writer = await asyncio.open_connection("127.0.0.1", _port(list(addresses)))
            writer.write(sent[:-4])
            await asyncio.sleep(0.2)  # the server has begun to read; were it later, the test would still hold
            stop.set()
            await asyncio.sleep(0.2)
            writer.write(sent[-4:])
            answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
            writer.close()
            return answer

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200 ")


def test_a_request_that_never_ends_does_not_hold_the_stop() -> None:
    """After `drain_s` everything is cut."""

    async def scenario() -> bytes:
        stop = asyncio.Event()
        async with served(FakeNode(), ServerSettings(port=0, drain_s=0), stop) as addresses:
            reader, writer = await asyncio.open_connection("127.0.0.1", _port(list(addresses)))
            writer.write(_raw(b'{"token_ids":[1]}')[:-4])
            await asyncio.sleep(0.2)
            stop.set()
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        return answer

    assert b"" == asyncio.run(scenario())


def test_nothing_is_left_when_it_is_cancelled() -> None:
    """The port is free again."""

    async def scenario() -> int:
        port = 0

        async def until_connected() -> None:
            nonlocal port
            async with served(FakeNode(), ServerSettings(port=0, lame_duck_s=60)) as addresses:
                port = _port(list(addresses))
                connections.append(await asyncio.open_connection("127.0.0.1", port))
                msg = "now"
                raise EndEarly(msg)

        connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        with pytest.raises(ExceptionGroup):
            await until_connected()
        reader, writer = connections[0]
        assert b"" == await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        return port

    with socket.create_server(("127.0.0.1", asyncio.run(scenario()))) as again:
        assert again.fileno() >= 0
