"""Scenario `visible`: from an engine's publish to a lookup at another replica that sees it, through a store.

One process collects and owns, another one only follows; 20,000 blocks/s arrive and go beside what is measured. In turns
with it, in the same run, the bare hop: an entry of the same size put into a stream by a plain client, and a plain
client in the follower's process that waits for it. Store, engines and follower share a core, the owner has the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.settings import Redis
from loadtest.filling import fill
from loadtest.followed import Followed
from loadtest.machine import Cores, cores, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Row, Target, begin
from loadtest.service import Service
from loadtest.stats import median, percentile
from loadtest.stores import StoreServer
from loadtest.traffic import document

if TYPE_CHECKING:
    from loadtest.stores import Kind

ENGINES: Final = 8
RATE: Final = 20_000
HELD: Final = 100_000
"""Pairs in the index before anything is measured."""
VISIBLE_MAX: Final = 5.0
STREAM: Final = "bare"
PAUSE_S: Final = 0.002
_PING: Final = 3_500


def run(*, runs: int = 5, pings: int = 400, kind: Kind = "valkey") -> Result:
    """Measure. Each run is a fresh store and fresh processes; the median of the runs' p99 counts."""
    places = cores()
    pin(places.generator)
    result = begin("visible", {"runs": runs, "announcements a run": pings, "blocks/s beside": RATE, "store": kind})
    rows: list[Row] = []
    for number in range(runs):
        rows.append({"run": number + 1, **_once(pings, kind, places)})
        print(f"  {rows[-1]}", flush=True)
    result.tables["From publish to a lookup at another replica, microseconds, beside a bare hop through the store"] = (
        rows
    )
    hops, seen = ([float(row[name] or 0) for row in rows] for name in ("bare p99", "visible p99"))
    ratio = median(seen) / median(hops)
    result.targets.append(
        Target("visible at another replica, p99, times a bare hop's", ratio, VISIBLE_MAX, at_least=False)
    )
    return result


def _once(pings: int, kind: Kind, places: Cores) -> Row:
    documents = [document(_PING, number, 8) for number in range(pings)]
    with (
        StoreServer(kind, places.generator) as store,
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Publisher, ENGINES, core=places.engines) as others,
        Child(Service, redis=Redis(url=store.url), core=places.service) as owner,
        Child(Followed, redis=Redis(url=store.url), roles=("lookup",), core=places.generator) as follower,
    ):
        owner.call(Service.connect, [*engines.call(Publisher.endpoints), *others.call(Publisher.endpoints)])
        engines.call(Publisher.wait_subscribed)
        others.call(Publisher.wait_subscribed)
        fill(others, owner, ENGINES, HELD, others=[-1] * ENGINES)
        follower.call(Followed.expect, 2 * ENGINES)
        follower.call(Service.applied, [-1] * ENGINES + others.call(Publisher.last))
        follower.call(Followed.watch_followed, documents, store.url, STREAM)
        others.call(Publisher.start_live, RATE)
        before = owner.call(Service.cpu_s), follower.call(Service.cpu_s)
        bare_sent, sent = engines.call(Publisher.announce_beside, documents, PAUSE_S, store.url, STREAM)
        follower.call(Service.applied, engines.call(Publisher.last))
        after = owner.call(Service.cpu_s), follower.call(Service.cpu_s)
        live = others.call(Publisher.stop_live)
        seen, bare_seen = follower.call(Service.visible_seen)
    assert len(seen) == len(sent) == len(bare_seen), "a message was lost"
    hops = [(at - then) / 1e3 for at, then in zip(bare_seen, bare_sent, strict=True)]
    visible = [(at - then) / 1e3 for (at, _), then in zip(seen, sent, strict=True)]
    return {
        "bare p50": round(median(hops)),
        "bare p99": round(percentile(hops, 0.99)),
        "visible p50": round(median(visible)),
        "visible p99": round(percentile(visible, 0.99)),
        "blocks/s": round(live.blocks / live.seconds),
        "owner's CPU": round((after[0] - before[0]) / live.seconds, 2),
        "follower's CPU": round((after[1] - before[1]) / live.seconds, 2),
    }
