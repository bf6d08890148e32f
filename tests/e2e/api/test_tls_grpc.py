"""The credentials of a gRPC server: whose certificate is asked for, and what a renewed one takes."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio

from api.access.tls import grpc_credentials
from indexer.settings import Tls
from tests.support.certificates import Authority
from tests.support.serving import DEADLINE_S

Pair = tuple[Path, Path]


async def _echo(asked: bytes, _context: object) -> bytes:
    return asked


async def _ask(port: int, authority: Authority, pair: Pair | None) -> bool:
    """Whether a call on a connection of its own is answered."""
    certificate, key = (None, None) if pair is None else (pair[0].read_bytes(), pair[1].read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), key, certificate)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        try:
            return await channel.unary_unary("/t.T/Echo")(b"x", timeout=DEADLINE_S) == b"x"
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False


def test_callers_show_certificates_and_renewed_files_count(tmp_path: Path) -> None:
    """Certificate, key and authority, without a restart."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    tls = authority.tls(client_ca=authority.file)
    key = Path(str(tls.key))
    known, unknown = authority.issue("router", files="router"), other.issue("router", files="unknown")

    async def run() -> None:
        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(_echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Echo": method}),))
        credentials = grpc_credentials(tls)
        assert credentials is not None
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()

        assert not await _ask(port, authority, None)
        assert not await _ask(port, authority, unknown)
        assert await _ask(port, authority, known)

        other.issue()  # over the files of the first
        assert not await _ask(port, authority, known)
        assert await _ask(port, other, known)

        authority.file.write_bytes(other.file.read_bytes())
        assert not await _ask(port, other, known)
        assert await _ask(port, other, unknown)

        key.write_text("no key")  # noqa: ASYNC240 - a moment, in a test
        assert await _ask(port, other, unknown)
        await server.stop(None)

    asyncio.run(run())


def test_without_a_certificate_there_are_no_credentials() -> None:
    """The port is a plain one."""
    assert grpc_credentials(Tls()) is None
