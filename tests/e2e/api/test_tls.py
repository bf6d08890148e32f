"""TLS on REST: who may connect, what a renewed certificate takes, and what a handshake that never ends costs."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import uvloop

from api.access import tls as tls_module
from api.rest.limits import RestLimits
from api.server import ServerSettings, serve
from indexer.errors import SettingsError
from indexer.settings import Tls
from tests.support.certificates import Authority
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, request, served, served_in_thread

Address = tuple[str, int]
Run = Callable[[Coroutine[None, None, None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
"""The service runs on uvloop, whose TLS is its own."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority whose files are the test's own."""
    return Authority(tmp_path)


def _client(authority: Authority, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def _ask(address: Address, context: ssl.SSLContext) -> int:
    """The status of a lookup on a connection of its own."""
    connection = http.client.HTTPSConnection(*address, timeout=DEADLINE_S, context=context)
    try:
        status, _, _ = request(connection, "POST", "/v1/lookup", b'{"token_ids":[1]}', content_type="application/json")
    finally:
        connection.close()
    return status


@contextlib.contextmanager
def _connected(address: Address, context: ssl.SSLContext, session: ssl.SSLSession | None) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(address, timeout=DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=address[0], session=session) as secured,
    ):
        yield secured


async def _open(
    address: str, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.removeprefix("https://").split(":")
    return await asyncio.open_connection(host, int(port), ssl=context)


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(4_096):
            received += part
    return received


def test_lookups_and_all_else_go_over_tls(authority: Authority) -> None:
    """The short way of lookups, too."""
    with served_in_thread(FakeNode(), ServerSettings(port=0, tls=authority.tls())) as address:
        connection = http.client.HTTPSConnection(*address, timeout=DEADLINE_S, context=_client(authority))
        with contextlib.closing(connection):
            for _ in range(3):  # the third one's head is known
                body = json.dumps({"token_ids": [1, 2]}).encode()
                status, _, _ = request(connection, "POST", "/v1/lookup", body, content_type="application/json")
                assert 200 == status
            assert 200 == request(connection, "GET", "/healthz")[0]


def test_who_speaks_plainly_to_tls_is_not_answered(authority: Authority) -> None:
    """Nor does it disturb others."""
    with served_in_thread(FakeNode(), ServerSettings(port=0, tls=authority.tls())) as address:
        with socket.create_connection(address, timeout=DEADLINE_S) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"HTTP" not in _until_closed(plain)
        assert 200 == _ask(address, _client(authority))


def test_a_caller_without_a_certificate_is_refused_where_one_is_asked_for(authority: Authority, tmp_path: Path) -> None:
    """Nor is one of another authority let in."""
    stranger = Authority(tmp_path, "stranger")
    settings = ServerSettings(port=0, tls=authority.tls(client_ca=authority.file))
    with served_in_thread(FakeNode(), settings) as address:
        known = authority.issue("router", files="router")
        unknown = stranger.issue("router", files="unknown")

        for pair in (None, unknown):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                _ask(address, _client(authority, pair))
        assert 200 == _ask(address, _client(authority, known))


def test_a_broken_renewal_leaves_the_certificate_in_force_and_is_said_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a renewal is no outage."""
    settings, node = ServerSettings(port=0, tls=authority.tls()), FakeNode()
    with served_in_thread(node, settings) as address:
        Path(str(settings.tls.key)).write_text("no key")
        for _ in range(3):
            assert 200 == _ask(address, _client(authority))
    assert [("tls", False)] == node.reloads
    assert 1 == sum("the old certificate stays" in message for message in caplog.messages)


def test_a_callers_authority_that_is_taken_away_counts_for_resumed_sessions_too(
    authority: Authority, tmp_path: Path
) -> None:
    """A session that is resumed would not show the certificate again."""
    other = Authority(tmp_path, "other")
    ca = tmp_path / "callers.pem"
    ca.write_bytes(authority.file.read_bytes())
    settings = ServerSettings(port=0, tls=authority.tls(client_ca=ca))
    with served_in_thread(FakeNode(), settings) as address:
        context = _client(authority, authority.issue("router", files="router"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # whose session is there as soon as the handshake is done
        with _connected(address, context, None) as first:
            session = first.session
        with _connected(address, context, session) as again:
            assert again.session_reused
        ca.write_bytes(other.file.read_bytes())

        with pytest.raises((ssl.SSLError, ConnectionError)), _connected(address, context, session):
            pass


@LOOPS
@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_never_ends_is_ended(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, hello: bytes, run: Run
) -> None:
    """Whether nothing comes or a part."""
    monkeypatch.setattr("api.tls_listener.HANDSHAKE_S", 0.2)

    async def connect() -> None:
        async with served(FakeNode(), ServerSettings(port=0, tls=authority.tls())) as addresses:
            reader, writer = await _open(addresses[0])
            writer.write(hello)
            async with asyncio.timeout(DEADLINE_S):
                with contextlib.suppress(ConnectionError):
                    assert b"HTTP" not in await reader.read()
            writer.close()

    run(connect())


@LOOPS
def test_handshakes_have_a_bound(authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is closed at once, and counted; who has shaken hands takes no place, and silent ones lose theirs."""
    monkeypatch.setattr("api.tls_listener.HANDSHAKE_S", 0.5)
    node = FakeNode()

    async def flood() -> None:
        settings = ServerSettings(port=0, tls=authority.tls(), limits=RestLimits(handshakes=3))
        async with served(node, settings) as addresses, asyncio.timeout(DEADLINE_S):
            there = [await _open(addresses[0], _client(authority)) for _ in range(5)]
            silent = [await _open(addresses[0]) for _ in range(4)]
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]  # noqa: TID251 - awaited below
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert 1 <= node.limits_reached["limits.handshakes"]
            await asyncio.wait(ends)
            there.append(await _open(addresses[0], _client(authority)))
            for reader, writer in there:
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"HTTP/1.1 200" in await reader.readline()
            for _, writer in (*there, *silent):
                writer.close()
            for end in ends:
                end.exception()

    run(flood())


@LOOPS
def test_a_handshake_under_way_does_not_hold_up_the_stop(authority: Authority, run: Run) -> None:
    """Nobody waits for a caller that says nothing."""

    async def stop_meanwhile() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(DEADLINE_S):
            async with served(FakeNode(), ServerSettings(port=0, drain_s=0.1, tls=authority.tls()), stop) as addresses:
                _, writer = await _open(addresses[0])
                stop.set()
            writer.close()

    run(stop_meanwhile())


@LOOPS
def test_a_renewed_certificate_is_shown_to_new_connections(authority: Authority, tmp_path: Path, run: Run) -> None:
    """Those that stand go on."""
    other = Authority(tmp_path, "other")

    async def renew() -> None:
        async with served(FakeNode(), ServerSettings(port=0, tls=authority.tls())) as addresses:
            _, staying = await _open(addresses[0], _client(authority))
            other.issue()  # over the files of the first
            _, fresh = await _open(addresses[0], _client(other))
            with pytest.raises(ssl.SSLCertVerificationError):
                await _open(addresses[0], _client(authority))
            assert not staying.is_closing()
            fresh.close()
            staying.close()

    run(renew())


@LOOPS
def test_the_unix_socket_stays_plain(authority: Authority, tmp_path: Path, run: Run) -> None:
    """Its file's permissions say who may."""
    path = str(tmp_path / "s")

    async def ask() -> None:
        async with served(FakeNode(), ServerSettings(port=0, uds=path, tls=authority.tls())) as addresses:
            assert addresses[0].startswith("https://127.0.0.1:")
            assert f"unix:{path}" == addresses[1]
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()

    run(ask())


@pytest.mark.parametrize("broken", ["certificate", "key", "client_ca"])
def test_what_cannot_be_used_is_told_at_the_start(authority: Authority, tmp_path: Path, broken: str) -> None:
    """Naming the setting and the file."""
    good = authority.tls(client_ca=authority.file)
    (tmp_path / "empty").write_text("")
    for name in ("empty", "absent"):
        files = {"certificate": good.certificate, "key": good.key, "client_ca": good.client_ca}
        files[broken] = str(tmp_path / name)

        with pytest.raises(SettingsError, match=r"auth\.tls: .*" + name):
            asyncio.run(serve(FakeNode(), ServerSettings(port=0, tls=Tls(**files)), asyncio.Event()))


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(authority: Authority) -> None:
    """A service has no terminal to ask on."""
    tls = authority.tls()
    encrypted = authority.encrypted(Path(str(tls.key)))
    with pytest.raises(SettingsError, match="no pair of PEM files"):
        tls_module.Certificates(Tls(certificate=tls.certificate, key=str(encrypted)))
