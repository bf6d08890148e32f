"""Scenario `replicas`: 60 busy sources, shared by 1, 2 and 3 replicas beside one store.

Each with a standby a partition, three also without. As fast as it goes: blocks until every replica has all of them and
nothing waits to be written, and the CPU time that each process took. Then at a rate: from an engine's publish to a
lookup at each replica that sees it. All processes share the machine's cores, so that more replicas are no faster here;
what they cost is what can be read off.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from loadtest.followed import Followed
from loadtest.pauses import per_million
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, begin
from loadtest.service import Service, pod
from loadtest.shapes import Shape
from loadtest.shared import Shared
from loadtest.stats import median, percentile
from loadtest.stores import StoreServer
from loadtest.traffic import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.report import Row
    from loadtest.stores import Kind

SOURCES: Final = 60
SHAPE: Final = Shape(16, removals=False)
FILLED: Final = 60_000
"""Pairs that come and go while announcements are timed."""
RATE: Final = 10_000
STREAM: Final = "bare"
PAUSE_S: Final = 0.002
SETUPS: Final = ((1, 0), (2, 1), (3, 1), (3, 0))
"""Replicas, and standbys a partition."""
_PING: Final = 3_500


@dataclass
class Busy:
    """What was measured with so many replicas, a value a round."""

    seconds: list[float] = field(default_factory=list)
    replicas: list[list[float]] = field(default_factory=list)
    """CPU seconds, by replica."""
    store: list[float] = field(default_factory=list)


def run(*, blocks: int = 1_536, rounds: int = 3, pings: int = 200, kind: Kind = "valkey") -> Result:
    """Measure. `blocks`: stored per source and round."""
    sizes: dict[str, object] = {
        "sources": SOURCES,
        "blocks a round": blocks * SOURCES,
        "rounds": rounds,
        "partitions": 16,
        "store": kind,
    }
    result = begin("replicas", sizes | {"blocks/s beside announcements": RATE})
    rows: list[Row] = []
    for count, standby in SETUPS:
        row = _with(count, standby, blocks, rounds, pings, kind)
        row["times 1 replica"] = float(row["blocks/s"] or 0) / float((rows or [row])[0]["blocks/s"] or 1)
        rows.append(row)
        print(f"  {row}", flush=True)
    result.tables["60 busy sources, shared by replicas"] = rows
    cores = len(os.sched_getaffinity(0))
    result.remarks.append(
        f"All processes share {cores} cores: engines, store and every replica. So blocks/s do not grow with the "
        "replicas here; CPU seconds a million blocks say what each process had to do."
    )
    return result


def _with(count: int, standby: int, blocks: int, rounds: int, pings: int, kind: Kind) -> Row:
    names = [f"r{number + 1}" for number in range(count)]
    with contextlib.ExitStack() as running:
        store = running.enter_context(StoreServer(kind, None))
        pinger = running.enter_context(Child(Publisher, 1))
        engines = running.enter_context(Child(Publisher, SOURCES))
        endpoints = [*pinger.call(Publisher.endpoints), *engines.call(Publisher.endpoints)]
        replicas = [running.enter_context(Child(Shared, name, store.url, endpoints, standby=standby)) for name in names]
        for pending in [each.ask(Shared.begin) for each in replicas]:
            pending.result()
        for each in replicas:
            each.call(Shared.shared_out, names, stood_by=bool(standby))
        for publisher in (pinger, engines):
            publisher.call(Publisher.wait_subscribed, 1 + standby)
        busy = _busy(engines, replicas, store, blocks, rounds)
        seen = _visible(pinger, engines, replicas, store, pings)
        owners = Counter(owner for name, owner in replicas[0].call(Shared.owners).items() if name != pod(0))
        lost = [each.call(Service.counts)["gaps"] for each in replicas]
    assert not any(lost), f"messages were lost: {lost}"
    total = blocks * SOURCES
    each_cpu = [median(each) for each in zip(*busy.replicas, strict=True)]
    return {
        "replicas": count,
        "standby": standby,
        "blocks/s": round(median([total / seconds for seconds in busy.seconds])),
        "CPU s a million blocks": round(per_million(sum(each_cpu), total), 1),
        "busiest replica": round(per_million(max(each_cpu), total), 1),
        "store": round(per_million(median(busy.store), total), 1),
        "sources of each": " ".join(str(owners[name]) for name in names),
        **seen,
    }


def _busy(
    engines: Child[Publisher], replicas: Sequence[Child[Shared]], store: StoreServer, blocks: int, rounds: int
) -> Busy:
    busy = Busy()
    first = 0
    for number in range(rounds + 1):
        engines.call(Publisher.prepare, SHAPE, first, blocks)
        first += -(-blocks // SHAPE.document_blocks)
        last = [-1, *engines.call(Publisher.prepared_last)]
        before = [each.call(Service.cpu_s) for each in replicas], store.cpu_s()
        started = time.perf_counter()
        waiting = [each.ask(Shared.absorbed, last) for each in replicas]
        engines.call(Publisher.publish_prepared)
        for pending in waiting:
            pending.result()
        seconds = time.perf_counter() - started
        after = [each.call(Service.cpu_s) for each in replicas], store.cpu_s()
        if number:  # the first one warms up
            busy.seconds.append(seconds)
            busy.replicas.append([end - begun for end, begun in zip(after[0], before[0], strict=True)])
            busy.store.append(after[1] - before[1])
    return busy


def _visible(
    pinger: Child[Publisher],
    engines: Child[Publisher],
    replicas: Sequence[Child[Shared]],
    store: StoreServer,
    pings: int,
) -> Row:
    documents = [document(_PING, number, 8) for number in range(pings)]
    engines.call(Publisher.prepare_fleet, SOURCES, FILLED)
    engines.call(Publisher.publish_prepared)
    for each in replicas:
        each.call(Service.applied, [-1, *engines.call(Publisher.last)])
    for each in replicas:
        each.call(Followed.watch_followed, documents, store.url, STREAM)
    engines.call(Publisher.start_live, RATE)
    bare_sent, sent = pinger.call(Publisher.announce_beside, documents, PAUSE_S, store.url, STREAM)
    for each in replicas:
        each.call(Service.applied, pinger.call(Publisher.last))
    live = engines.call(Publisher.stop_live)
    seen = [each.call(Service.visible_seen) for each in replicas]
    slowest = [max(at for at, _ in moments) for moments in zip(*(each[0] for each in seen), strict=True)]
    assert len(slowest) == len(sent), "a message was lost"
    hops = [max(moments) for moments in zip(*(each[1] for each in seen), strict=True)]
    visible = [(at - then) / 1e3 for at, then in zip(slowest, sent, strict=True)]
    bare = [(at - then) / 1e3 for at, then in zip(hops, bare_sent, strict=True)]
    return {
        "visible at the slowest, p50 us": round(median(visible)),
        "p99 us": round(percentile(visible, 0.99)),
        "bare hop p99 us": round(percentile(bare, 0.99)),
        "blocks/s beside": round(live.blocks / live.seconds),
    }
