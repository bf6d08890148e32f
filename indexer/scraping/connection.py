"""[I/O] One connection to an engine's HTTP side, kept open from one GET to the next.

A client library takes a millisecond for what a thousand engines are asked every second; this takes a tenth of it. GET
only; no redirect is followed, no cookie kept, no proxy used, no token shown, and answers are wanted uncompressed.
Bounded: what an engine sends without end is let go at `bytes_max`, and whoever asks sets the time.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD_BYTES_MAX: Final = 65_536
"""Of an answer's head, and of all that frames its body."""


class Unusable(Exception):
    """Why an answer tells nothing, in words of ours."""


class TooLong(Unusable):
    """It is longer than is read."""


class EngineConnection(asyncio.Protocol):
    """Open once `connect` returned it. One GET at a time."""

    def __init__(self, host: str, bytes_max: int) -> None:
        self._host = host
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._reading: _Reading | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be asked again."""
        return self._transport is not None and not self._transport.is_closing()

    async def get(self, path: str) -> bytes:
        """The body of a 200. Raises `Unusable`, and OSError where the connection ends. Cancelled, it closes."""
        if self._transport is None or self._answer is not None:
            raise RuntimeError("one at a time, and only while it is open")
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._reading = _Reading(self._bytes_max)
        self._transport.write(_REQUEST % (path.encode(), self._host.encode()))
        try:
            body: bytes = await answer
        except BaseException:
            self.close()  # what is left of this answer must not pass for the next one
            raise
        finally:
            self._answer = None
        if not self._reading.keeps_alive:
            self.close()
        return body

    def close(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport tells -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some of an answer; what nobody asked for ends the connection."""
        reading = self._reading
        if reading is None or self._answer is None or self._answer.done():
            self.close()
            return
        try:
            reading.feed(data)
        except Unusable as why:
            self._fail(why)
        else:
            self._settle(reading)

    def eof_received(self) -> bool:
        """It says no more: an answer of unknown length ends with it."""
        if self._reading is not None and self._answer is not None and not self._answer.done():
            self._reading.end()
            self._settle(self._reading)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._transport = None
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError())

    def _settle(self, reading: _Reading) -> None:
        if reading.is_whole and self._answer is not None and not self._answer.done():
            if reading.status == HTTPStatus.OK:
                self._answer.set_result(b"".join(reading.body))
            else:
                self._answer.set_exception(Unusable(f"status {reading.status}"))

    def _fail(self, why: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(why)


class _Reading:
    """One answer, as far as it has come; what `httptools` calls."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parser = httptools.HttpResponseParser(self)
        self._bytes = self._body_bytes = 0
        self._has_end = self._is_begun = False
        self.body: list[bytes] = []
        self.status = 0
        self.is_whole = False
        self.keeps_alive = False

    def feed(self, data: bytes) -> None:
        """Some of it. Raises `Unusable`."""
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise Unusable("it speaks no HTTP") from error
        if self._body_bytes > self._bytes_max or self._bytes - self._body_bytes > self._bytes_max // 8 + HEAD_BYTES_MAX:
            raise TooLong(f"more than {self._bytes_max} bytes")

    def end(self) -> None:
        """The connection ended."""
        self.is_whole = self.is_whole or (self._is_begun and not self._has_end)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Whether the answer says where it ends."""
        self._has_end = self._has_end or name.lower() in {b"content-length", b"transfer-encoding"}
        if name.lower() == b"content-encoding" and value.lower() != b"identity":
            raise httptools.HttpParserError("nobody asked for that")

    def on_headers_complete(self) -> None:
        """What it is."""
        self.status = self._parser.get_status_code()
        self._is_begun = True

    def on_body(self, data: bytes) -> None:
        """A piece. Of another answer than 200 nothing is kept."""
        self._body_bytes += len(data)
        if self.status == HTTPStatus.OK:
            self.body.append(data)

    def on_message_complete(self) -> None:
        """All of it, unless more follows as its head said."""
        if self.status >= HTTPStatus.OK:
            self.is_whole, self.keeps_alive = True, self._parser.should_keep_alive()


_REQUEST: Final = (
    b"GET %b HTTP/1.1\r\nhost: %b\r\naccept: text/plain\r\naccept-encoding: identity\r\nuser-agent: kvindexer\r\n\r\n"
)


async def connect(address: str, bytes_max: int) -> EngineConnection:
    """To `IP:PORT` or `HOST:PORT`, IPv6 in brackets. Raises OSError, and `Unusable` where that is no address."""
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and _is_plain(host)):
        raise Unusable("its address is none")
    try:
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: EngineConnection(address, bytes_max), host.strip("[]"), int(port)
        )
    except (UnicodeError, ValueError, OverflowError) as error:
        raise Unusable("its address is none") from error
    return protocol


def _is_plain(characters: Iterable[str]) -> bool:
    """Nothing that would end a header, or begin another."""
    return all(each.isascii() and each.isprintable() and each != " " for each in characters)
