"""The HTTP protocol with a lane of its own for lookups: a request that lies whole in one read is answered at once.

[I/O] One object a connection. What the general way spends on such a request (scope, task, event, checked headers, two
writes) costs more than the question itself. Left to the general way: whatever comes in pieces, waits, upgrades, expects
a 100, or ends its connection; and all but the first request of one read, so that one caller cannot hold the loop.

A read that is one head known from before and a body of its length does not even meet the parser (heads.py). That takes
a parser between two messages, which `_between` tells.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from api.problems import Headers
from api.rest.heads import KnownHeads
from api.rest.hot import LookupRoute, Reply
from api.rest.protocol import BoundedHttpProtocol

PATH: Final = b"/v1/lookup"
_QUERY: Final = PATH + b"?"
_HEAD_END: Final = b"\r\n\r\n"


class LookupLaneProtocol(BoundedHttpProtocol):
    """While `_lane` holds the parts of a body, its request has not been shown to the general way yet."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        lookups: LookupRoute,
        heads: KnownHeads,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._lookups = lookups
        self._heads = heads
        self._lane: list[bytes] | None = None
        self._lane_taken = False
        self._answered_well = False
        self._stamped: Headers = []
        self._stamp = b""

    def data_received(self, data: bytes) -> None:
        """One read. A request that is not whole at its end leaves the lane."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        head = self._heads.get(data[:end])
        if head is not None and head.length == len(data) - end and self._between and self._is_idle():
            reply = self._lookups.answer_now(head.url[len(_QUERY) :], head.headers, data[end:])
            if reply is not None:
                self._answered_known(reply)
                return
        began_between = self._between
        self._lane_taken = self._answered_well = False
        answered = self.server_state.total_requests
        super().data_received(data)
        if self._lane is not None:
            self._leave_lane()
        elif (
            self._answered_well and began_between and self._between and self.server_state.total_requests == answered + 1
        ):
            self._learn(data, end)

    def _answered_known(self, reply: Reply) -> None:
        status, headers, content = reply
        self.transport.write(self._head(status, headers) + content)
        self.server_state.total_requests += 1
        self._stay()

    def _learn(self, data: bytes, end: int) -> None:
        """This read was one request for the lane, from its first byte on, and was answered.

        A refused one may hold anything. And what is kept decides what the same bytes mean on every connection, so it
        must be all that decided it here.
        """
        headers = dict(self.headers)
        if not data.startswith(b"POST %b HTTP/1.1\r\n" % self.url):
            return
        if len(headers) == len(self.headers) and headers.get(b"content-length") == b"%d" % (len(data) - end):
            self._heads.learn(data[:end], self.url, headers)

    def on_headers_complete(self) -> None:
        """Take the lane, if this may be a request for it."""
        if not self._lane_taken and self._is_lookup():
            self._head_is_whole()
            self._lane_taken = True
            self._lane = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of a body."""
        if self._lane is not None:
            self._lane.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer what is in the lane."""
        self._between = True
        if self._lane is None:
            super().on_message_complete()
            return
        parts = self._lane
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        reply = self._lookups.answer_now(self.url[len(_QUERY) :], dict(self.headers), body)
        if reply is None:
            self._leave_lane()
            super().on_message_complete()
            return
        self._lane = None
        status, headers, content = reply
        self._answered_well = status == HTTPStatus.OK
        self.transport.write(self._head(status, headers) + content)
        self.on_response_complete()

    def _is_lookup(self) -> bool:
        url = self.url
        return (
            (url == PATH or url.startswith(_QUERY))
            and self.parser.get_method() == b"POST"
            and self._is_idle()
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and self.parser.get_http_version() == "1.1"
        )

    def _is_idle(self) -> bool:
        """No earlier request waits for its answer, and the caller reads those it gets."""
        return (
            (self.cycle is None or self.cycle.response_complete)  # type: ignore[redundant-expr]  # None at first
            and not self.pipeline
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _head(self, status: int, headers: Headers) -> bytes:
        """Status line and headers; the server's own (the date) change once a second."""
        defaults = self.server_state.default_headers
        if defaults is not self._stamped:
            self._stamped, self._stamp = defaults, _lines(defaults)
        return STATUS_LINE[status] + self._stamp + _lines(headers) + b"\r\n"

    def _leave_lane(self) -> None:
        """Show the general way the request as far as it has come."""
        parts = [] if self._lane is None else self._lane
        self._lane = None
        if self.transport.is_closing():
            return
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
