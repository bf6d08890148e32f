"""Scenario `memory`: bytes per unique block in the mirror, per pair in the reverse maps, and per pair over everything.

Each figure is the growth of a fresh process's resident memory, after churn: what is measured has replaced other
contents of the same size. Eight sources; half of what each holds is held by one more source, so a million pairs are
three quarters of a million unique blocks.
"""

from __future__ import annotations

import gc
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from indexer.clock import SystemClock
from indexer.hashing.chain import hash_prompt
from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.removals import Why
from indexer.ingest import Ingest
from indexer.model import Descriptor, RawBatch, Tier
from loadtest.content import BLOCK, Document
from loadtest.filling import publish_prepared
from loadtest.machine import cores, pin, rss_bytes
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Row, Target, begin
from loadtest.service import Service
from loadtest.shapes import Shape, ring_documents, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENGINES: Final = 8
SHAPE: Final = Shape(32, removals=True)
MIRROR_MAX: Final = 120.0
REVERSE_MAX: Final = 150.0
EVERYTHING_MAX: Final = 350.0
SHIFT: Final = 7


class Nowhere:
    """Takes changes of presence and keeps none: what remains is the reverse maps."""

    def add(self, slot: int, lane: int, hashes: Sequence[int], parents: Sequence[int]) -> list[int]:
        """See `Mirror.add`."""
        del slot, lane, hashes, parents
        return []

    def remove(self, slot: int, lane: int, hashes: Sequence[int], why: Why) -> None:
        """See `Mirror.remove`."""


class MirrorAlone:
    """The mirror, filled twice over by eight slots."""

    def measure(self, blocks: int) -> dict[str, float]:
        """`blocks`: held by each slot at a time."""
        mirror = Mirror(SHIFT)
        tables = [LaneTable() for _ in range(ENGINES)]
        for table in tables:
            table.number(0, Tier.GPU)
            table.set_main_groups((0,))
        slots = [mirror.open_slot(table) for table in tables]
        before = _rss()
        for engine, coming, going in _turns(blocks):
            hashes = _hashes(coming)
            mirror.add(slots[engine], 0, hashes, [0, *hashes[:-1]])
            if going is not None:
                mirror.remove(slots[engine], 0, _hashes(going))
            mirror.tidy_slice()
        while mirror.tidy_slice():
            pass
        after = _rss()
        return {"bytes": after - before, "unique": mirror.table.live, "arrays": mirror.table.bytes_used()}


class ReverseMapsAlone:
    """The ingest story over a presence that keeps nothing."""

    def measure(self, blocks: int) -> dict[str, float]:
        """`blocks`: held by each source at a time."""
        ingest = Ingest(Mirror(SHIFT), SystemClock(), presence=Nowhere())
        sinks = [ingest.open_source(Descriptor(pod=f"pod-{number}")) for number in range(ENGINES)]
        before = _rss()
        for engine, (there, coming) in enumerate(_rings(blocks)):
            batches = chain(stream(SHAPE, there), stream(SHAPE, coming, [*there, *coming]))
            for sequence, batch in enumerate(batches):
                sinks[engine].apply(RawBatch(b"", sequence, batch))
                ingest.tidy_slice()  # as the node's housekeeping does
        while ingest.tidy_slice():
            pass
        after = _rss()
        return {"bytes": after - before, "pairs": sum(sink.source.pairs for sink in sinks)}


def run(*, pairs: int = 1_000_000) -> Result:
    """Measure. `pairs`: over all sources."""
    places = cores()
    pin(places.generator)
    blocks = pairs // ENGINES
    result = begin("memory", {"engines": ENGINES, "pairs": pairs, "shared": "half of each source's, with one other"})
    with Child(MirrorAlone, core=places.service) as mirror:
        mirrored = mirror.call(MirrorAlone.measure, blocks)
    with Child(ReverseMapsAlone, core=places.service) as maps:
        mapped = maps.call(ReverseMapsAlone.measure, blocks)
    whole = _everything(blocks, places.service, places.engines)
    rows: list[Row] = [
        _row("mirror", mirrored["bytes"], mirrored["unique"], "unique block"),
        _row("mirror, its arrays", mirrored["arrays"], mirrored["unique"], "unique block"),
        _row("reverse maps", mapped["bytes"], mapped["pairs"], "pair"),
        _row("whole service, over its idle size", whole["bytes"], whole["pairs"], "pair"),
        _row("whole service, idle with its sources", whole["idle"], None, ""),
    ]
    result.tables["Resident memory after churn"] = rows
    result.targets += [
        Target("mirror, bytes per unique block", mirrored["bytes"] / mirrored["unique"], MIRROR_MAX, at_least=False),
        Target("reverse maps, bytes per pair", mapped["bytes"] / mapped["pairs"], REVERSE_MAX, at_least=False),
        Target("whole service, bytes per pair", whole["bytes"] / whole["pairs"], EVERYTHING_MAX, at_least=False),
    ]
    return result


def _everything(blocks: int, service_core: int, engines_core: int) -> dict[str, float]:
    """The service with HTTP up, filled twice over through real sockets."""
    with (
        Child(Publisher, ENGINES, core=engines_core) as engines,
        Child(Service, http=True, core=service_core) as service,
    ):
        service.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        idle = service.call(Service.rss_bytes)
        engines.call(Publisher.prepare, SHAPE, 0, blocks)
        publish_prepared(engines, service)
        engines.call(Publisher.prepare, SHAPE, len(ring_documents(SHAPE, 0, 0, blocks)), blocks, leaving=0)
        publish_prepared(engines, service)
        service.call(Service.settled)
        after = service.call(Service.rss_bytes)
        counts = service.call(Service.counts)
    assert not counts["gaps"], counts
    return {"idle": idle, "bytes": after - idle, "pairs": counts["pairs"], "unique": counts["unique"]}


def _rings(blocks: int) -> Iterator[tuple[list[Document], list[Document]]]:
    """By engine: what is there first, and what takes its place."""
    for engine in range(ENGINES):
        there = ring_documents(SHAPE, engine, 0, blocks)
        yield there, ring_documents(SHAPE, engine, len(there), blocks)


def _turns(blocks: int) -> Iterator[tuple[int, Document, Document | None]]:
    """(engine, what it stores, what it then removes), engines in turns."""
    rings = list(_rings(blocks))
    there = len(rings[0][0])
    for turn in range(2 * there):
        for engine, (first, second) in enumerate(rings):
            both = (first, second)[turn >= there]
            yield engine, both[turn % there], first[turn - there] if turn >= there else None


def _hashes(document: Document) -> list[int]:
    return hash_prompt(document.tokens().astype(np.uint32).tobytes(), BLOCK)


def _rss() -> int:
    gc.collect()
    return rss_bytes()


def _row(what: str, size: float, count: float | None, unit: str) -> Row:
    row: Row = {"what": what, "MiB": round(size / 2**20, 1)}
    if count:
        row |= {"count": round(count), "bytes": round(size / count, 1), "per": unit}
    print(f"  {row}", flush=True)
    return row
