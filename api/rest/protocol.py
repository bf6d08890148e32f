"""uvicorn's HTTP protocol with the limits it lacks.

[I/O] One object a connection. Limited are connections, a request's head in bytes, headers and time, silence between
requests and inside one, requests sent ahead, and answers that nobody takes. Beyond: 431 or 429 where there is something
to answer, else the connection just ends. Whatever a caller does or leaves undone, one of the timers here runs, or the
service itself is at work.

What the parser refuses is answered as any refusal is. A wish to upgrade is passed over, as HTTP allows: clients that
can do HTTP/2 send one with their first request, and the parser would take the body for the other protocol.
"""

from __future__ import annotations

import asyncio
import re
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn

import httptools

from api.problems import RequestRefused
from api.rest.connections import Connections, refusal_bytes
from api.uvicorn_parts import Config, HttpToolsProtocol, RequestResponseCycle, ServerState

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

BODY_OVER_S: Final = 5.0
"""Beyond `body_wait_s`, by which a body that is waited for is answered with 408: the rest of one that nobody reads."""
PIPELINED_MAX: Final = 64
"""Requests of one connection that wait for the answer to one before. Beyond, the connection ends after the last."""
TAKEN_BYTES: Final = 64 * 2**10
"""Of an answer, taken within `unread_wait_s`: who takes less does not read."""

_METHOD: Final = re.compile(rb"[\w!#$%&'*+.^`|~-]{1,32} [*/]")
"""Any that RFC 9110 allows. Gateways hand on all of them, and refuse a client for a 400 of ours."""
_UPGRADE: Final = re.compile(rb"(?i)(?<=\r\nup)grade(?=:)")
_PASSED_OVER: Final = b"-was"
_TOO_LARGE: Final = RequestRefused(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head.too_large",
    "request line and headers are larger than limits.head_bytes",
)
_TOO_MANY: Final = RequestRefused(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head.too_many_headers", "the request has too many headers"
)
_AHEAD: Final = RequestRefused(
    HTTPStatus.TOO_MANY_REQUESTS, "requests.too_many_ahead", "too many requests wait for the answer to one before"
)
_NO_METHOD: Final = RequestRefused(HTTPStatus.NOT_IMPLEMENTED, "method.unknown", "no such method is known here")
_NO_REQUEST: Final = RequestRefused(HTTPStatus.BAD_REQUEST, "request.malformed", "this is no HTTP/1.1 request")


class BoundedHttpProtocol(HttpToolsProtocol):
    """Costs nothing where a head arrives in one read, as nearly all do."""

    _caller: str | None = None
    """Whose place among the connections this one has."""
    _head_open = False
    _head_bytes = 0
    _head_fresh = False
    """The open head began in the read that is being parsed: behind the end of another request, perhaps."""
    _open_timer: asyncio.TimerHandle | None = None
    """Runs while a request is not whole: first for its head, then for its body."""
    _unread_timer: asyncio.TimerHandle | None = None
    """Runs while answers are not taken, or the connection is to end and they may not have been."""
    _unread = 0
    """Bytes of answers that were not taken when it was set."""
    _quiet_since = 0.0
    _running: RequestResponseCycle | None = None
    """The request that is being answered; later ones of a connection wait in `pipeline`."""
    _read = b""
    """What the parser is looking at."""
    _between = True
    """The parser has seen the end of all messages that it has seen the beginning of."""
    _why: RequestRefused | None = None
    """Why a callback has ended the parsing."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        places: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._places = places
        self._limits = places.limits

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection that says nothing ends like one that says nothing more."""
        super().connection_made(transport)
        self._caller = self._places.admit(self.client)
        if self._caller is None:
            self.connections.discard(self)
            self._places.turn_away(transport, self.connections)
            return
        self._quiet_since = self.loop.time()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of ours outlives the connection."""
        self._stop_open_timer()
        self._stop_unread_timer()
        self._unset_keepalive_if_required()
        if self._caller is not None:
            self._places.leave(self._caller)
            self._caller = None
        running = self._running
        if running is not None and not running.response_complete:  # uvicorn tells only the request that came last
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The caller sends nothing more, so the connection ends when it has taken what is left."""
        self._until_taken()

    def pause_writing(self) -> None:
        """Answers pile up: whoever sent the questions has some time to take them."""
        super().pause_writing()
        self._until_taken()

    def resume_writing(self) -> None:
        """They were taken."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_unread_timer()

    def _until_taken(self) -> None:
        """The connection ends where answers are not taken: a closed one stays open for them otherwise."""
        if self._unread_timer is None:
            self._unread = self.transport.get_write_buffer_size()
            self._unread_timer = self.loop.call_later(self._limits.unread_wait_s, self._not_taken)

    def _not_taken(self) -> None:
        self._unread_timer = None
        if self._unread - self.transport.get_write_buffer_size() >= TAKEN_BYTES:
            self._until_taken()
            return
        self._places.reached("limits.unread_wait_s")
        self.transport.abort()

    def _end(self) -> None:
        """Close, for answers that are on their way no sooner than they are taken."""
        self.transport.close()
        self._until_taken()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A request's turn has come, at once or after others of its connection."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse; then, if a request is not whole, see what it has cost so far."""
        if self._between or self._head_open:
            data = _without_upgrade(data)
        self._read = data
        whole = self._between or self._head_open
        self._head_fresh = False
        super().data_received(data)
        self._read = b""
        if self.transport.is_closing():
            return
        if self._head_open:
            self._head_bytes += len(data) if whole or not self._head_fresh else 0
            if self._head_bytes > self._limits.head_bytes:
                self._refuse(_TOO_LARGE)
                return
        if not self._between:
            self._while_open()
        elif self.timeout_keep_alive_task is None and (self._running is None or self._running.response_complete):
            self.timeout_keep_alive_handler()  # what came is no request, and no sign of one

    def send_400_response(self, _msg: str) -> None:
        """The parser refuses, or a callback of it; called where its error is handled."""
        error = sys.exception()
        unknown = isinstance(error, httptools.HttpParserInvalidMethodError) or "Invalid method" in str(error)
        self._refuse(self._why or (_NO_METHOD if unknown and _METHOD.match(self._read) else _NO_REQUEST))

    def _refuse(self, refusal: RequestRefused) -> None:
        """Answer, and end the connection: nobody knows where a next request would begin.

        Where earlier requests are not answered yet their answers are the last thing the caller gets. One that is not
        whole will never be.
        """
        self._stop_open_timer()
        if refusal is _TOO_LARGE:
            self._places.reached("limits.head_bytes")
        while self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        running = self._running
        if (
            running is not None
            and not running.response_complete
            and (running.response_started or not running.more_body)
        ):
            last = self.pipeline[0][0] if self.pipeline else running
            last.keep_alive = False
            self.flow.pause_reading()
            return
        self.transport.write(refusal_bytes(refusal))
        self._end()

    def on_response_complete(self) -> None:
        """One is answered; silence begins."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._until_taken()

    def timeout_keep_alive_handler(self) -> None:
        """The connection may have been silent for too long: since this timer was set, or since `_stay`."""
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif not self.transport.is_closing():
            self._end()

    def _stay(self) -> None:
        """A request was answered beside the general way: silence begins anew. Cheaper than a new timer each time."""
        self._quiet_since = self.loop.time()

    # -- the parser's callbacks ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if len(self.pipeline) >= PIPELINED_MAX:
            self._places.reached("rest.pipelined")
            self._give_up(_AHEAD)
        self._head_open = self._head_fresh = True
        self._between = False
        self._head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of them."""
        super().on_header(name, value)
        if len(self.headers) > self._limits.headers:
            self._places.reached("rest.headers")
            self._give_up(_TOO_MANY)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_is_whole()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._between = True
        self._stop_open_timer()
        super().on_message_complete()

    def _give_up(self, why: RequestRefused) -> NoReturn:
        """End the parsing, for ever: the parser says nothing more of this connection."""
        self._why = why
        raise why

    def _head_is_whole(self) -> None:
        self._head_open = False
        if self._open_timer is not None:
            self._stop_open_timer()

    # -- a request that is not whole -----------------------------------------------------------------------------------

    def _while_open(self) -> None:
        """Its head, and then its body, have a time to arrive in; set once for each, whatever comes in little pieces."""
        if self._open_timer is None:
            wait_s = self._limits.head_wait_s if self._head_open else self._limits.body_wait_s + BODY_OVER_S
            self._open_timer = self.loop.call_later(wait_s, self._never_whole)

    def _never_whole(self) -> None:
        self._open_timer = None
        if self.flow.read_paused:  # it is we who do not read
            self._while_open()
            return
        self._places.reached("limits.head_wait_s" if self._head_open else "limits.body_wait_s")
        if not self.transport.is_closing():
            self._end()

    def _stop_open_timer(self) -> None:
        if self._open_timer is not None:
            self._open_timer.cancel()
            self._open_timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def _without_upgrade(data: bytes) -> bytes:
    """The same bytes with another header in the place of `Upgrade`, in the first head that ends or goes on in them."""
    end = data.find(b"\r\n\r\n")
    head = data if end < 0 else data[:end]
    if b"\nupgrade:" not in head.lower():
        return data
    return _UPGRADE.sub(_PASSED_OVER, head) + data[len(head) :]
