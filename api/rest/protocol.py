"""uvicorn's HTTP protocol with the limits it lacks: on a request's head in bytes and time, and on silence before it.

[I/O] One object a connection. Beyond a limit: 431 where there is something to answer, else the connection just ends.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 2**10
"""Request line and headers, counted in whole reads. Several times what gateways add."""
HEAD_WAIT_S: Final = 10.0
"""From the first byte of a head that does not come in one piece to its last."""

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHttpProtocol(HttpToolsProtocol):
    """Costs nothing where a head arrives in one read, as nearly all do."""

    _head_open = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _quiet_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection that says nothing ends like one that says nothing more."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of ours outlives the connection."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; then, if a head is still open, see what it has cost so far."""
        super().data_received(data)
        if not self._head_open or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WAIT_S, super().timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """The connection may have been silent for too long: since this timer was set, or since `_stay`."""
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _stay(self) -> None:
        """A request was answered beside the general way: silence begins anew. Cheaper than a new timer each time."""
        self._quiet_since = self.loop.time()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._head_open = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_is_whole()
        super().on_headers_complete()

    def _head_is_whole(self) -> None:
        self._head_open = False
        if self._head_timer is not None:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
