"""A gRPC caller that writes HTTP/2 frames itself: it can send a message in part, and count what it is let send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
DEADLINE_S: Final = 20.0
FRAME_MAX: Final = 16_384
FIRST_WINDOW: Final = 65_535
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def message(content: bytes) -> bytes:
    """As it stands in DATA frames."""
    return b"\0" + struct.pack(">I", len(content)) + content


def _head(path: str) -> bytes:
    told = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path.encode(),
        b":authority": b"x",
        b"te": b"trailers",  # codespell:ignore te
        b"content-type": b"application/grpc",
    }
    return b"".join(_literal(name, value) for name, value in told.items())


def burst(address: tuple[str, int], source: str, path: str, content: bytes, count: int) -> socket.socket:
    """So many whole calls on a connection of their own; gRPC has read them all, and this loop none, on return."""
    connection = socket.create_connection(address, source_address=(source, 0))
    calls = [
        _frame(HEADERS, END_HEADERS, stream, _head(path)) + _frame(DATA, END_STREAM, stream, message(content))
        for stream in range(1, 2 * count, 2)
    ]
    connection.sendall(PREFACE + _frame(SETTINGS, 0, 0, b"") + b"".join(calls) + _frame(PING, 0, 0, b"12345678"))
    told = connection.makefile("rb")
    while (head := told.read(9))[3:5] != bytes([PING, ACK]):
        told.read(int.from_bytes(head[:3], "big"))
    told.read(8)
    return connection


class Frames:
    """One connection. `ended`: streams that the server has ended, with all that its headers and trailers say.

    `window`: how much of each answer the server may send before `take` lets it send more.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, window: int = FIRST_WINDOW
    ) -> None:
        self._reader, self._writer = reader, writer
        self._window = self._stream_window = FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._next = 1
        self.ended: dict[int, bytes] = {}
        self._told: dict[int, bytes] = {}
        self._pongs = 0
        self._moved = asyncio.Condition()
        self.sent: dict[int, int] = {}
        told = struct.pack(">HIHI", _TABLE_SIZE, 0, _INITIAL_WINDOW, window)  # no table: headers are spelt out
        writer.write(PREFACE + _frame(SETTINGS, 0, 0, told))

    async def run(self) -> None:
        """Read what comes, until the connection ends."""
        while True:
            try:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            self._take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
            async with self._moved:
                self._moved.notify_all()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in {HEADERS, DATA, RESET}:
            if stream not in self.ended:
                self._told[stream] = self._told.get(stream, b"") + payload
                if kind == RESET or flags & END_STREAM:
                    self.ended[stream] = self._told.pop(stream)
        elif kind == WINDOW:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == PING and flags & ACK:
            self._pongs += 1
        elif kind in {PING, SETTINGS} and not flags & ACK:
            self._writer.write(_frame(kind, ACK, 0, payload if kind == PING else b""))
            self._set(payload if kind == SETTINGS else b"")

    def _set(self, settings: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", settings):
            if name == _INITIAL_WINDOW:
                self._windows = {stream: left + value - self._stream_window for stream, left in self._windows.items()}
                self._stream_window = value

    def begin(self, path: str) -> int:
        """A call; its stream."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._stream_window
        self.sent[stream] = 0
        self._writer.write(_frame(HEADERS, END_HEADERS, stream, _head(path)))
        return stream

    def take(self, stream: int, count: int) -> None:
        """Let the server send so many bytes more of an answer."""
        self._writer.write(_frame(WINDOW, 0, stream, struct.pack(">I", count)))

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """As the server's windows allow; what it has ended is not sent on."""
        while data:
            async with self._moved:
                await self._moved.wait_for(lambda: stream in self.ended or self._may_send(stream) > 0)
            if stream in self.ended:
                return
            part, data = data[: self._may_send(stream)], data[self._may_send(stream) :]
            self._window -= len(part)
            self._windows[stream] -= len(part)
            self.sent[stream] += len(part)
            self._writer.write(_frame(DATA, END_STREAM if end and not data else 0, stream, part))
            await self._writer.drain()

    def _may_send(self, stream: int) -> int:
        return min(FRAME_MAX, self._window, self._windows[stream])

    async def answered_ping(self) -> None:
        """Return when the server has read all that was sent so far, and said what it had to say before."""
        wanted = self._pongs + 1
        self._writer.write(_frame(PING, 0, 0, b"12345678"))
        async with self._moved:
            await self._moved.wait_for(lambda: self._pongs >= wanted)

    async def until_ended(self, count: int) -> None:
        """So many calls."""
        async with self._moved:
            await self._moved.wait_for(lambda: len(self.ended) >= count)

    async def until_answering(self, count: int) -> None:
        """So many calls whose answer the server has begun to send."""
        async with self._moved:
            await self._moved.wait_for(lambda: len({*self._told, *self.ended}) >= count)

    def vanish(self) -> None:
        """Be gone without a word."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@contextlib.asynccontextmanager
async def speaking(address: str, source: str | None = None, window: int = FIRST_WINDOW) -> AsyncIterator[Frames]:
    """A caller, from `source` if one is given."""
    host, _, port = address.partition(":")
    local = None if source is None else (source, 0)
    frames = Frames(*await asyncio.open_connection(host, int(port), local_addr=local), window=window)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(frames.run())
        try:
            yield frames
        finally:
            frames.close()


def unread(address: str, source: str = "127.0.0.2", window: int = 0) -> AbstractAsyncContextManager[Frames]:
    """A caller from another address than all others, who takes nothing of any answer until told to."""
    return speaking(address, source, window)
