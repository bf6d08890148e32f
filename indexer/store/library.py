"""What is used of the Redis library, without OpenTelemetry: 2 MB, for metrics of its own that nobody turns on.

The library loads it where it finds it, and goes on without where it does not. Tracing (`telemetry.otlp_endpoint`)
loads it for itself, before or after. No I/O.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_TELEMETRY: Final = "opentelemetry"


@contextlib.contextmanager
def _unless_loaded(module: str) -> Iterator[None]:
    """Whoever looks for that module meanwhile is told that there is none, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # the import system's own word for "none"
    try:
        yield
    finally:
        del sys.modules[module]


with _unless_loaded(_TELEMETRY):
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster, Sentinel
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

__all__ = ["ClusterNode", "NoBackoff", "Redis", "RedisCluster", "Retry", "Sentinel", "exceptions"]
