"""Servers behind a gateway that cost next to nothing: each request is answered as soon as it is there.

Lives in a `Child` on a uvloop. The answer's body is the port of who gave it. Does I/O.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self, cast

if TYPE_CHECKING:
    from types import TracebackType

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_CHUNKED: Final = b"transfer-encoding: chunked"
_LAST: Final = b"0\r\n\r\n"


class _Answering(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._answer = b""
        self._got = b""
        self._left = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who one is."""
        self._transport = cast("asyncio.WriteTransport", transport)
        name = str(transport.get_extra_info("sockname")[1]).encode()
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(name), name)

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self._got += data
        end = self._got.find(_END)
        if end < 0:
            return
        head = self._got[:end].lower()
        if _CHUNKED in head:
            whole = self._got.endswith(_LAST)
        else:
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            whole = len(self._got) >= end + len(_END) + length
        if whole and self._transport is not None:
            self._got = b""
            self._transport.write(self._answer)


class Backends:
    """So many of them, on free ports of loopback."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._servers = [await loop.create_server(_Answering, "127.0.0.1", 0) for _ in range(self._count)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()

    def ports(self) -> list[int]:
        """Where they are."""
        return [int(server.sockets[0].getsockname()[1]) for server in self._servers]
