"""uvicorn's HTTP protocol with the limits it lacks: on a request's head in bytes and time, and on silence before it.

[I/O] One object a connection. Beyond a limit: 431 where there is something to answer, else the connection just ends.
What the parser refuses is answered as any refusal is. A wish to upgrade is passed over, as HTTP allows: clients that
can do HTTP/2 send one with their first request, and the parser would take the body for the other protocol.
"""

from __future__ import annotations

import asyncio
import re
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.problems import RequestRefused, problem_response
from api.rest.request_ids import RequestIds

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

HEAD_BYTES_MAX: Final = 64 * 2**10
"""Request line and headers, counted in whole reads. Several times what gateways add."""
HEAD_WAIT_S: Final = 10.0
"""From the first byte of a head that does not come in one piece to its last."""

_METHOD: Final = re.compile(rb"[A-Z]{1,32} [*/]")
_UPGRADE: Final = re.compile(rb"(?i)(?<=\r\nup)grade(?=:)")
_PASSED_OVER: Final = b"-was"
_TOO_LARGE: Final = RequestRefused(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head.too_large",
    f"request line and headers are larger than {HEAD_BYTES_MAX} bytes",
)
_NO_METHOD: Final = RequestRefused(HTTPStatus.NOT_IMPLEMENTED, "method.unknown", "no such method is known here")
_NO_REQUEST: Final = RequestRefused(HTTPStatus.BAD_REQUEST, "request.malformed", "this is no HTTP/1.1 request")


class BoundedHttpProtocol(HttpToolsProtocol):
    """Costs nothing where a head arrives in one read, as nearly all do."""

    _head_open = False
    _head_bytes = 0
    _head_fresh = False
    """The open head began in the read that is being parsed: behind the end of another request, perhaps."""
    _head_timer: asyncio.TimerHandle | None = None
    _quiet_since = 0.0
    _running: RequestResponseCycle | None = None
    """The request that is being answered; later ones of a connection wait in `pipeline`."""
    _read = b""
    """What the parser is looking at."""
    _between = True
    """The parser has seen the end of all messages that it has seen the beginning of."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection that says nothing ends like one that says nothing more."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of ours outlives the connection."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        running = self._running
        if running is not None and not running.response_complete:  # uvicorn tells only the request that came last
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A request's turn has come, at once or after others of its connection."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse; then, if a head is still open, see what it has cost so far."""
        if self._between or self._head_open:
            data = _without_upgrade(data)
        self._read = data
        whole = self._between or self._head_open
        self._head_fresh = False
        super().data_received(data)
        self._read = b""
        if not self._head_open or self.transport.is_closing():
            return
        self._head_bytes += len(data) if whole or not self._head_fresh else 0
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(_TOO_LARGE)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WAIT_S, super().timeout_keep_alive_handler)

    def send_400_response(self, _msg: str) -> None:
        """The parser refuses; called where its error is handled."""
        unknown = isinstance(sys.exception(), httptools.HttpParserInvalidMethodError)
        self._refuse(_NO_METHOD if unknown and _METHOD.match(self._read) else _NO_REQUEST)

    def _refuse(self, refusal: RequestRefused) -> None:
        """Answer, and end the connection: nobody knows where a next request would begin.

        Where an earlier request is not answered yet its answer is the last thing the caller gets.
        """
        if self._running is not None and not self._running.response_complete:
            self.pipeline.clear()
            self._running.keep_alive = False
            self.flow.pause_reading()
            return
        status, headers, body = problem_response(refusal, RequestIds().of(None))
        lines = b"".join(b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close")))
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        self.transport.close()

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
        self._head_open = self._head_fresh = True
        self._between = False
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_is_whole()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._between = True
        super().on_message_complete()

    def _head_is_whole(self) -> None:
        self._head_open = False
        if self._head_timer is not None:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _without_upgrade(data: bytes) -> bytes:
    """The same bytes with another header in the place of `Upgrade`, in the first head that ends or goes on in them."""
    end = data.find(b"\r\n\r\n")
    head = data if end < 0 else data[:end]
    if b"\nupgrade:" not in head.lower():
        return data
    return _UPGRADE.sub(_PASSED_OVER, head) + data[len(head) :]
