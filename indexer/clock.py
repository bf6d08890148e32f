"""The one place that reads time."""

from __future__ import annotations

import time


class SystemClock:
    """Boot time where the system has it, so that a suspended machine counts its sleep; else monotonic time."""

    def __init__(self) -> None:
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        """Seconds; never goes back."""
        return time.clock_gettime(self._clock)

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000  # noqa: TID251  this is the clock
