"""Reads a connection's bytes to where they are needed.

[I/O] One object a connection, before its protocol. A loop hands a plain protocol each read as a new bytes object: of a
prompt of half a megabyte that is copied three times before it is whole. Here the loop reads into the room of the body
that is on its way, and everything else into one piece of memory that all connections of a server share: what is in it
is dealt with before the loop reads again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.rest.lane import LookupLaneProtocol

READ_BYTES: Final = 2**18
"""At most at once: what libuv offers, too."""


class Reads(asyncio.BufferedProtocol):
    """Before a lane. `room`: for reads of all connections of the server."""

    def __init__(self, lane: LookupLaneProtocol, room: bytearray) -> None:
        self._lane = lane
        self._room = room
        self._view = memoryview(room)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection."""
        self._lane.connection_made(transport)  # type: ignore[arg-type]  # of bytes: it is a stream's

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes go."""
        return self._lane.arriving_into or self._view

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        lane = self._lane
        into = lane.arriving_into
        if into:
            lane.arriving.rest = into[nbytes:]
            lane.arrived()
        elif not lane.take_known(self._room, nbytes):
            lane.parse(bytes(self._view[:nbytes]))

    def eof_received(self) -> None:
        """The caller says no more."""
        self._lane.eof_received()

    def pause_writing(self) -> None:
        """The caller does not read."""
        self._lane.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._lane.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._lane.connection_lost(exc)


def reading(make: Callable[..., LookupLaneProtocol]) -> Callable[..., Reads]:
    """The same factory of connections, with such reads before each."""
    room = bytearray(READ_BYTES)
    return lambda *args, **named: Reads(make(*args, **named), room)
