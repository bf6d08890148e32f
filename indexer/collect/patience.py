"""How often a replay endpoint may be asked: back-off after failures, a rate in any case. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from indexer.collect.options import CollectOptions

_MINUTE_S: Final = 60.0


class Patience:
    """State for one endpoint."""

    __slots__ = ("_failures", "_options", "_recovered_at", "_retry_at")

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._failures = 0
        self._retry_at = float("-inf")
        self._recovered_at: deque[float] = deque()  # of the last minute

    def allows(self, now: float) -> bool:
        """Whether the endpoint may be asked now."""
        while self._recovered_at and now - self._recovered_at[0] >= _MINUTE_S:
            self._recovered_at.popleft()
        return now >= self._retry_at and len(self._recovered_at) < self._options.replays_per_minute

    def recovery_began(self, now: float) -> None:
        """One more recovery in this minute. Idle probes have their own interval and do not count."""
        self._recovered_at.append(now)

    def failed(self, now: float) -> None:
        """No answer: wait longer each time."""
        wait_s = self._options.replay_backoff_min_s * 2.0 ** min(self._failures, 30)
        self._retry_at = now + min(wait_s, self._options.replay_backoff_max_s)
        self._failures += 1

    def answered(self) -> bool:
        """It answers. True when it did not before."""
        recovered = self._failures > 0
        self._failures = 0
        return recovered
