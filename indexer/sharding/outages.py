"""Whether outages of the store were so long of late that leases may have run out without anybody's death. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

OUTAGE_LEASES: Final = 0.4
"""Outages of so many lease times together, within one lease time, may have let leases run out: they are renewed when a
third is over, and what is tried again may miss a moment between two outages."""


class Outages:
    """As one replica sees them. Times in seconds on its clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._lately: deque[tuple[float, float]] = deque()

    def over(self, since: float, now: float) -> bool:
        """One is over: the store answers `now`, and had answered last at `since`.

        True where the last holders of partitions should have the first right for a while.
        """
        self._lately.append((since, now))
        begin = now - self._lease_s
        while self._lately[0][1] <= begin:
            self._lately.popleft()
        return sum(until - max(at, begin) for at, until in self._lately) >= self._lease_s * OUTAGE_LEASES
