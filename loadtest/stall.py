"""Scenario `stall`: does anything hold the event loop while the index grows to millions of blocks?

The loop's iterations are measured inside the service's process: at rest, while 3 million blocks arrive through real
sockets (batches of 8, 64 and 512 blocks in turns), while 20,000 blocks/s arrive at that size, and while a source
leaves and its memory is given back. The machine may be shared: the same watch over the resting loop says what it
does on its own, and CPU time leaves out what others took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.filling import fill, publish_in_pieces
from loadtest.machine import cores, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.report import Result, Row, Target, begin
from loadtest.service import Service
from loadtest.traffic import document

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.beats import Beat
    from loadtest.content import Document

ENGINES: Final = 8
DOCUMENT_BLOCKS: Final = 512
EVENT_BLOCKS: Final = (8, 64, 512)
PIECE_DOCUMENTS: Final = 9
"""Of each engine: a multiple of the event sizes, which take turns; two pieces stay below the receivers' limit."""
STALL_MAX_MS: Final = 20.0
LIVE_BLOCKS_PER_S: Final = 20_000
_GROWN: Final = 3_500


def run(*, blocks: int = 3_000_000, rest_s: float = 5.0, live_s: float = 5.0) -> Result:
    """Measure. `blocks`: unique ones, over all engines."""
    places = cores()
    pin(places.generator)
    result = begin("stall", {"engines": ENGINES, "unique blocks": blocks, "events": "8, 64, 512 blocks in turns"})
    rows: list[Row] = []
    with (
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Publisher, ENGINES, core=places.engines) as others,
        Child(Service, core=places.service) as service,
    ):
        service.call(Service.connect, [*engines.call(Publisher.endpoints), *others.call(Publisher.endpoints)])
        engines.call(Publisher.wait_subscribed)
        others.call(Publisher.wait_subscribed)

        resting = _watched(service, lambda: service.call(Service.rest, rest_s), "at rest", rows)
        growing = _watched(service, lambda: _grow(service, engines, blocks), "growing", rows)
        counts = service.call(Service.counts)
        assert counts["unique"] == counts["pairs"] >= blocks, counts
        assert not counts["gaps"], counts
        held = service.call(Service.matched, [documents[-1] for documents in _documents(blocks)])
        assert all(seen == {engine: DOCUMENT_BLOCKS} for engine, seen in enumerate(held)), held

        fill(others, service, ENGINES, 100_000, others=[-1] * ENGINES)
        others.call(Publisher.start_live, LIVE_BLOCKS_PER_S)
        _watched(service, lambda: service.call(Service.rest, live_s), f"{LIVE_BLOCKS_PER_S:,} blocks/s arriving", rows)
        others.call(Publisher.stop_live)
        _watched(service, lambda: _leave(service), "a source leaves, its memory is given back", rows)
    result.tables["Iterations of the event loop, milliseconds"] = rows
    result.targets += [
        Target("longest stall while growing, ms of wall time", growing.worst_ms, STALL_MAX_MS, at_least=False),
        Target("longest stall while growing, ms of CPU time", growing.worst_cpu_ms, STALL_MAX_MS, at_least=False),
    ]
    if growing.worst_ms > STALL_MAX_MS >= growing.worst_cpu_ms:
        result.remarks.append(
            f"The longest iteration used {growing.worst_cpu_ms} ms of CPU; the resting loop was kept waiting for up to "
            f"{resting.worst_ms} ms in the same run."
        )
    return result


def _watched(service: Child[Service], action: Callable[[], object], what: str, rows: list[Row]) -> Beat:
    service.call(Service.watch_loop)
    action()
    beat = service.call(Service.loop_watched)
    rows.append(
        {
            "loop": what,
            "seconds": beat.seconds,
            "worst": beat.worst_ms,
            "worst, CPU time": beat.worst_cpu_ms,
            "worst collection, CPU time": beat.worst_collection_ms,
            "p99.9 wait": beat.p999_ms,
            "over 5 ms": beat.over_5_ms,
            "over 20 ms": beat.over_20_ms,
        }
    )
    print(f"  {rows[-1]}", flush=True)
    return beat


def _documents(blocks: int) -> list[list[Document]]:
    each = -(-blocks // (ENGINES * DOCUMENT_BLOCKS))
    return [[document(_GROWN + engine, number, DOCUMENT_BLOCKS) for number in range(each)] for engine in range(ENGINES)]


def _grow(service: Child[Service], engines: Child[Publisher], blocks: int) -> None:
    documents = _documents(blocks)
    starts = iter(range(0, len(documents[0]), PIECE_DOCUMENTS))

    def piece() -> bool:
        start = next(starts)
        engines.call(Publisher.grow, [own[start : start + PIECE_DOCUMENTS] for own in documents], EVENT_BLOCKS)
        return start + PIECE_DOCUMENTS < len(documents[0])

    publish_in_pieces(engines, service, piece)


def _leave(service: Child[Service]) -> None:
    service.call(Service.remove, 0)
    service.call(Service.settled_by_itself)
