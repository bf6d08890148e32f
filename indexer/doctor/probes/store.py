"""[I/O] What the store's servers say of themselves, and what a namespace there agrees on. Reads only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from indexer.doctor.facts import ServerSeen, StoreSeen
from indexer.doctor.probes.routes import no_route
from indexer.store.client import Client, ClientOptions
from indexer.store.failures import StoreFailure
from indexer.store.fitness import judge
from indexer.store.layout import deployment_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.ports import Clock
    from indexer.store.address import Address

PATIENCE_S: Final = 3.0
ROUNDS: Final = 5


async def look_at_store(address: Address, namespace: str, clock: Clock) -> StoreSeen:
    """All of it, or why not."""
    seen = StoreSeen(place=address.place)
    client = Client(address, ClientOptions(timeout_s=PATIENCE_S, retries=0), clock, random.SystemRandom())
    try:
        reports = await client.reports()
        seen.servers = tuple(_server(report) for report in reports)
        try:
            judge(reports, as_cluster=client.is_cluster)
        except StoreFailure as unfit:
            seen.unfit = unfit.detail
        seen.round_trip_ms = await _round_trip_ms(client, namespace, clock)
        seen.clock_skew_s = await _skew_s(client, clock)
        fields = await client.fields(deployment_key(namespace))
        seen.agreed = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    except StoreFailure as failure:
        seen.trouble = _no_way(address) or str(failure)
    finally:
        await client.close()
    return seen


def _no_way(address: Address) -> str | None:
    """Why not even a connection stands, where there is one server and that is why."""
    places = [f"ipc://{address.path}"] if address.path else [f"tcp://{host}:{port}" for host, port in address.hosts]
    return no_route(places[0]) if len(places) == 1 else None


async def _round_trip_ms(client: Client, namespace: str, clock: Clock) -> float:
    """The quickest of a few: what the way takes, not what else runs here."""
    took: list[float] = []
    for _ in range(ROUNDS):
        began = clock.now()
        await client.type_of(deployment_key(namespace))
        took.append(clock.now() - began)
    return min(took) * 1_000


async def _skew_s(client: Client, clock: Clock) -> float | None:
    """The store's clock minus ours, from a report that was made on the way there and back."""
    before = clock.wall_us()
    reports = await client.reports()
    after = clock.wall_us()
    times = [int(report["server_time_usec"]) for report in reports if report.get("server_time_usec")]
    if not times:
        return None
    furthest = max(times, key=lambda time: abs(time - before))
    if before <= furthest <= after:
        return 0.0
    return (furthest - (after if furthest > after else before)) / 1e6


def _server(report: Mapping[str, Any]) -> ServerSeen:
    failed = [
        report.get(key) for key in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
    ]
    return ServerSeen(
        version=str(report.get("valkey_version") or report.get("redis_version") or ""),
        used_bytes=int(report.get("used_memory") or 0),
        limit_bytes=int(report.get("maxmemory") or 0),
        machine_bytes=int(report.get("total_system_memory") or 0),
        evicted=int(report.get("evicted_keys") or 0),
        append_only=bool(report.get("aof_enabled")),
        saves=_saves(report),
        write_failed=any(status not in {None, "ok"} for status in failed),
    )


def _saves(report: Mapping[str, Any]) -> bool | None:
    """It has made a snapshot since its start: whether it is to make any is not told without CONFIG."""
    made = report.get("rdb_saves")
    return None if made is None else int(made) > 0
