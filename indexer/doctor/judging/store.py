"""What the store's servers say of themselves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.doctor.checks import Finding, found, found_if

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from indexer.doctor.facts import ServerSeen, StoreSeen

MIB: Final = 1024**2
SKEW_MAX_S: Final = 1.0
FULL: Final = 0.75
"""Of what a server may use."""
VERY_FULL: Final = 0.9
SLOW: Final = 0.25
"""Of redis.timeout_ms, for one bare question."""


def judge_store(seen: StoreSeen, wanted: Mapping[str, str], timeout_ms: float) -> Iterator[Finding]:
    """`wanted`: what the configuration says of the deployment, as replicas compare it."""
    if seen.trouble is not None:
        yield found("store.reachable", "problem", f"{seen.place}: {seen.trouble}")
        return
    yield found("store.reachable", "ok", seen.place)
    yield found_if(seen.unfit is not None, "store.fit", "problem", seen.unfit or _versions(seen))
    for server in seen.servers:
        yield _memory(server)
        gone = server.evicted
        yield found_if(gone > 0, "store.evicted", "problem", f"{gone} keys since its start" if gone else "")
        yield _persistence(server)
    if seen.clock_skew_s is not None:
        off = abs(seen.clock_skew_s) > SKEW_MAX_S
        yield found_if(off, "store.clock", "warning", f"{seen.clock_skew_s:+.1f} s" if off else "")
    if seen.round_trip_ms is not None:
        slow = seen.round_trip_ms > SLOW * timeout_ms
        told = f"{seen.round_trip_ms:.1f} ms of {timeout_ms:.0f}"
        yield found_if(slow, "store.latency", "warning", told)
    yield _layout(seen, wanted)


def _versions(seen: StoreSeen) -> str:
    return ", ".join(sorted({server.version for server in seen.servers}))


def _memory(server: ServerSeen) -> Finding:
    room = server.limit_bytes or server.machine_bytes
    of = "of maxmemory" if server.limit_bytes else "of the machine's, no maxmemory is set"
    share = server.used_bytes / room if room else 0.0
    seen = f"{server.used_bytes / MIB:.0f} MiB, {share:.0%} {of}"
    if share > VERY_FULL:
        return found("store.memory", "problem", seen)
    return found_if(share > FULL, "store.memory", "warning", seen)


def _persistence(server: ServerSeen) -> Finding:
    if server.write_failed:
        return found("store.persistence", "problem")
    return found_if(not (server.append_only or server.saves), "store.persistence", "warning")


def _layout(seen: StoreSeen, wanted: Mapping[str, str]) -> Finding:
    if not seen.agreed:
        return found("store.layout", "unknown")
    other = [
        f"{name} is {seen.agreed[name]} there and {value} here"
        for name, value in wanted.items()
        if name in seen.agreed and seen.agreed[name] != value
    ]
    told = "; ".join(other) or ", ".join(f"{name} {value}" for name, value in seen.agreed.items() if name != "secret")
    return found_if(other, "store.layout", "problem", told)
