"""The time of day as logs of replicas give it, for what a test tells of itself beside them."""

from __future__ import annotations

import time
from typing import Final

from indexer.clock import SystemClock

CLOCK: Final = SystemClock()


def told_at() -> str:
    """Now, in UTC, to the millisecond."""
    wall_us = CLOCK.wall_us()
    return f"{time.strftime('%H:%M:%S', time.gmtime(wall_us / 1e6))},{wall_us // 1_000 % 1_000:03}"
