"""Scenario `idle-sources`: 1,000 engines that say nothing, in one replica, then shared with a second that stands by.

What a process holds for them (memory, open files), what it does while nothing happens (CPU time of it and of the
store), and what keeps its loop waiting. The engines have no replay endpoint: with one, an owner asks each of them every
`events.probe_interval_s`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Target, begin
from loadtest.service import Service
from loadtest.shared import Shared
from loadtest.stores import StoreServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.report import Row
    from loadtest.stores import Kind

NAMES: Final = ("r1", "r2")
STALL_MAX_MS: Final = 20.0


def run(*, sources: int = 1_000, rest_s: float = 5.0, kind: Kind = "valkey") -> Result:
    """Measure."""
    result = begin("idle-sources", {"sources": sources, "partitions": 16, "seconds at rest": rest_s, "store": kind})
    rows: list[Row] = []
    with contextlib.ExitStack() as running:
        store = running.enter_context(StoreServer(kind, None))
        engines = running.enter_context(Child(Publisher, sources))
        endpoints = engines.call(Publisher.endpoints)
        replicas: list[Child[Shared]] = []
        for name in NAMES:
            replica = running.enter_context(Child(Shared, name, store.url, endpoints))
            empty = replica.call(Service.rss_bytes)
            started = time.perf_counter()
            replica.call(Shared.begin)
            replicas.append(replica)
            names = NAMES[: len(replicas)]
            for each in replicas:
                each.call(Shared.shared_out, names, stood_by=len(names) > 1)
            engines.call(Publisher.wait_subscribed, len(names))
            seconds = time.perf_counter() - started
            for each_name, each in zip(names, replicas, strict=True):
                row: Row = {"replicas": len(names), "replica": each_name, "seconds until all is shared": seconds}
                rows.append(row | _at_rest(each, store, rest_s, sources, empty))
                print(f"  {rows[-1]}", flush=True)
    result.tables[f"{sources:,} idle sources"] = rows
    result.targets += _targets(rows)
    return result


def _at_rest(replica: Child[Shared], store: StoreServer, rest_s: float, sources: int, empty: int) -> Row:
    owners = replica.call(Shared.owners)
    before = store.cpu_s()
    spent = replica.call(Service.rest, rest_s)
    of_store = (store.cpu_s() - before) / spent.wall_s
    replica.call(Service.watch_loop)
    replica.call(Service.rest, rest_s)
    beat = replica.call(Service.loop_watched)
    resident = replica.call(Service.rss_bytes)
    return {
        "owns": sum(owner == replica.call(Shared.name) for owner in owners.values()),
        "MiB": round(resident / 2**20),
        "KiB a source": round((resident - empty) / sources / 2**10, 1),
        "open files": replica.call(Shared.files),
        "CPU": round(spent.cpu_s / spent.wall_s, 3),
        "CPU of the store": round(of_store, 3),
        "worst stall ms": beat.worst_ms,
        "of it CPU ms": beat.worst_cpu_ms,
    }


def _targets(rows: Sequence[Row]) -> list[Target]:
    return [
        Target(
            f"idle sources, {row['replicas']} replicas, {row['replica']}: longest stall, ms of CPU time",
            float(row["of it CPU ms"] or 0),
            STALL_MAX_MS,
            at_least=False,
        )
        for row in rows
    ]
