"""Scenario `soak-store`: millions of blocks churned through a bounded live set in Redis mode, and what memory does.

Engines hold a ring of documents; fresh ones come, the oldest go. Through real sockets into an owner, from there through
the store to a replica that follows, each piece sent when both have the one before. Memory of all three is sampled at
equal distances; at the end both replicas answer alike, then all sources leave, and the store keeps nothing of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from indexer.settings import Redis
from indexer.settings.forms import MIB
from loadtest.followed import Followed
from loadtest.machine import cores, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Row, Target, begin
from loadtest.service import Service
from loadtest.shapes import Shape, ring_documents
from loadtest.stores import StoreServer

if TYPE_CHECKING:
    from redis import Redis as StoreClient

    from loadtest.stores import Kind

ENGINES: Final = 8
SHAPE: Final = Shape(16, removals=True)
ROUNDS: Final = 20
WARM_ROUNDS: Final = 8
"""Of them, after which memory must not grow any more: the journal has reached its budget by then."""
GROWTH_MAX: Final = 0.05
SLACK_BYTES: Final = 4 * MIB
LEFT_MAX_BYTES: Final = 4 * MIB
CHECKED: Final = 20
LEAVE_S: Final = 60.0


@dataclass
class Memory:
    """Of one process: before there was any source, and after each round."""

    start: int
    samples: list[int] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Of what the index takes, from the end of the warm-up to the last sample, above the allocator's steps."""
        warm = self.samples[WARM_ROUNDS - 1]
        return max(0.0, (self.samples[-1] - warm - SLACK_BYTES) / max(1, warm - self.start))


class _Soak:
    """The three processes and the engines."""

    def __init__(
        self, look: StoreClient, engines: Child[Publisher], owner: Child[Service], follower: Child[Followed]
    ) -> None:
        self._look, self._engines, self._owner, self._follower = look, engines, owner, follower
        owner.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        follower.call(Followed.expect, ENGINES)
        self.memory = {name: Memory(size) for name, size in self._sizes().items()}

    def _sizes(self) -> dict[str, int]:
        return {
            "store": _used_bytes(self._look),
            "owner": self._owner.call(Service.rss_bytes),
            "follower": self._follower.call(Service.rss_bytes),
        }

    def publish(self, first: int, blocks: int, *, leaving: int | None) -> int:
        """Documents from number `first` on, so many blocks an engine, in pieces. Returns the blocks of all engines."""
        count = self._engines.call(Publisher.prepare, SHAPE, first, blocks, leaving=leaving)
        more = True
        while more:
            more = self._engines.call(Publisher.publish_piece)
            last = self._engines.call(Publisher.last)
            self._owner.call(Service.applied, last)
            self._follower.call(Service.applied, last)
        return count

    def sample(self) -> None:
        """Note memory."""
        for name, size in self._sizes().items():
            self.memory[name].samples.append(size)

    def check(self, gone: int, held: int, count: int) -> None:
        """Both see the newest documents whole and the gone ones not at all. Raises AssertionError."""
        newest = ring_documents(SHAPE, 0, held, count * SHAPE.document_blocks)
        oldest = ring_documents(SHAPE, 0, gone, count * SHAPE.document_blocks)
        seen = [replica.call(Service.matched, [*newest, *oldest]) for replica in (self._owner, self._follower)]
        assert seen[0] == seen[1], "a replica that follows answers otherwise than the owner"
        assert all(each.get(0) == SHAPE.document_blocks for each in seen[0][: len(newest)]), "a document is not visible"
        assert all(0 not in each for each in seen[0][len(newest) :]), "a removed document is visible"
        for replica in (self._owner, self._follower):
            counts = replica.call(Service.counts)
            assert not counts["gaps"], counts

    def leave(self) -> None:
        """All sources are removed; returns when the store has unlinked their maps."""
        for engine in range(ENGINES):
            self._owner.call(Service.remove, engine)
        end = time.monotonic() + LEAVE_S
        while any(b":map:" in key for key in self._look.scan_iter(count=1_000)):
            assert time.monotonic() < end, "maps of removed sources are left in the store"
            time.sleep(0.1)


def _used_bytes(look: StoreClient) -> int:
    told: Any = look.info("memory")
    return int(told["used_memory"])


def run(*, blocks: int = 5_000_000, live_blocks: int = 16_384, kind: Kind = "valkey") -> Result:
    """Churn. `blocks` over all engines; `live_blocks` an engine."""
    places = cores()
    pin(places.generator)
    result = begin("soak-store", {"engines": ENGINES, "live blocks an engine": live_blocks, "store": kind})
    documents = -(-live_blocks // SHAPE.document_blocks)
    each = -(-blocks // (ENGINES * ROUNDS * SHAPE.document_blocks))
    rows: list[Row] = []
    churned = 0
    with (
        StoreServer(kind, places.generator) as store,
        store.look() as look,
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Service, redis=(redis := Redis(url=store.url, journal_bytes=MIB)), core=places.service) as owner,
        Child(Followed, redis=redis, roles=("lookup",), core=places.generator) as follower,
    ):
        soak = _Soak(look, engines, owner, follower)
        soak.publish(0, documents * SHAPE.document_blocks, leaving=None)
        started = time.monotonic()
        for number in range(ROUNDS):
            first = documents + number * each
            churned += soak.publish(first, each * SHAPE.document_blocks, leaving=first - documents)
            soak.sample()
            row: Row = {"blocks": churned}
            row |= {f"{name} MiB": round(memory.samples[-1] / MIB, 1) for name, memory in soak.memory.items()}
            rows.append(row)
            print(f"  {row}", flush=True)
        rate = churned / (time.monotonic() - started)
        end = documents + ROUNDS * each
        checked = min(CHECKED, documents)
        soak.check(end - documents - checked, end - checked, checked)
        soak.leave()
        left = _used_bytes(look)
    result.sizes["blocks churned"] = churned
    result.tables["Memory, MiB"] = rows
    result.remarks.append(f"{rate:,.0f} blocks/s, each piece on both replicas before the next one was sent.")
    result.targets += [
        Target(f"growth of the {name} after warm-up, share of the index", memory.growth, GROWTH_MAX, at_least=False)
        for name, memory in soak.memory.items()
    ]
    kept = (left - soak.memory["store"].start) / MIB
    limit = (LEFT_MAX_BYTES + ENGINES * 2 * MIB) / MIB
    result.targets.append(Target("left in the store when all left, MiB with journals", kept, limit, at_least=False))
    return result
