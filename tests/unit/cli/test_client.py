"""One line for a person from whatever a service, or something else at its address, answers."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from api.cli.client import CommandFailed, ServiceClient, problem_line

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


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A server that answers what its path asks for."""

    def do_GET(self) -> None:
        """Status and body by path; what came is kept."""
        self.server.heard.append((self.path, self.headers["authorization"]))  # type: ignore[attr-defined]
        status, body = {
            "/ok": (200, b"{}"),
            "/problem": (422, json.dumps(PROBLEM).encode()),
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
        with pytest.raises(CommandFailed, match="cannot be reached: no answer in time"):
            client.request("GET", "/")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://h", "http://", "http://h:99999", "http://user:pass@h"])
def test_what_is_no_url_of_a_service(url: str) -> None:
    """Told before anything is sent; credentials in it are not repeated."""
    with pytest.raises(CommandFailed, match="--url") as caught:
        ServiceClient(url)
    assert 2 == caught.value.exit_code
    assert "pass" not in str(caught.value)
