"""Which requests were reported of late, and where they were sent: the same within the time changes nothing.

A request that is tried again at another source is another: that one is computing it, too. Pure; time is given.

Not a cache that expires as a whole with the next entry: after a burst and a pause that would be tens of thousands of
entries in one step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from indexer.model import SourceId

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATED_S: Final = 60.0
REQUESTS_MAX: Final = 65_536
"""Remembered, and for how long; beyond, the oldest is forgotten early."""
FORGOTTEN_EACH: Final = 4
"""Whose time is over, with each request that is noted."""
REQUESTS_LIMIT: Final = "receipts.request_ids"

Request = tuple[str, str, SourceId]
"""Tenant, request id, and where it was sent."""


class Repeats:
    """One a process."""

    def __init__(self, reached: Callable[[str], None]) -> None:
        self._reached = reached
        self._at: dict[Request, float] = {}
        self._order: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._at)

    def has(self, request: Request, now: float) -> bool:
        """Whether it was noted within the time."""
        at = self._at.get(request)
        return at is not None and now - at < REPEATED_S

    def note(self, request: Request, now: float) -> None:
        """It is being reported."""
        self.forget(now, FORGOTTEN_EACH)
        if request not in self._at:
            self._order.append(request)
        self._at[request] = now
        if len(self._at) > REQUESTS_MAX:
            self._reached(REQUESTS_LIMIT)
            del self._at[self._order.popleft()]

    def forget(self, now: float, most: int) -> None:
        """Up to so many whose time is over."""
        for _ in range(min(most, len(self._order))):
            oldest = self._order[0]
            if now - self._at[oldest] < REPEATED_S:
                return
            self._order.popleft()
            del self._at[oldest]
