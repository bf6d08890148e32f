"""Scenario `takeover`: a replica that owns is killed, or leaves, while its engines publish and nothing can be replayed.

Three replicas with standbys. Kill: from SIGKILL to the first answer at another replica that has a batch published after
it, asked for by `min_sequence`, for each source that the killed one owned. Drained or stopped: the longest time for
which a source stood still at the others, beside the longest one before anything happened. Nothing may be lost: no gap,
every source exact and in the generation that it was in.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from loadtest.pauses import takeover
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Target, begin
from loadtest.service import Service, pod
from loadtest.shared import Shared
from loadtest.stores import StoreServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtest.report import Row
    from loadtest.stores import Kind

SOURCES: Final = 12
HELD: Final = 12_000
"""Pairs in the index before anything happens."""
RATE: Final = 4_000
"""Blocks a second over all engines, 8 in a batch: some 40 batches a second each."""
NAMES: Final = ("r1", "r2", "r3")
LEASES: Final = ((3.0, 2), (10.0, 1))
"""Lease times, and how often each is tried."""
BEYOND_LEASE_MAX_S: Final = 1.0
WATCH_S: Final = 2.0
LOST: Final = ("not there", "gaps", "begun anew", "not exact")

Leaving = Literal["drained", "stopped"]


class Running(NamedTuple):
    """Replicas by name, and their engines at work."""

    engines: Child[Publisher]
    replicas: Mapping[str, Child[Shared]]


def run(*, leases: Sequence[tuple[float, int]] = LEASES, kind: Kind = "valkey") -> Result:
    """Measure."""
    sizes = {"replicas": len(NAMES), "sources": SOURCES, "pairs": HELD, "blocks/s": RATE, "store": kind}
    result = begin("takeover", sizes | {"replay": "none"})
    kills = [_killed(lease_s, kind) for lease_s, times in leases for _ in range(times)]
    result.tables["From SIGKILL to an answer elsewhere that has what was published after it"] = kills
    result.tables["A replica that gives up what it owns"] = [_leaving(kind, "drained"), _leaving(kind, "stopped")]
    for lease_s in dict.fromkeys(lease_s for lease_s, _ in leases):
        worst = max(float(row["beyond the lease s"] or 0) for row in kills if row["lease s"] == lease_s)
        name = f"takeover of every source, lease {lease_s:g} s: seconds beyond the lease"
        result.targets.append(Target(name, worst, BEYOND_LEASE_MAX_S, at_least=False))
    rows = [row for table in result.tables.values() for row in table]
    lost = sum(float(row[each] or 0) for row in rows for each in LOST)
    result.targets.append(
        Target("sources left behind, with a gap, begun anew or not exact any more", lost, 0.0, at_least=False)
    )
    return result


@contextlib.contextmanager
def _running(lease_s: float, kind: Kind) -> Iterator[Running]:
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(StoreServer(kind, None))
        engines = stack.enter_context(Child(Publisher, SOURCES))
        endpoints = engines.call(Publisher.endpoints)
        replicas = {
            name: stack.enter_context(Child(Shared, name, store.url, endpoints, lease_s=lease_s)) for name in NAMES
        }
        for pending in [each.ask(Shared.begin) for each in replicas.values()]:
            pending.result()
        for each in replicas.values():
            each.call(Shared.shared_out, NAMES, stood_by=True)
        engines.call(Publisher.wait_subscribed, 2)
        engines.call(Publisher.prepare_fleet, SOURCES, HELD)
        while engines.call(Publisher.publish_piece):
            pass
        for each in replicas.values():
            each.call(Service.applied, engines.call(Publisher.last))
            each.call(Shared.all_live)
        engines.call(Publisher.start_live, RATE)
        yield Running(engines, replicas)


def _killed(lease_s: float, kind: Kind) -> Row:
    with _running(lease_s, kind) as (engines, replicas):
        time.sleep(WATCH_S)
        before = replicas[NAMES[0]].call(Shared.generations)
        victim, owned = _busiest(replicas)
        others = [each for name, each in replicas.items() if name != victim]
        killed_at = time.monotonic_ns()
        replicas[victim].kill()
        after = {pod(number): last for number, last in enumerate(engines.call(Publisher.last))}
        asked = {name: after[name] + 1 for name in owned}
        seen = [pending.result() for pending in [each.ask(Shared.seen, asked) for each in others]]
        lost = _lost(engines, others, before)
    took = takeover(killed_at, seen)
    row: Row = {
        "lease s": lease_s,
        "sources of the killed": len(owned),
        "first source s": round(took.first_s, 2),
        "every source s": round(took.last_s, 2),
        "beyond the lease s": round(took.last_s - lease_s, 2),
        **lost,
    }
    print(f"  {row}", flush=True)
    return row


def _leaving(kind: Kind, how: Leaving) -> Row:
    with _running(10.0, kind) as (engines, replicas):
        before = replicas[NAMES[0]].call(Shared.generations)
        for each in replicas.values():
            each.call(Shared.watch_sequences)
        time.sleep(WATCH_S)
        leaving, owned = _busiest(replicas)
        others = [each for name, each in replicas.items() if name != leaving]
        resting = [each.call(Shared.longest_pauses) for each in others]
        started = time.perf_counter()
        if how == "drained":
            others[0].call(Shared.drain, leaving)
        else:
            replicas[leaving].close()
        took_s = time.perf_counter() - started
        time.sleep(WATCH_S)
        moving = [each.call(Shared.longest_pauses) for each in others]
        lost = _lost(engines, others, before)
    row: Row = {
        "it is": how,
        "its sources": len(owned),
        "until it owns nothing s": round(took_s, 2),
        "longest pause ms": round(1e3 * max(each[name] for each in moving for name in owned)),
        "before ms": round(1e3 * max(each[name] for each in resting for name in owned)),
        **lost,
    }
    print(f"  {row}", flush=True)
    return row


def _busiest(replicas: Mapping[str, Child[Shared]]) -> tuple[str, list[str]]:
    """The owner of most sources, and which these are, as each one says of itself at this moment."""
    owned = {name: each.call(Shared.owned) for name, each in replicas.items()}
    name = max(owned, key=lambda each: len(owned[each]))
    return name, owned[name]


def _lost(engines: Child[Publisher], others: Sequence[Child[Shared]], before: Mapping[str, str]) -> Row:
    """Once all that was published is applied: what is missing. Zeros are what must be."""
    engines.call(Publisher.stop_live)
    last = engines.call(Publisher.last)
    asked = [each.ask(Shared.behind, last) for each in others]
    behind = {name for pending in asked for name in pending.result()}
    generations = [each.call(Shared.generations) for each in others]
    return {
        "not there": len(behind),
        "gaps": sum(each.call(Service.counts)["gaps"] for each in others),
        "begun anew": sum(each[name] != before[name] for each in generations for name in before),
        "not exact": sum(len(before) - each.call(Shared.sure) for each in others),
    }
