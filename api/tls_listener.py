"""A listening socket whose callers shake hands, and how many may at once.

[I/O] A loop's own server knows of a connection only once its handshake is done: until then nobody counts it, and
callers that never finish one would take all file descriptors there are. Here a place is taken at the accept. Who finds
none is closed without a word: there is none that it would understand yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Final

from api.access.tls import HANDSHAKE_S
from api.admission import Shares, peer_of

if TYPE_CHECKING:
    from collections.abc import Callable

ACCEPT_AGAIN_S: Final = 0.1
"""After an accept that failed, for want of file descriptors mostly."""


class TlsListener:
    """Listens as long as `run` runs. `shaking`: the places of those that shake hands."""

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.Protocol], shaking: Shares
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._make = make
        self._shaking = shaking
        self._running: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup, backlog: int) -> None:
        """Listen, in that group."""
        self._sock.settimeout(0)
        self._sock.listen(backlog)
        self._running = tasks.create_task(self._run(), name="tls-listener")

    def close(self) -> None:
        """Nobody is let in any more, and handshakes under way are cut."""
        if self._running is not None:
            self._running.cancel()

    async def wait_closed(self) -> None:
        """Return when it has come to that."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._sock)
                except OSError:
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                caller = peer_of(address[0])
                if self._shaking.take(caller):
                    tasks.create_task(self._shake(connection, caller), name="tls-handshake")
                else:
                    connection.close()

    async def _shake(self, connection: socket.socket, caller: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):  # all that can be wrong with a caller is one
                await loop.connect_accepted_socket(
                    self._make, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
                )
        finally:
            self._shaking.give_back(caller)
