"""Whether a store is what this service needs. Pure: judges what its servers report of themselves.

At least Redis 7.0, since older ones are not tried; and `noeviction`, since with any other policy a server that is full
drops owners and maps without a word (measured with volatile-lru).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OLDEST: Final = (7, 0)
POLICY: Final = "noeviction"


class Fitness(msgspec.Struct, frozen=True):
    """What serves: `kind` redis or valkey, and the oldest version among its servers."""

    kind: str
    version: str


def judge(reports: Sequence[Mapping[str, Any]], *, as_cluster: bool) -> Fitness:
    """From INFO of every server that takes writes. Raises StoreFailure `unfit`, with the rule that is broken.

    `as_cluster`: whether the address says so; a cluster's node serves a client that knows of no cluster only in part.
    """
    if not as_cluster and any(report.get("cluster_enabled") for report in reports):
        raise StoreFailure(
            "unfit", "it is a cluster: the address must begin with redis+cluster:// or rediss+cluster://"
        )
    found = [_judge_one(report) for report in reports]
    if not found:
        raise StoreFailure("unfit", "no server takes writes")
    return min(found, key=lambda fitness: _numbers(fitness.version))


def _judge_one(report: Mapping[str, Any]) -> Fitness:
    # Valkey calls itself Redis 7.2.4 there, for old clients' sake.
    version = str(report.get("redis_version", ""))
    if _numbers(version) < OLDEST:
        raise StoreFailure("unfit", f"Redis {version or 'of unknown version'}: at least 7.0 is needed")
    policy = str(report.get("maxmemory_policy", ""))
    if policy != POLICY:
        raise StoreFailure("unfit", f"maxmemory-policy is {policy or 'not told'}: set it to {POLICY}")
    if "valkey_version" in report:
        return Fitness("valkey", str(report["valkey_version"]))
    return Fitness("redis", version)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) if part.isascii() and part.isdigit() else 0 for part in parts)
