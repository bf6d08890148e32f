"""Bodies of lookups on their way: whose head is known and whose bytes come in more than one read. Pure.

Each is received where it will stay: its room is made at once, and the connection reads into what is left of it. How
much of them all a server holds is bounded by what they announce, within the bound of all unfinished bodies; beyond, a
body takes the general way, which counts what has come and refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from api.admission import Shares
    from api.rest.heads import Head

ARRIVAL_BYTES_MAX: Final = 2**21
"""Of one body: half a million tokens. Larger ones take the general way."""


class Arrival:
    """One body, of a caller known by its address: no token is looked at yet.

    `head`, `text`: what its head says, and how it is spelt. `fresh`: only the parser has judged it yet.
    """

    __slots__ = ("body", "caller", "fresh", "head", "rest", "text")

    def __init__(self, caller: str, head: Head, text: bytes, length: int, *, fresh: bool) -> None:
        self.caller = caller
        self.head = head
        self.text = text
        self.fresh = fresh
        self.body = bytearray(length)
        self.rest = memoryview(self.body)

    def take(self, data: bytes | memoryview) -> int:
        """Put in what `data` begins with; how much of it that was."""
        count = min(len(data), len(self.rest))
        self.rest[:count] = data[:count]
        self.rest = self.rest[count:]
        return count

    def received(self) -> bytes:
        """The head and what has come of the body."""
        return self.text + bytes(memoryview(self.body)[: len(self.body) - len(self.rest)])


class Arrivals:
    """Those of one server. `pending`: the bytes of all unfinished bodies. Lives on one event loop."""

    def __init__(self, pending: Shares) -> None:
        self._pending = pending

    def begin(self, caller: str, head: Head, text: bytes, length: int, *, fresh: bool) -> Arrival | None:
        """Make room for a body of that caller; None where that would be too much."""
        if length > ARRIVAL_BYTES_MAX or not self._pending.take_quietly(caller, length):
            return None
        return Arrival(caller, head, text, length, fresh=fresh)

    def end(self, arrival: Arrival) -> None:
        """It has come, or it does not come any more this way."""
        self._pending.give_back(arrival.caller, len(arrival.body))
