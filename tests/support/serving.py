"""The REST face on a real socket, for tests: in a thread of its own, or inside the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from api.access.gates import Gates
from api.ports import NodePort
from api.server import ServerSettings, serve

JSON, PACKED = "application/json", "application/msgpack"
DEADLINE_S = 20.0
"""For anything to happen that must happen; reaching it is the failure."""


@contextlib.asynccontextmanager
async def served(
    node: NodePort, settings: ServerSettings, stop: asyncio.Event | None = None, gates: Gates | None = None
) -> AsyncIterator[Sequence[str]]:
    """The addresses of a server that runs until the block ends, or `stop` is set inside it."""
    stop = stop or asyncio.Event()
    bound: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(node, settings, stop, gates=gates, announce=bound.set_result))
        try:
            yield await asyncio.wait_for(bound, DEADLINE_S)
        finally:
            stop.set()


@contextlib.contextmanager
def served_in_thread(node: NodePort, settings: ServerSettings, gates: Gates | None = None) -> Iterator[tuple[str, int]]:
    """Host and port of a server in a thread, for tests that speak blocking HTTP."""
    stop = asyncio.Event()
    loop_of: list[asyncio.AbstractEventLoop] = []
    bound: list[str] = []
    announced = threading.Event()

    async def run() -> None:
        loop_of.append(asyncio.get_running_loop())

        def announce(addresses: Sequence[str]) -> None:
            bound.extend(addresses)
            announced.set()

        await serve(node, settings, stop, gates=gates, announce=announce)

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="served")
    thread.start()
    try:
        assert announced.wait(DEADLINE_S), "the server did not come up"
        where = urlsplit(bound[0])
        assert where.hostname is not None
        assert where.port is not None
        yield where.hostname, where.port
    finally:
        loop_of[0].call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "the server did not end"


def exchange(address: tuple[str, int], sent: bytes, *, pieces: Sequence[int] = (), half_close: bool = False) -> bytes:
    """Send bytes as they are, cut at `pieces`; everything that comes back until the server closes.

    With `half_close` the server is told that nothing more will come. A reset is a way to close, too.
    """
    received = b""
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            at = 0
            for cut in (*pieces, len(sent)):
                sock.sendall(sent[at:cut])
                at = cut
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65_536):
                received += part
        except TimeoutError:
            raise
        except OSError:
            return received
    return received


def post_report(
    path: str, connection: http.client.HTTPConnection, body: object, media_type: str = JSON
) -> tuple[int, Any]:
    """Status and answer."""
    encode = msgspec.json.encode if media_type == JSON else msgspec.msgpack.encode
    status, headers, content = request(connection, "POST", path, encode(body), content_type=media_type)
    packed = headers["content-type"] == PACKED
    return status, msgspec.msgpack.decode(content) if packed else msgspec.json.decode(content)


def request(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, lower-case headers and body; `content_type` and the like name headers."""
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
