"""One line for a person from whatever a service, or something else at its address, answers."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.cli.client import CommandFailed, Named, ServiceClient, decoded, problem_line
from indexer.__main__ import main
from tests.support.certificates import Authority

PROBLEM = {
    "type": "about:blank",
    "title": "Unprocessable Entity",
    "status": 422,
    "code": "token_ids.not_u32",
    "detail": "token_ids[3]: 0..4294967295",
    "errors": [
        {"field": "token_ids[3]", "rule": "0..4294967295", "got": "-1", "hint": None},
        {"field": "modle", "rule": "unknown key", "got": None, "hint": "did you mean model?"},
    ],
    "request_id": "r",
}


DEEP = b'{"a":' + b"[" * 100_000
"""JSON that no reader follows to its bottom."""


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A server that answers what its path asks for."""

    def do_GET(self) -> None:
        """Status and body by path; what came is kept."""
        self.server.heard.append((self.path, self.headers["authorization"]))  # type: ignore[attr-defined]
        status, body = {
            "/ok": (200, b"{}"),
            "/problem": (422, json.dumps(PROBLEM).encode()),
            "/ok/deep": (200, DEEP),
            "/ok/deep%20problem": (502, DEEP),
            "/other": (502, b"<html>bad gateway"),
            "/base/ok": (200, b"[]"),
        }[self.path]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def elsewhere() -> Iterator[http.server.HTTPServer]:
    """A running server on a free port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        server.heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_answer_is_its_body(elsewhere: http.server.HTTPServer) -> None:
    """The token goes as bearer, a path in the url stays in front."""
    url = f"http://127.0.0.1:{elsewhere.server_port}"

    assert b"{}" == ServiceClient(url, "secret").request("GET", "/ok")
    assert b"[]" == ServiceClient(f"{url}/base/").request("GET", "/ok")
    assert [("/ok", "Bearer secret"), ("/base/ok", None)] == elsewhere.heard  # type: ignore[attr-defined]


def test_a_problem_shows_field_rule_value_and_hint(elsewhere: http.server.HTTPServer) -> None:
    """In one line, with where it came from."""
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    with pytest.raises(CommandFailed) as caught:
        ServiceClient(url).request("GET", "/problem")

    assert str(caught.value) == (
        f"{url} answered 422 token_ids.not_u32: token_ids[3]: 0..4294967295, got -1; "
        "modle: unknown key (did you mean model?)"
    )
    assert 1 == caught.value.exit_code


def test_another_server_is_told_by_its_status(elsewhere: http.server.HTTPServer) -> None:
    """A gateway in between may answer anything."""
    with pytest.raises(CommandFailed, match="answered 502 Bad Gateway"):
        ServiceClient(f"http://127.0.0.1:{elsewhere.server_port}").request("GET", "/other")


def test_what_is_nested_without_end_is_no_answer(elsewhere: http.server.HTTPServer) -> None:
    """Neither as a problem nor as anything else."""
    client = ServiceClient(f"http://127.0.0.1:{elsewhere.server_port}")
    with pytest.raises(CommandFailed, match="is no JSON"):
        decoded(client.request("GET", "/ok/deep"))
    with pytest.raises(CommandFailed, match="answered 502 Bad Gateway, and not in this service's words"):
        client.request("GET", "/ok/deep problem")


@pytest.mark.parametrize(
    "command",
    [
        "lookup --tokens {ids}",
        "explain --tokens {ids}",
        "sources",
        "sources --json",
        "sources history a",
        "partitions",
        "drain r",
        "report staleness",
        "report consistency",
        "compare {url} {url} --prompts {ids}",
    ],
)
@pytest.mark.parametrize("said", [DEEP, b'{"a":"\xff"}', b"[]", b"nothing"], ids=["deep", "no UTF-8", "a list", "none"])
def test_no_command_falls_over_an_answer(
    command: str, said: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is at the address: a line that says so."""
    ids = tmp_path / "ids.json"
    ids.write_text("[1, 2, 3]")
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(said)}\r\nconnection: close\r\n\r\n".encode()
    with answering(head + said) as port:
        url = f"http://127.0.0.1:{port}"
        words = command.format(ids=ids, url=url).split()
        code = main([*words, *([] if "compare" in words else ["--url", url])])
    told = capsys.readouterr().err

    assert (1, 1) == (code, told.count("\n")), told
    assert told.startswith("kvindexer: ")


def test_an_address_that_is_none_is_told_before_anything_is_sent() -> None:
    """It is what was typed that is wrong."""
    with pytest.raises(CommandFailed, match="--url: the host is no name, nor an address") as caught:
        ServiceClient("http://xn--a:8181")
    assert 2 == caught.value.exit_code


def test_a_problem_without_fields_shows_its_detail() -> None:
    """Nothing to point at."""
    body = json.dumps({**PROBLEM, "status": 404, "code": "source.unknown", "errors": [], "detail": "no source"})

    assert "404 source.unknown: no source" == problem_line(404, "Not Found", body.encode())


def test_nobody_there_is_one_line() -> None:
    """A port that nobody listens on, a name that nobody has, a server that hangs up."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(CommandFailed, match="cannot be reached: connection refused"):
            ServiceClient(url).request("GET", "/")


def test_a_server_that_says_nothing_is_left() -> None:
    """After the time-out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = ServiceClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(CommandFailed, match=r"cannot be reached: no answer in time \(0.05 s\)"):
            client.request("GET", "/")


@contextlib.contextmanager
def answering(said: bytes) -> Iterator[int]:
    """The port of a server that says this to whatever comes, and hangs up."""

    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("scheme", "said", "told"),
    [
        pytest.param("http", bytes.fromhex("00000604000000000000040001000a"), "speaks no HTTP", id="gRPC"),
        pytest.param("http", bytes.fromhex("15030100020246"), "speaks no HTTP", id="TLS"),
        pytest.param("http", b"SSH-2.0-server\r\n\r\n", "speaks no HTTP", id="something else"),
        pytest.param("http", b"", "hung up without a whole answer", id="hangs up"),
        pytest.param(
            "http", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "hung up without a whole answer", id="half"
        ),
        pytest.param("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks no TLS", id="HTTP"),
        pytest.param("https", bytes.fromhex("00000604000000000000040001000a"), "speaks no TLS", id="gRPC in plain"),
    ],
)
def test_a_wrong_port_is_told_in_words(scheme: str, said: bytes, told: str) -> None:
    """Not in those of a library; with the address that was asked, and what it may be instead."""
    with answering(said) as port, pytest.raises(CommandFailed, match=told) as caught:
        ServiceClient(f"{scheme}://127.0.0.1:{port}").request("GET", "/")

    assert str(caught.value).startswith(f"{scheme}://127.0.0.1:{port} cannot be reached: ")
    assert str(caught.value).endswith("service?")


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """With the flag that names them: one that is not there, one that holds none, a key of another certificate."""
    authority, other = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    cert, key = authority.issue("client")
    _, strange = other.issue("stranger", files="strange")
    nothing, absent = tmp_path / "nothing.pem", tmp_path / "absent.pem"
    nothing.write_text("x")
    for files, flag, file in (
        ({"ca": absent}, "--ca", absent),
        ({"ca": nothing}, "--ca", nothing),
        ({"cert": (absent, key)}, "--cert", absent),
        ({"cert": (cert, absent)}, "--key", absent),
        ({"cert": (cert, strange)}, "--key", strange),
        ({"cert": (nothing, key)}, "--cert", nothing),
    ):
        named = {name: tuple(map(str, each)) if isinstance(each, tuple) else str(each) for name, each in files.items()}
        with pytest.raises(CommandFailed) as caught:
            ServiceClient("https://127.0.0.1:9", **named)  # type: ignore[arg-type]
        assert 2 == caught.value.exit_code
        assert str(caught.value).startswith(f"{flag}: {file}: ")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://h", "http://", "http://h:99999", "http://user:pass@h"])
def test_what_is_no_url_of_a_service(url: str) -> None:
    """Told before anything is sent; credentials in it are not repeated."""
    with pytest.raises(CommandFailed, match="--url") as caught:
        ServiceClient(url)
    assert 2 == caught.value.exit_code
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("foo", None, "--url: http://HOST:PORT"),
        (Named("foo", "KVINDEXER_URL"), None, "KVINDEXER_URL: http://HOST:PORT"),
        (Named("foo", "URL_B"), "t", "URL_B: http://HOST:PORT"),
        ("http://h", "\n", "--token: a token is printable ASCII"),
        ("http://h", Named("\n", "KVINDEXER_TOKEN"), "KVINDEXER_TOKEN: a token is printable ASCII"),
        (Named("http://h", "KVINDEXER_URL"), Named("\n", "--token-b"), "--token-b: a token is printable ASCII"),
    ],
)
def test_what_is_wrong_is_blamed_on_where_it_came_from(url: str, token: str | None, told: str) -> None:
    """A flag, a variable of the environment, an argument."""
    with pytest.raises(CommandFailed) as caught:
        ServiceClient(url, token)

    assert str(caught.value).startswith(told)
    assert 2 == caught.value.exit_code
