"""Limits that callers share, so that none takes all of one. Pure; an object holds what it counts on one event loop.

What runs at once needs no queue of ours: a question is answered when it is read. What has to wait (a body in pieces, a
text, events that are to come) and what stays open (a connection) is bounded over all callers, and whoever asks beyond
that is told so instead of queueing. A bound over all is not enough: one caller would fill it, and every other would be
refused. So each may hold at most `GREED` times what is left over:

* one caller alone gets four fifths of the limit, two that want all get four ninths each, n get 4/(4n+1);
* something is always left for one who holds nothing;
* who the callers are and how many need not be known beforehand.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GREED: Final = 4
LOCAL: Final = "local"
"""Whoever has no address: callers on a Unix socket."""
_V6_HOST_BITS: Final = 64
"""One machine has a whole network of such addresses to itself."""


class Shares:
    """One limit. `limit` is its name in metrics; `most` may be held by all, `each` by one caller however much is free.

    Every `take` that was granted is given back once, with the same caller and amount.
    """

    def __init__(
        self, limit: str, most: int, *, each: int | None = None, reached: Callable[[str], None] = lambda _: None
    ) -> None:
        self.limit = limit
        self.most = most
        self._each = most if each is None else each
        self._reached = reached
        self._held: dict[str, int] = {}
        self.total = 0
        """Held by all."""

    def take(self, caller: str, amount: int = 1) -> bool:
        """Whether the caller gets that much more. False is counted as the limit reached."""
        granted = self.take_quietly(caller, amount)
        if not granted:
            self._reached(self.limit)
        return granted

    def take_quietly(self, caller: str, amount: int = 1) -> bool:
        """The same where the caller is not refused for it: nothing is counted."""
        held = self._held.get(caller, 0)
        free = self.most - self.total
        if amount > free or held + amount > self._each or held >= max(1, GREED * (free - amount + 1)):
            return False
        self._held[caller] = held + amount
        self.total += amount
        return True

    def give_back(self, caller: str, amount: int = 1) -> None:
        """What was taken is free again."""
        left = self._held[caller] - amount
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]
        self.total -= amount

    def held(self, caller: str) -> int:
        """What the caller holds."""
        return self._held.get(caller, 0)

    @contextlib.contextmanager
    def place(self, caller: str, amount: int = 1) -> Iterator[bool]:
        """Taken for the length of the block, where what it yields is true."""
        granted = self.take(caller, amount)
        try:
            yield granted
        finally:
            if granted:
                self.give_back(caller, amount)


@functools.lru_cache(maxsize=4_096)
def peer_of(host: str | None) -> str:
    """Whose connection it is by its address: an IPv6 host's whole network counts as one caller."""
    if host is None:
        return LOCAL
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _V6_HOST_BITS << _V6_HOST_BITS, _V6_HOST_BITS)))
