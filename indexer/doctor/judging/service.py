"""What a running service answered, and its replicas and partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.doctor.checks import Finding, found, found_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.doctor.facts import DiscoverySeen, Partitions, ServiceSeen

DEAF_S: Final = 120.0
"""An API server says something once a minute, and names are asked for as often."""
SKEW_MAX_S: Final = 5.0
"""Dates are told in whole seconds."""


def judge_service(seen: ServiceSeen, own_version: str) -> Iterator[Finding]:
    """`own_version`: of this command."""
    if seen.trouble is not None:
        yield found("service.reachable", "problem", seen.trouble)
        return
    yield found("service.reachable", "ok", seen.url)
    for path, why in seen.refused.items():
        is_shut = path in seen.shut
        yield found("service.access", "problem" if is_shut else "unknown", why, path)
    if not seen.refused:
        yield found("service.access", "ok")
    if seen.ready is not None:
        yield found_if(not seen.ready, "service.ready", "warning", seen.ready_detail)
    if seen.version is not None:
        other = seen.version != own_version
        told = f"{seen.version}, and this command is {own_version}" if other else seen.version
        yield found_if(other, "service.version", "warning", told)
    if seen.clock_skew_s is None:
        yield found("service.clock", "unknown")
    else:
        off = abs(seen.clock_skew_s) > SKEW_MAX_S
        yield found_if(off, "service.clock", "warning", f"{seen.clock_skew_s:+.0f} s" if off else "")
    yield _limits(seen)
    if seen.discovery is not None:
        yield _discovery(seen.discovery)


def _discovery(seen: DiscoverySeen) -> Finding:
    if not seen.watching:
        return found("service.discovery", "ok", "another replica watches, if any does")
    deaf = [f"{name} was not heard for {age:.0f} s" for name, age in sorted(seen.heard_age_s.items()) if age > DEAF_S]
    waits = [f"{seen.waiting} sources are gone and wait to be removed"] if seen.waiting else []
    return found_if(deaf or waits, "service.discovery", "warning", ", ".join([*deaf, *waits]))


def _limits(seen: ServiceSeen) -> Finding:
    if seen.limits_reached is None:
        return found("service.limits", "unknown")
    reached = {limit: count for limit, count in seen.limits_reached.items() if count}
    told = ", ".join(f"{limit} {count} times" for limit, count in sorted(reached.items()))
    return found_if(reached, "service.limits", "warning", told)


def judge_replicas(seen: Partitions | None) -> Iterator[Finding]:
    """None: not read."""
    if seen is None:
        return
    if seen.mode == "memory":
        yield found("partitions.store", "ok", "memory mode: what is known ends with the process (--redis-url keeps it)")
        return
    yield found_if(seen.trouble is not None, "partitions.store", "problem", seen.trouble or "")
    ownerless = [each.partition for each in seen.partitions if each.owner is None]
    owners = sorted({each.owner for each in seen.partitions if each.owner is not None})
    told = f"not so: {_few(ownerless)}" if ownerless else f"{len(seen.partitions)}, by {', '.join(owners)}"
    yield found_if(ownerless, "partitions.owned", "problem", told)
    away = [each.partition for each in seen.partitions if each.state not in {"live", "asserting"}]
    states = sorted({each.state for each in seen.partitions if each.partition in set(away)})
    yield found_if(away, "partitions.state", "warning", f"{', '.join(states)}: {_few(away)}" if away else "")
    alone = [each.partition for each in seen.partitions if each.owner is not None and each.standby is None]
    yield found_if(alone, "partitions.standby", "warning", f"none: {_few(alone)}" if alone else "")
    for replica in seen.replicas:
        told = f"{replica.state}, seen {replica.age_ms / 1000:.1f} s ago, owns {replica.owned}"
        yield found_if(replica.state != "live", "replicas.live", "warning", told, replica.name)


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"partition {shown}" + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")  # noqa: PLR2004 - as cut
