"""How many connections there may be, of all callers and of one, and what one beyond that gets.

[I/O] It is accepted, so that its caller can be told: the first thing it says is answered 429 with `Retry-After`, and it
ends. Left unaccepted it would wait in the kernel, and its caller for a time-out. Those that say nothing end soon, and
of too many at once the rest end at once.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from api.admission import LOCAL, Shares, peer_of
from api.problems import RequestRefused, problem_response
from api.rest.limits import RestLimits
from api.rest.request_ids import RequestIds
from api.uvicorn_parts import STATUS_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSet

TURNED_AWAY_MAX: Final = 128
"""Connections at once that are told why; as many file descriptors more than the limit says."""
TURNED_AWAY_S: Final = 5.0
"""For one to say something, and to take the answer."""

_TOO_MANY: Final = RequestRefused(
    HTTPStatus.TOO_MANY_REQUESTS,
    "connections.too_many",
    "too many connections are open, of all callers or of this one (limits.connections, connections_per_caller)",
    headers=[(b"retry-after", b"1")],
)


class Connections:
    """Those of one server."""

    def __init__(self, limits: RestLimits, reached: Callable[[str], None] = lambda _: None) -> None:
        self.limits = limits
        self.reached = reached
        """Counts a limit that was reached."""
        self.open = Shares(
            "limits.connections", limits.connections, each=limits.connections_per_caller, reached=reached
        )
        self._turned_away = 0

    def admit(self, client: tuple[str, int] | None) -> str | None:
        """Whose connection it is, for `leave`; None where there is no room for it."""
        caller = peer_of(client[0]) if client else LOCAL
        return caller if self.open.take(caller) else None

    def leave(self, caller: str) -> None:
        """A connection that was admitted has ended."""
        self.open.give_back(caller)

    def turn_away(self, transport: asyncio.Transport, connections: MutableSet[Any]) -> None:
        """Answer what comes on it with 429; `connections` are all that the server has to end at its stop."""
        if self._turned_away >= TURNED_AWAY_MAX:
            transport.abort()
            return
        self._turned_away += 1
        transport.set_protocol(_TurnedAway(transport, connections, self._gone))

    def _gone(self) -> None:
        self._turned_away -= 1


class _TurnedAway(asyncio.Protocol):
    """In the place of the protocol that would have parsed."""

    def __init__(self, transport: asyncio.Transport, connections: MutableSet[Any], gone: Callable[[], None]) -> None:
        self.transport = transport
        self._connections = connections
        self._gone = gone
        self._timer = asyncio.get_running_loop().call_later(TURNED_AWAY_S, transport.abort)
        connections.add(self)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - whatever it is
        """Say why not. What came was read, so the caller's end gets the answer and no reset."""
        if not self.transport.is_closing():
            self.transport.write(refusal_bytes(_TOO_MANY))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - either way
        """Nothing is left of it."""
        self._timer.cancel()
        self._connections.discard(self)
        self._gone()

    def shutdown(self) -> None:
        """The server stops."""
        self.transport.abort()


def refusal_bytes(refusal: RequestRefused) -> bytes:
    """A whole answer, the last of its connection, which has no request that it could be made for."""
    status, headers, body = problem_response(refusal, RequestIds().of(None))
    lines = b"".join(b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close")))
    return STATUS_LINE[status] + lines + b"\r\n" + body
