"""The HTTP protocol with a lane of its own for lookups: a request whose body is whole is answered at once.

[I/O] One object a connection. What the general way spends on such a request (scope, task, event, checked headers, two
writes) costs more than the question itself. Left to the general way: whatever comes slowly, waits, upgrades, expects
a 100, or ends its connection; and all but the first request of one read, so that one caller cannot hold the loop.

A request that begins with a head known from before does not even meet the parser (heads.py). That takes a parser
between two messages, which `_between` tells. A body that takes several reads is received where it stays (arrivals.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import httptools

from api.admission import LOCAL
from api.problems import Headers
from api.rest.arrivals import Arrival, Arrivals
from api.rest.connections import Connections
from api.rest.heads import HEAD_BYTES_MAX, AnswerNow, Head, KnownHeads, Reply
from api.rest.protocol import BoundedHttpProtocol
from api.uvicorn_parts import STATUS_LINE, Config, ServerState

HAND_OVER_S: Final = 1.0
"""A body that takes longer goes the general way, which waits as long as is allowed, and says so when that is over."""
_HEAD_END: Final = b"\r\n\r\n"
_OCTETS: Final = b"application/octet-stream"


class LookupLaneProtocol(BoundedHttpProtocol):
    """While `_lane` holds the parts of a body, its request has not been shown to the general way yet."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        answers: Mapping[bytes, AnswerNow],
        heads: KnownHeads,
        arrivals: Arrivals,
        places: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, places=places)
        self._answers = answers
        self._heads = heads
        self._arrivals = arrivals
        self._arrival: Arrival | None = None
        self._hand_over: asyncio.TimerHandle | None = None
        self._answer: AnswerNow | None = None
        self._lane: list[bytes] | None = None
        self._lane_taken = False
        self._answered_well = False
        self._stamped: Headers = []
        self._stamp = b""

    # -- reads ---------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """One read."""
        if self._arrival is not None:
            taken = self.arriving.take(data)
            self.arrived()
            if taken == len(data):
                return
            data = data[taken:]
        if not self.take_known(data, len(data)):
            self.parse(data)

    @property
    def arriving(self) -> Arrival:
        """The body that is on its way."""
        assert self._arrival is not None  # noqa: S101  asked for by who knows
        return self._arrival

    @property
    def arriving_into(self) -> memoryview | None:
        """Where the next bytes belong, if to a body that is on its way."""
        return None if self._arrival is None else self._arrival.rest

    def take_known(self, data: bytes | bytearray, count: int) -> bool:
        """Whether the first `count` bytes were a request that begins with a known head, and nothing more."""
        if not self._between:
            return False
        begin = data.find(_HEAD_END, 0, min(count, HEAD_BYTES_MAX)) + len(_HEAD_END)
        text = bytes(data[:begin])
        found = self._heads.find(text)
        if found is None or not self._is_idle():
            return False
        head, length = found
        if length != count - begin:
            return length > count - begin and self._receive(head, text, length, memoryview(data)[begin:count])
        reply = head.answer(head.query_string, head.headers, bytes(memoryview(data)[begin:count]))
        if reply is None:
            return False
        self._answered_known(reply)
        return True

    def parse(self, data: bytes) -> None:
        """Show one read to the parser. A request for the lane that is not whole at its end is waited for, or leaves."""
        began_between = self._between
        self._lane_taken = self._answered_well = False
        answered = self.server_state.total_requests
        super().data_received(data)
        if self._lane is not None:
            if not (began_between and self._receive_fresh(data)):
                self._leave_lane()
        elif (
            self._answered_well and began_between and self._between and self.server_state.total_requests == answered + 1
        ):
            self._learn(data[: data.find(_HEAD_END) + len(_HEAD_END)], len(data))

    # -- a body in several reads ---------------------------------------------------------------------------------------

    def _receive(self, head: Head, text: bytes, length: int, data: memoryview, *, fresh: bool = False) -> bool:
        """Begin to receive a body, of which `data` is there; whether there is room."""
        arrival = self._arrivals.begin(self._caller or LOCAL, head, text, length, fresh=fresh)
        if arrival is None:
            return False
        arrival.take(data)
        self._arrival = arrival
        self._hand_over = self.loop.call_later(HAND_OVER_S, self._leave_arrival)
        self._unset_keepalive_if_required()
        return True

    def _receive_fresh(self, data: bytes) -> bool:
        """The same behind a head that the parser judged just now: what is left is known by its length alone."""
        begin = data.find(_HEAD_END) + len(_HEAD_END)
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"")
        whole = len(headers) == len(self.headers) and self._starts(data)
        if self._answer is None or not (whole and length.isdigit() and len(length) < len(str(2**31))):
            return False
        head = Head(self._answer, self._query_string(), headers)
        if not self._receive(head, data[:begin], int(length), memoryview(data)[begin:], fresh=True):
            return False
        self._lane = None
        self.parser = httptools.HttpRequestParser(self)  # as before the message: it does not see its end
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._between = True
        self._stop_open_timer()  # that of arrivals runs
        return True

    def arrived(self) -> None:
        """More of a body has come: answer if that was all."""
        arrival = self.arriving
        if arrival.rest:
            return
        self._end_arrival()
        head, body = arrival.head, cast("bytes", arrival.body)  # nobody writes to it any more
        if head.headers.get(b"content-type") != _OCTETS:
            body = bytes(body)  # parsers want the real thing; token images are read as any buffer is
        reply = head.answer(head.query_string, head.headers, body)
        if reply is None:
            self._go_generally(arrival.received())
            return
        self._answered_known(reply)
        self.timeout_keep_alive_handler()
        if arrival.fresh and reply[0] == HTTPStatus.OK:
            self._heads.learn(arrival.text, head.answer, head.query_string, head.headers)

    def _leave_arrival(self) -> None:
        """Show the general way a request as far as it has come."""
        arrival = self.arriving
        self._end_arrival()
        self._go_generally(arrival.received())

    def _go_generally(self, data: bytes) -> None:
        self._lane_taken = True
        super().data_received(data)

    def _end_arrival(self) -> None:
        if self._arrival is not None:
            self._arrivals.end(self._arrival)
            self._arrival = None
        if self._hand_over is not None:
            self._hand_over.cancel()
            self._hand_over = None

    def shutdown(self) -> None:
        """The server ends; who has begun to ask gets an answer."""
        if self._arrival is not None:
            self._leave_arrival()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of ours outlives the connection."""
        self._end_arrival()
        super().connection_lost(exc)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answered_known(self, reply: Reply) -> None:
        status, headers, content = reply
        self.transport.write(self._head(status, headers) + content)
        self.server_state.total_requests += 1
        self._stay()

    def _learn(self, text: bytes, count: int) -> None:
        """The read of `count` bytes was one request for the lane, from its first byte on, and was answered.

        A refused one may hold anything. And what is kept decides what the same bytes mean on every connection, so it
        must be all that decided it here.
        """
        headers = dict(self.headers)
        if self._answer is None or not self._starts(text) or len(headers) != len(self.headers):
            return
        if headers.get(b"content-length") == b"%d" % (count - len(text)):
            self._heads.learn(text, self._answer, self._query_string(), headers)

    def _starts(self, data: bytes) -> bool:
        return data.startswith(b"POST %b HTTP/1.1\r\n" % self.url)

    def _query_string(self) -> bytes:
        return self.url.partition(b"?")[2]

    # -- the parser's events -------------------------------------------------------------------------------------------

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
        if self._lane is None or self._answer is None:
            super().on_message_complete()
            return
        parts = self._lane
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        reply = self._answer(self._query_string(), dict(self.headers), body)
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
        self._answer = self._answers.get(self.url.partition(b"?")[0])
        return (
            self._answer is not None
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
