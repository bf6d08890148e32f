"""Requests that are known to have been sent to engines of late, until somebody says that they are over. Pure.

    receipt   a request went to a source. It counts for KEPT_S, or until its end is told; told again with another
              source it is that one's, since somebody tried again there
    unseen    what an engine's metrics cannot have shown when they were read: receipts that came after that

Time is given, and does not go back. Bounded in receipts; what finds no room takes the place of the oldest.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from indexer.model import SourceId

KEPT_S: Final = 30.0
RECEIPTS_MAX: Final = 65_536
"""About 400 bytes each: 26 MB."""
RECEIPTS_LIMIT: Final = "loads.receipts"
ENDED_EACH: Final = 8
"""Whose time is over, with each that comes."""
ENDED_IN_A_SLICE: Final = 512
"""A third of a millisecond."""
NEVER: Final = float("-inf")

Key = tuple[str, str]
"""Tenant and request id."""


class _Seat:
    """Of one source: receipts that count, and those of them that came after `read_at`."""

    __slots__ = ("fresh", "open", "read_at", "unseen")

    def __init__(self) -> None:
        self.open = 0
        self.unseen = 0
        self.read_at = NEVER
        self.fresh: deque[_Receipt] = deque()
        """In their order, with those that are over."""


class _Receipt:
    __slots__ = ("at", "is_over", "is_seen", "keys", "seat")

    def __init__(self, seat: _Seat, at: float, keys: tuple[Key, ...]) -> None:
        self.seat = seat
        self.at = at
        self.keys = keys
        self.is_over = False
        self.is_seen = False


class Receipts:
    """One a process. `reached` is told of limits."""

    def __init__(self, reached: Callable[[str], None], *, most: int = RECEIPTS_MAX) -> None:
        self._reached = reached
        self._most = most
        self._seats: dict[SourceId, _Seat] = {}
        self._by_key: dict[Key, _Receipt] = {}
        self._order: deque[_Receipt] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def note(self, source: SourceId, keys: tuple[Key, ...], now: float) -> None:
        """A request went there. `keys`: all that it goes by; none where nobody can say that it is over."""
        self._end_old(now, ENDED_EACH)
        seat = self._seats.get(source)
        if seat is None:
            seat = self._seats[source] = _Seat()
        before = {id(each): each for each in map(self._by_key.get, keys) if each is not None}
        for receipt in before.values():
            if receipt.seat is seat:
                return
        for receipt in before.values():
            self._end(receipt)
        receipt = _Receipt(seat, now, keys)
        self._by_key.update(dict.fromkeys(keys, receipt))
        self._order.append(receipt)
        seat.fresh.append(receipt)
        seat.open += 1
        seat.unseen += 1
        if len(self._order) > self._most:
            self._reached(RECEIPTS_LIMIT)
            self._forget_oldest()

    def ended(self, key: Key) -> None:
        """That request is over."""
        receipt = self._by_key.get(key)
        if receipt is not None:
            self._end(receipt)

    def read(self, source: SourceId, at: float) -> None:
        """Its metrics were read, as they were at that time: what had come by then they show."""
        seat = self._seats.get(source)
        if seat is None:
            return
        seat.read_at = max(seat.read_at, at)
        while seat.fresh and seat.fresh[0].at <= seat.read_at:
            self._see(seat.fresh.popleft())

    def unseen(self, source: SourceId) -> int:
        """Receipts that its metrics do not show."""
        seat = self._seats.get(source)
        return 0 if seat is None else seat.unseen

    def open(self, source: SourceId) -> int:
        """Receipts that count."""
        seat = self._seats.get(source)
        return 0 if seat is None else seat.open

    def tidy(self, now: float) -> bool:
        """One slice; True while there is more to do."""
        return self._end_old(now, ENDED_IN_A_SLICE)

    def forget_others(self, known: Container[SourceId]) -> None:
        """Sources that are gone have no seat; what went there ends in its time."""
        for source in [source for source in self._seats if source not in known]:
            del self._seats[source]

    # -- how ----------------------------------------------------------------------------------------------------------

    def _end_old(self, now: float, most: int) -> bool:
        for _ in range(most):
            if not self._order or now - self._order[0].at < KEPT_S:
                return False
            self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        oldest = self._order.popleft()
        self._end(oldest)
        fresh = oldest.seat.fresh
        if fresh and fresh[0] is oldest:
            fresh.popleft()

    def _see(self, receipt: _Receipt) -> None:
        receipt.is_seen = True
        if not receipt.is_over:
            receipt.seat.unseen -= 1

    def _end(self, receipt: _Receipt) -> None:
        if receipt.is_over:
            return
        receipt.is_over = True
        receipt.seat.open -= 1
        if not receipt.is_seen:
            receipt.seat.unseen -= 1
        for key in receipt.keys:
            if self._by_key.get(key) is receipt:
                del self._by_key[key]
