"""Scenario `ingest`: blocks applied per CPU second from real sockets, and how long from publish to visible.

The unit of comparison is what the plain MessagePack decoder takes for the very same messages, in the same process on
the same core, in turns with the ingest. All CPU of the service's process counts, ZMQ's thread included; a block counts
once the source has applied its batch, and lookups afterwards must see exactly what is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtest.content import Document
from loadtest.filling import fill
from loadtest.machine import Cores, cores, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Target, begin
from loadtest.service import Service, Spent
from loadtest.shapes import Shape, ring_documents, stream
from loadtest.stats import median, percentile
from loadtest.traffic import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtest.report import Row

ENGINES: Final = 8
RING_BLOCKS: Final = 16_384
"""Blocks an engine holds before the measured ones come, in runs with removals."""
TARGET_BLOCKS_MIN: Final = 8
DECODER_SHARE: Final = 0.25
_PING: Final = 3_500
SHAPES: Final = tuple(
    Shape(blocks, events, removals)
    for removals in (False, True)
    for events in (1, 4)
    for blocks in (1, 8, 16, 32, 64, 512)
)


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of one shape."""

    applied_us: float
    """CPU a block, from socket to visible."""
    loop_us: float
    """Of it in the event loop's thread; the rest is ZMQ's own."""
    decoded_us: float
    """CPU a block, plain decoder alone."""


def run(*, blocks: int = 24_576, rounds: int = 3, pings: int = 400, shapes: Sequence[Shape] = SHAPES) -> Result:
    """Measure. `blocks`: stored per engine and round."""
    places = cores()
    pin(places.generator)
    result = begin("ingest", {"engines": ENGINES, "blocks a round": blocks * ENGINES, "rounds": rounds})
    rows: list[Row] = []
    for shape in shapes:
        measured = _measure(shape, blocks, rounds, places)
        row, share = _row(shape, measured)
        rows.append(row)
        if shape.blocks_per_event >= TARGET_BLOCKS_MIN:
            result.targets.append(Target(f"ingest, {shape.name}: share of the decoder's speed", share, DECODER_SHARE))
        print(f"  {shape.name}: {row}", flush=True)
    result.tables["Applied from real sockets, against the plain decoder on the same messages"] = rows
    result.tables["From publish to visible, microseconds"] = _latencies(pings, places)
    return result


def _row(shape: Shape, measured: Sequence[Round]) -> tuple[Row, float]:
    applied = median([each.applied_us for each in measured])
    decoded = median([each.decoded_us for each in measured])
    share = median([each.decoded_us / each.applied_us for each in measured])
    row: Row = {
        "batch": shape.name,
        "blocks/CPU s": round(1e6 / applied),
        "us CPU/block": round(applied, 3),
        "of it in the loop": round(median([each.loop_us for each in measured]), 3),
        "decoder us/block": round(decoded, 3),
        "share": round(share, 3),
        "shares of rounds": " ".join(f"{each.decoded_us / each.applied_us:.2f}" for each in measured),
    }
    return row, share


def _measure(shape: Shape, blocks: int, rounds: int, places: Cores) -> list[Round]:
    """The rounds of one shape, each with contents of its own; sources are cleared in between."""
    measured: list[Round] = []
    with (
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Service, core=places.service) as service,
    ):
        service.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        first = 0
        for number in range(rounds + 1):
            ring, _ = plan = _documents(shape, first, blocks)
            if ring[0]:
                engines.call(Publisher.prepare, shape, first, RING_BLOCKS)
                _publish(engines, service)
            leaving = first if shape.removals else None
            total = engines.call(Publisher.prepare, shape, first + len(ring[0]), blocks, leaving=leaving)
            spent = _publish(engines, service)
            _check(service, shape, *plan)
            decoded = sum(service.call(Service.decode_alone, batches) for batches in _batches(shape, *plan))
            if number:  # the first one warms up
                measured.append(Round(*(each / total * 1e6 for each in (spent.cpu_s, spent.loop_cpu_s, decoded))))
            service.call(Service.clear)
            service.call(Service.settled)
            first += sum(len(part[0]) for part in plan)
    return measured


def _publish(engines: Child[Publisher], service: Child[Service]) -> Spent:
    """Send what is prepared at once; what the service spent on it."""
    applying = service.ask(Service.applied, engines.call(Publisher.prepared_last))
    engines.call(Publisher.publish_prepared)
    return applying.result()


def _documents(shape: Shape, first: int, blocks: int) -> tuple[list[list[Document]], list[list[Document]]]:
    """By engine: the ring that is there before, and what is measured."""
    ring = [ring_documents(shape, engine, first, RING_BLOCKS * shape.removals) for engine in range(ENGINES)]
    coming = [ring_documents(shape, engine, first + len(ring[0]), blocks) for engine in range(ENGINES)]
    return ring, coming


def _batches(
    shape: Shape, ring: Sequence[Sequence[Document]], coming: Sequence[Sequence[Document]]
) -> Iterator[list[bytes]]:
    """The measured messages, engine by engine."""
    for there, own in zip(ring, coming, strict=True):
        yield list(stream(shape, own, [*there, *own] if shape.removals else ()))


def _check(
    service: Child[Service], shape: Shape, ring: Sequence[Sequence[Document]], coming: Sequence[Sequence[Document]]
) -> None:
    """Lookups see the newest documents whole and the gone ones not at all. Raises AssertionError."""
    for seen in service.call(Service.matched, coming[0][-3:]):
        assert seen.get(0) == shape.document_blocks, f"{shape.name}: a stored document is not visible: {seen}"
    for seen in service.call(Service.matched, ring[0][:3]):
        assert 0 not in seen, f"{shape.name}: a removed document is visible: {seen}"
    counts = service.call(Service.counts)
    assert not counts["gaps"], f"{shape.name}: messages were lost: {counts}"
    assert not counts["skipped"], f"{shape.name}: events were skipped: {counts}"


def _latencies(pings: int, places: Cores) -> list[Row]:
    """Idle, and while 20,000 blocks/s arrive from the others."""
    return [row for rate in (0, 20_000) for row in _latency(pings, rate, places)]


def _latency(pings: int, rate: int, places: Cores) -> list[Row]:
    documents = [document(_PING, number, 8) for number in range(pings)]
    with (
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Service, core=places.service) as service,
        Child(Publisher, ENGINES, core=places.engines) as others,
    ):
        service.call(Service.connect, [*engines.call(Publisher.endpoints), *others.call(Publisher.endpoints)])
        engines.call(Publisher.wait_subscribed)
        others.call(Publisher.wait_subscribed)
        service.call(Service.watch_visible, documents, engines.call(Publisher.bare_endpoint))
        engines.call(Publisher.wait_bare_subscribed)
        if rate:
            fill(others, service, ENGINES, 100_000, others=[-1] * ENGINES)
            others.call(Publisher.start_live, rate)
        bare_sent, sent = engines.call(Publisher.announce, documents, 0.002)
        service.call(Service.applied, engines.call(Publisher.last))
        if rate:
            others.call(Publisher.stop_live)
        seen, bare_seen = service.call(Service.visible_seen)
    assert len(seen) == len(sent) == len(bare_seen), "a message was lost"
    assert all(visible for _, visible in seen), "a lookup did not see what was applied"
    hops = [(at - then) / 1e3 for at, then in zip(bare_seen, bare_sent, strict=True)]
    visible = [(at - then) / 1e3 for (at, _), then in zip(seen, sent, strict=True)]
    arriving = f"{rate:,} blocks/s" if rate else "none"
    return [
        {
            "arriving beside": arriving,
            "what": what,
            "p50": round(median(each), 1),
            "p99": round(percentile(each, 0.99), 1),
        }
        for what, each in (("bare hop", hops), ("publish to lookup", visible))
    ]
