"""Scenario `rebuild`: a replica that starts beside a full store: how long it takes, and what holds its loop meanwhile.

A fleet's map is written by an owner as in service. Then a replica that only follows starts, and after the owner's
stop a new one; each is watched from before it runs until it has every map. In the same run bare HSCAN of the same
hashes by the same library's plain client, one step after the other, on the core that the replicas had.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import uvloop
from redis.asyncio import Redis

from indexer.settings import Redis as RedisSettings
from loadtest.filling import fill
from loadtest.followed import Followed
from loadtest.machine import Cores, cores, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Row, Target, begin
from loadtest.service import Service
from loadtest.stats import median
from loadtest.stores import KINDS, StoreServer

if TYPE_CHECKING:
    from redis import Redis as BlockingClient

    from loadtest.stores import Kind

ENGINES: Final = 8
STALL_MAX_MS: Final = 20.0
REBUILD_MAX: Final = 3.0
PAIR_MAX: Final = 110.0
MAPS: Final = "kvi:1:*:map:*"


def run(*, pairs: int = 1_000_000, rounds: int = 3) -> Result:
    """Measure. `pairs`: over all engines."""
    places = cores()
    result = begin("rebuild", {"engines": ENGINES, "pairs": pairs, "rounds": rounds})
    rows = [row for kind in KINDS for row in _on(kind, pairs, rounds, places)]
    result.tables["From the start of a replica until it has every map"] = rows
    for row in rows:
        name = f"{row['store']}, {row['replica']}"
        worst, cpu, ratio = (float(row[each] or 0) for each in ("worst stall ms", "worst CPU ms", "times HSCAN"))
        result.targets += [
            Target(f"{name}: longest stall, ms of wall time", worst, STALL_MAX_MS, at_least=False),
            Target(f"{name}: longest stall, ms of CPU time", cpu, STALL_MAX_MS, at_least=False),
            Target(f"{name}: rebuild, times bare HSCAN", ratio, REBUILD_MAX, at_least=False),
        ]
    for kind in KINDS:
        size = next(float(row["bytes a pair"] or 0) for row in rows if row["store"] == kind)
        result.targets.append(Target(f"{kind}: bytes a pair as written in service", size, PAIR_MAX, at_least=False))
    return result


def _on(kind: Kind, pairs: int, rounds: int, places: Cores) -> list[Row]:
    pin(places.generator)
    with (
        StoreServer(kind, places.generator) as store,
        Child(Publisher, ENGINES, core=places.engines) as engines,
        store.look() as look,
    ):
        with Child(Service, redis=RedisSettings(url=store.url), core=places.service) as first:
            first.call(Service.connect, engines.call(Publisher.endpoints))
            engines.call(Publisher.wait_subscribed)
            fill(engines, first, ENGINES, pairs)
            held = first.call(Service.counts)["pairs"]
            until_written(look, held)
            keys = list(look.scan_iter(match=MAPS, count=1_000))
            bytes_a_pair = sum(cast("int", look.memory_usage(key, samples=0) or 0) for key in keys) / held
            following = [_start(store.url, keys, ("lookup",), places) for _ in range(rounds)]
        owning = [_start(store.url, keys, ("collect", "lookup"), places) for _ in range(rounds)]
    rows: list[Row] = []
    for replica, started in (("follower", following), ("owner", owning)):
        seconds = median([float(each["seconds"] or 0) for each in started])
        row: Row = {
            "store": kind,
            "replica": replica,
            "pairs": held,
            "seconds": seconds,
            "bare HSCAN s": median([float(each["bare"] or 0) for each in started]),
            "times HSCAN": median([float(each["seconds"] or 0) / float(each["bare"] or 0) for each in started]),
            "worst stall ms": max(float(each["worst"] or 0) for each in started),
            "worst CPU ms": max(float(each["worst CPU"] or 0) for each in started),
            "bytes a pair": bytes_a_pair,
        }
        rows.append(row)
        print(f"  {row}", flush=True)
    return rows


def _start(url: str, keys: list[bytes], roles: tuple[Literal["collect", "lookup"], ...], places: Cores) -> Row:
    """One replica from before it runs until it has every map; and bare HSCAN just before, on the same core.

    How fast a machine is may be another matter a second later.
    """
    pin(places.service)
    bare = uvloop.run(bare_scan_s(url, keys))
    pin(places.generator)
    with Child(Followed, redis=RedisSettings(url=url), roles=roles, watch=True, core=places.service) as replica:
        replica.call(Followed.expect, ENGINES)
        replica.call(Followed.loaded)
        beat = replica.call(Service.loop_watched)
    return {"seconds": beat.seconds, "bare": bare, "worst": beat.worst_ms, "worst CPU": beat.worst_cpu_ms}


def until_written(look: BlockingClient, pairs: int) -> None:
    """All that the owner holds stands in the store."""
    while sum(int(cast("Any", look.hget(key, "pairs")) or 0) for key in look.scan_iter(match="kvi:1:*:src:*")) != pairs:
        time.sleep(0.05)


async def bare_scan_s(url: str, keys: list[bytes]) -> float:
    """Seconds that HSCAN of these takes the library's plain client, one step after the other."""
    client = Redis(unix_socket_path=url.removeprefix("unix://"), protocol=2)
    started = time.perf_counter()
    for key in keys:
        cursor = 0
        while True:
            cursor, _ = await client.hscan(key, cursor, count=1_000)
            if not cursor:
                break
    seconds = time.perf_counter() - started
    await client.aclose()
    return seconds
