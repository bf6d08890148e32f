"""A TCP proxy of the tests' own: passes bytes on; on request it delays, stalls, cuts, half-opens or severs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

Way = Literal["pass", "delay", "stall_requests", "stall_replies", "reset"]
"""`stall_requests`: the server sees nothing. `stall_replies`: it acts, and nobody hears of it (a half-open connection).
`reset`: connections are cut with RST, standing and new ones."""


class Proxy:
    """In front of a port on loopback, itself speaking TLS where it has a context. `url` is where clients go."""

    def __init__(self, to_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._to_port = to_port
        self._tls = tls
        self._way: Way = "pass"
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut = asyncio.Event()
        self._closing = asyncio.Event()
        self.delay_s = 0.05
        self.connections = 0
        self._asked = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.port = 0

    @property
    def url(self) -> str:
        """Of the proxy."""
        return f"redis://127.0.0.1:{self.port}"

    def aim(self, to_port: int) -> None:
        """Where new connections lead to."""
        self._to_port = to_port

    def set(self, way: Way) -> None:
        """From now on; what is held back while stalling goes on when it ends."""
        self._way = way
        self._changed.set()
        self._changed = asyncio.Event()
        if way == "reset":
            for writer in self._writers:
                _reset(writer)

    def sever(self) -> None:
        """Standing connections lead nowhere from here on, and no client is told; new ones pass. As behind a cut."""
        self._cut.set()
        self._cut = asyncio.Event()

    async def next_request(self) -> None:
        """Until a client asks something."""
        self._asked.clear()
        await self._asked.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._way == "reset":
            _reset(writer)
            return
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:  # the server is not there: what a client would have met
            _reset(writer)
            return
        self._writers |= {writer, to_writer}
        self._idle.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                pumps = [
                    tasks.create_task(self._pump(reader, to_writer, "stall_requests")),
                    tasks.create_task(self._pump(to_reader, writer, "stall_replies")),
                ]
                tasks.create_task(self._part(pumps, to_writer))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= {writer, to_writer}
            if not self._writers:
                self._idle.set()
            writer.close()
            to_writer.close()

    async def _part(self, pumps: list[asyncio.Task[None]], to_writer: asyncio.StreamWriter) -> None:
        await self._cut.wait()
        for pump in pumps:
            pump.cancel()
        self._writers.discard(to_writer)
        to_writer.close()
        await self._closing.wait()
        raise ConnectionResetError

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held_by: Way) -> None:
        while data := await reader.read(65_536):
            if held_by == "stall_requests":
                self._asked.set()
            if self._way == "delay":
                await asyncio.sleep(self.delay_s)
            while self._way == held_by:
                await self._changed.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side hung up: so does the other

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listening, until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.set("pass")
            self._closing.set()
            for writer in list(self._writers):
                _reset(writer)
            await self._idle.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ProxyThread:
    """A proxy for blocking tests, on a loop in a thread of its own. A context manager."""

    def __init__(self, to_port: int) -> None:
        self._proxy = Proxy(to_port)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")

    @property
    def url(self) -> str:
        """Of the proxy."""
        return self._proxy.url

    @property
    def port(self) -> int:
        """Of the proxy."""
        return self._proxy.port

    def aim(self, to_port: int) -> None:
        """Where new connections lead to."""
        self._proxy.aim(to_port)

    def set(self, way: Way, *, delay_s: float = 0.05) -> None:
        """From now on."""
        self._proxy.delay_s = delay_s
        self._loop.call_soon_threadsafe(self._proxy.set, way)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20), "the proxy does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the proxy does not end"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self._proxy.running():
            self._ready.set()
            await self._stop.wait()
