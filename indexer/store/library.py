"""What is used of the Redis library, without OpenTelemetry: 2 MB, for metrics of its own that nobody turns on.

The library loads it where it finds it, and goes on without where it does not. Tracing (`telemetry.otlp_endpoint`)
loads it for itself, before or after. No I/O.
"""

from __future__ import annotations

from indexer.stand_ins import without

with without({"opentelemetry": None}):
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster, Sentinel
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

__all__ = ["ClusterNode", "NoBackoff", "Redis", "RedisCluster", "Retry", "Sentinel", "exceptions"]
