"""Which doors the client opens, what it shows there, and what it does not let out."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from api.cli.client import CommandFailed, ServiceClient
from api.server import ServerSettings
from kvindexer_client import AsyncClient, Client, Picked, PickedPod, Refused, Unreachable
from tests.support.bare_router import run_bare
from tests.support.certificates import Authority
from tests.support.fake_node import FakeNode
from tests.support.serving import served_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "kvi-planted-token"  # noqa: S105  looked for below
SALT = "planted-salt"
LONG_S = 20.0
ASKS_FOR_ONE = r"does it ask for a certificate of yours \(cert=, of a command --cert and --key\)"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority whose files are the test's own."""
    return Authority(tmp_path)


def _pair(authority: Authority, name: str) -> tuple[str, str]:
    certificate, key = authority.issue(files=name)
    return str(certificate), str(key)


def test_https_with_an_authority_of_ones_own(authority: Authority) -> None:
    """Trusted where it is named, and by nobody else."""
    with served_in_thread(FakeNode(), ServerSettings(port=0, tls=authority.tls())) as (host, port):
        url = f"https://{host}:{port}"
        with Client(url, ca=str(authority.file), timeout_s=LONG_S) as index:
            assert 3 == index.lookup([1, 2, 3]).prompt_tokens
        with Client(url, timeout_s=LONG_S) as index, pytest.raises(Unreachable, match="certificate is not trusted"):
            index.lookup([1, 2, 3])


def test_a_certificate_of_ones_own_opens_a_door_that_wants_one(authority: Authority) -> None:
    """Without it there is no answer, and the failure says what may be missing, in whichever way it is hung up."""
    tls = authority.tls(client_ca=authority.file)
    with served_in_thread(FakeNode(), ServerSettings(port=0, tls=tls)) as (host, port):
        url, ca = f"https://{host}:{port}", str(authority.file)
        with Client(url, ca=ca, cert=_pair(authority, "router"), timeout_s=LONG_S) as index:
            assert 1 == index.lookup([1]).prompt_tokens
        for _ in range(5):
            with Client(url, ca=ca, timeout_s=LONG_S) as index, pytest.raises(Unreachable, match=ASKS_FOR_ONE):
                index.lookup([1])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_is_asked_for_is_told_whatever_asks(authority: Authority, version: ssl.TLSVersion) -> None:
    """A gateway in front: older TLS refuses in the handshake, newer TLS after it."""
    certificate, key = authority.issue()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    with _elsewhere() as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # which would print it
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        url = f"https://127.0.0.1:{server.server_port}"
        for _ in range(20):  # what is read first, the alert or the end, is chance
            asking = Client(url, ca=str(authority.file), timeout_s=LONG_S)
            with asking as index, pytest.raises(Unreachable, match=ASKS_FOR_ONE):
                index.lookup([1])


def test_files_that_are_none_are_told_at_once(authority: Authority, tmp_path: Path) -> None:
    """By the command that was given them; a key with a password is refused, not asked for."""
    certificate, key = authority.issue(files="router")
    locked = authority.encrypted(key)
    for given in (
        {"ca": str(tmp_path / "none")},
        {"ca": str(key)},
        {"ca": str(authority.file), "cert": (str(certificate), str(locked))},
    ):
        with pytest.raises(CommandFailed, match=r"\A--(ca|key): /") as caught:
            ServiceClient("https://127.0.0.1:1", **given)  # type: ignore[arg-type]
        assert 2 == caught.value.exit_code


@pytest.mark.parametrize("token", ["", "a\nb", "ä"])
def test_a_token_that_no_header_holds_is_refused_and_not_repeated(token: str) -> None:
    """Later it would stand in the text of an error."""
    with pytest.raises(ValueError, match="a token is printable ASCII"):
        Client("http://127.0.0.1:1", token)


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Remembers what came, and answers what it is told to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Whatever the path."""
        body = self.rfile.read(int(self.headers["content-length"]))
        seen: list[Any] = self.server.seen  # type: ignore[attr-defined]
        seen.append((self.path, dict(self.headers), body, self.client_address))
        status, headers, answer = self.server.answers.pop(0)  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
        if headers.get("x-then") == "hang up":
            self.close_connection = True  # without having said so

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def _elsewhere(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[http.server.HTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        server.seen, server.answers = [], list(answers)  # type: ignore[attr-defined]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


ANSWER = json.dumps({"state": "exact", "pods": [], "of_a_later_version": [1]}).encode()


def test_token_and_salt_are_in_headers_alone() -> None:
    """Not in a URL, not in a text of the client's, not in an error."""
    refusal = json.dumps({"code": "x.y", "detail": "no", "errors": [{"field": "f", "rule": "r"}, 3]}).encode()
    with _elsewhere((200, {}, ANSWER), (403, {"retry-after": "3"}, refusal)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with Client(url, SECRET, timeout_s=LONG_S) as index:
            assert [1] == index.lookup([1], cache_salt=SALT, model="m").raw["of_a_later_version"]
            with pytest.raises(Refused) as caught:
                index.lookup([1], cache_salt=SALT)
            texts = [repr(index), str(caught.value), repr(caught.value)]
        path, headers, body, _ = server.seen[0]  # type: ignore[attr-defined]

    assert ("/v1/lookup?model=m", b"\1\0\0\0") == (path, body)
    assert (f"Bearer {SECRET}", SALT) == (headers["authorization"], headers["x-kvindexer-cache-salt"])
    assert 0 < int(headers["x-kvindexer-timeout-ms"]) < LONG_S * 1000
    assert [] == [text for text in texts if SECRET in text or SALT in text]
    assert (403, "x.y", "no", 3.0) == (
        caught.value.status,
        caught.value.code,
        caught.value.detail,
        caught.value.retry_after_s,
    )
    assert [("f", "r", None, None)] == caught.value.fields


def test_a_kept_connection_that_was_closed_is_no_failure() -> None:
    """The second request finds it closed, sooner or later, and goes out again on another one."""
    with _elsewhere(*[(200, {"x-then": "hang up"}, ANSWER)] * 20) as server:
        with Client(f"http://127.0.0.1:{server.server_port}", timeout_s=LONG_S) as index:
            for _ in range(20):
                assert "exact" == index.lookup([1]).state
        ports = {port for _, _, _, (_, port) in server.seen}  # type: ignore[attr-defined]

    assert 20 == len(ports)


def test_connections_are_kept() -> None:
    """One after another goes over the same."""
    with _elsewhere(*[(200, {}, ANSWER)] * 5) as server:
        with Client(f"http://127.0.0.1:{server.server_port}", timeout_s=LONG_S) as index:
            for _ in range(5):
                index.lookup([1])
        ports = {port for _, _, _, (_, port) in server.seen}  # type: ignore[attr-defined]

    assert 1 == len(ports)


def test_a_batch_keeps_what_was_refused_in_its_place() -> None:
    """Beside the answers to the others."""
    problem = {
        "title": "Unprocessable Entity",
        "status": 422,
        "code": "token_ids.not_u32",
        "detail": "no",
        "errors": [],
    }
    items = json.dumps({"items": [json.loads(ANSWER), problem]}).encode()
    with (
        _elsewhere((200, {}, items)) as server,
        Client(f"http://127.0.0.1:{server.server_port}", timeout_s=LONG_S) as index,
    ):
        answer, refused = index.batch([{"token_ids": [1], "model": None}, {"token_ids": b"\2\0\0\0"}])
        sent = json.loads(server.seen[0][2])  # type: ignore[attr-defined]

    assert {"items": [{"token_ids": [1]}, {"token_ids": [2]}]} == sent
    assert isinstance(refused, Refused)
    assert not isinstance(answer, Refused)
    assert ("exact", "token_ids.not_u32") == (answer.state, refused.code)


def test_a_pick_is_lines() -> None:
    """Or nothing at all."""
    headers = {"x-kvindexer-state": "exact", "x-kvindexer-request-id": "r"}
    with (
        _elsewhere(
            (200, headers, b"a:1 0.5 32 live\n%5Bb%25c%5D 0.1 16 stale\n"),
            (204, {"x-kvindexer-reason": "no_match"}, b""),
        ) as server,
        Client(f"http://127.0.0.1:{server.server_port}", timeout_s=LONG_S) as index,
    ):
        body = b'{"model": "m", "prompt": "Once"}'
        picked = index.pick(body, pods=["a:1", "b"], truncated=True)
        assert Picked([PickedPod("a:1", 0.5, 32, "live"), PickedPod("[b%c]", 0.1, 16, "stale")], "exact", "r") == picked
        assert Picked([], "no_signal", "", "no_match") == index.pick({"prompt": "x"})
        _, sent, told, _ = server.seen[0]  # type: ignore[attr-defined]

    assert (body, "a:1,b", "true") == (told, sent["x-kvindexer-pods"], sent["x-kvindexer-truncated"])


def test_many_threads_share_one_client() -> None:
    """Each gets its own answer."""
    answers: dict[int, int] = {}
    with (
        served_in_thread(FakeNode(), ServerSettings(port=0)) as (host, port),
        Client(f"http://{host}:{port}", timeout_s=LONG_S) as index,
    ):

        def ask(count: int) -> None:
            answers[count] = index.lookup(range(count)).prompt_tokens

        threads = [threading.Thread(target=ask, args=(count,)) for count in range(1, 33)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {count: count for count in range(1, 33)} == answers


FORKS = """
import os, sys, warnings
import kvindexer_client as k

with k.Client(sys.argv[1], timeout_s=20.0) as index:
    told = [index.lookup([1]).prompt_tokens]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside a thread, which is what is tried
        child = os.fork()
    if child == 0:
        try:
            os._exit(10 + index.lookup([1, 2]).prompt_tokens)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    print(*told, os.waitstatus_to_exitcode(status), index.lookup([1, 2, 3]).prompt_tokens)
"""


def test_a_forked_process_asks_on_connections_of_its_own(bare: Path) -> None:
    """A client that was made, and used, before its workers were forked."""
    with served_in_thread(FakeNode(), ServerSettings(port=0)) as (host, port):
        assert ["1", "12", "3"] == run_bare(bare, FORKS, f"http://{host}:{port}").split()


def test_a_closed_client_says_so() -> None:
    """And closes twice."""
    index = Client("http://127.0.0.1:1")
    index.close()
    index.close()

    assert ["a"] == index.rank(["a"], [1]).pods
    with pytest.raises(Unreachable, match="closed"):
        index.lookup([1])


def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    """`rank` swallows failures, never the wish of its caller to end."""

    async def cancelled(url: str) -> bool:
        async with AsyncClient(url) as index:
            asking = asyncio.ensure_future(index.rank(["a"], [1], timeout_s=LONG_S))  # noqa: TID251  cancelled below
            await asyncio.sleep(0)
            asking.cancel()
            try:
                await asking
            except asyncio.CancelledError:
                return True
            return False

    with served_in_thread(FakeNode(), ServerSettings(port=0)) as (host, port):
        assert asyncio.run(cancelled(f"http://{host}:{port}"))
