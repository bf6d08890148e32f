"""Scenario `soak`: millions of blocks churned through a bounded live set, and what memory does meanwhile.

Every source holds one hot prompt and a ring of suffixes that branch off it; a fresh suffix comes, the oldest goes.
Through the core as the collector drives it, with housekeeping in slices as the node does it, in a fresh process. At
the end all sources leave, and the C library is asked for what it keeps, as the node asks it then. Another fresh process
clears, restarts and registers without end.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from indexer.clock import SystemClock
from indexer.model import RawBatch
from indexer.node import Node
from indexer.settings import Settings
from indexer.settings.sections import Limits
from loadtest.content import BLOCK
from loadtest.machine import cores, pin, rss_bytes
from loadtest.processes import Child
from loadtest.report import Result, Row, Target, begin
from loadtest.traffic import document
from loadtest.wire import payload, removals, stores
from schemas.lookup import LookupQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from indexer.ports import EventSink
    from loadtest.content import Document

HOT_BLOCKS: Final = 320
SUFFIX_BLOCKS: Final = 64
EVENT_BLOCKS: Final = 32
SAMPLES: Final = 20
WARM_SHARE: Final = 0.2
"""Of the run, after which memory must not grow any more."""
GROWTH_MAX: Final = 0.05
LEFT_MAX: Final = 0.25
SLACK_BYTES: Final = 4 * 2**20
"""Below it the allocator's own steps would be measured."""
ENDLESS_MAX_MIB: Final = 10.0
SLOWER_MAX: Final = 1.5
SMALL_BLOCKS: Final = 8
WARM_TURNS: Final = 200
UNLIMITED: Final = 1 << 30
_HOT, _SUFFIX = 4_000, 4_001


@dataclass(frozen=True, slots=True)
class Curve:
    """Resident memory in bytes: before any source, after equal shares of the churn, after all have left.

    `freed`: when all are gone and the housekeeping is done but for its last step. `left`: after it, in which the C
    library gives back what it keeps (where it can be asked); what the service has then.
    """

    start: int
    samples: list[tuple[int, int]]
    freed: int
    left: int
    live_blocks: int

    @property
    def growth(self) -> float:
        """Of what the index takes, from the end of the warm-up to the last sample, above the allocator's steps."""
        warm = self.samples[int(len(self.samples) * WARM_SHARE)][1]
        return max(0.0, (self.samples[-1][1] - warm - SLACK_BYTES) / max(1, warm - self.start))

    @property
    def kept(self) -> float:
        """The share of the index's memory that is not given back when all sources have left, likewise."""
        peak = max(size for _, size in self.samples)
        return max(0.0, (self.left - self.start - SLACK_BYTES) / max(1, peak - self.start))


class Churn:
    """A node without sockets whose sources are fed directly."""

    def __init__(self, sources: int, live_blocks: int) -> None:
        self._node = Node(Settings(), SystemClock())
        self._sources = sources
        self._ring = live_blocks // SUFFIX_BLOCKS
        self._sequences = array("q", [0] * sources)
        self._rings: list[deque[Document]] = [deque() for _ in range(sources)]
        self._hot: list[Document] = []
        self._sinks: list[EventSink] = []

    async def run(self, blocks: int) -> Curve:
        """Churn so many blocks over all sources, then let all leave."""
        await self._warm_up()
        self._open()
        start = _rss()
        samples = self._churn(blocks)
        live = self._check()
        for number in range(self._sources):
            await self._node.remove_source(f"pod-{number}", None)
        self._sinks.clear()
        self._rings.clear()
        self._node.lookup(LookupQuery(tokens=b""))  # routers go on asking: what was prepared for them is made anew
        while self._node.ingest.tidy_slice():
            pass
        assert not self._node.mirror.table.live, "blocks are left of sources that are gone"
        freed = _rss()
        self._node.return_memory()
        return Curve(start, list(zip(*samples, strict=True)), freed, rss_bytes(), live)

    async def _warm_up(self) -> None:
        """Everything once, so that imports and first uses do not count as memory of the index."""
        sink = self._node.source_for_topic("first", None, 0)
        assert sink is not None
        first = document(_HOT, self._sources, HOT_BLOCKS)
        sink.apply(RawBatch(b"", 0, payload([*stores(first, EVENT_BLOCKS), *removals(first)])))
        self._node.lookup(LookupQuery(tokens=first.prompt().tobytes()))
        await self._node.remove_source("first", None)

    def _churn(self, blocks: int) -> tuple[array[int], array[int]]:
        """Blocks so far and memory, at equal distances. In arrays: an int kept from meanwhile would pin its arena."""
        at, size = array("q", [0] * SAMPLES), array("q", [0] * SAMPLES)
        taken = 0
        for churned in self._turns():
            if churned >= blocks * (taken + 1) // SAMPLES:
                at[taken], size[taken] = churned, _rss()
                taken += 1
                if taken == SAMPLES:
                    break
        return at, size

    def _open(self) -> None:
        for number in range(self._sources):
            sink = self._node.source_for_topic(f"pod-{number}", None, 0)
            assert sink is not None
            self._sinks.append(sink)
            self._hot.append(document(_HOT, number, HOT_BLOCKS))

    def _turns(self) -> Iterator[int]:
        """Blocks stored so far, after each source had its turn."""
        stored = turn = 0
        while True:
            for number in range(self._sources):
                stored += self._turn(number, turn)
            turn += 1
            yield stored

    def _turn(self, number: int, turn: int) -> int:
        """One suffix comes, one goes once the ring is full."""
        ring, hot = self._rings[number], self._hot[number]
        coming = hot if turn == 0 else document(_SUFFIX + number, turn, SUFFIX_BLOCKS, hot)
        for event in stores(coming, EVENT_BLOCKS):
            self._apply(number, payload([event]))
        if turn:
            ring.append(coming)
        if len(ring) > self._ring:
            self._apply(number, payload(list(removals(ring.popleft()))))
        return coming.blocks

    def _apply(self, number: int, batch: bytes) -> None:
        self._sinks[number].apply(RawBatch(b"", self._sequences[number], batch))
        self._sequences[number] += 1
        self._node.ingest.tidy_slice()  # the node has more time for it: a slice every 10 ms, or 2 when there is work

    def _check(self) -> int:
        """The hot prompts and the newest suffixes are held whole, the index holds no block too many."""
        expected = sum(HOT_BLOCKS + SUFFIX_BLOCKS * len(ring) for ring in self._rings)
        pairs = sum(source.pairs for source in self._node.registry.sources.values())
        assert pairs == expected == self._node.mirror.table.live, (pairs, expected, self._node.mirror.table.live)
        for number, ring in enumerate(self._rings):
            self._sinks[number].alive(connected=True)
            whole = ring[-1].prompt().tobytes()
            answer = self._node.lookup(LookupQuery(tokens=whole, pods=(f"pod-{number}",), limit=1, group="pod"))
            entry = answer.pods[0]
            assert getattr(entry, "matched_tokens", None) == ring[-1].depth * BLOCK, entry
        return expected


class Endless:
    """A node whose one source is cleared, restarted or registered anew, over and over."""

    def __init__(self) -> None:
        self._node = Node(Settings(limits=Limits(max_clears_per_minute=UNLIMITED)), SystemClock())
        self._sink = self._register()
        self._stored = payload(list(stores(document(_HOT, 0, SMALL_BLOCKS), EVENT_BLOCKS)))
        self._cleared = payload([{"type": "AllBlocksCleared"}])

    async def engine_clears(self, turns: int) -> tuple[int, float]:
        """As an engine may in every batch. Bytes of growth, and how much longer the last fifth took than the first."""
        sequence = 0

        async def turn() -> None:
            nonlocal sequence
            for batch in (self._stored, self._cleared):
                self._sink.apply(RawBatch(b"", sequence, batch))
                sequence += 1

        return await self._repeat(turn, turns)

    async def operator_clears(self, turns: int) -> tuple[int, float]:
        """By the API."""
        sequence = (self._sink.cursor or 0) + 1

        async def turn() -> None:
            nonlocal sequence
            self._sink.apply(RawBatch(b"", sequence, self._stored))
            sequence += 1
            await self._node.clear_source("pod", None)

        return await self._repeat(turn, turns)

    async def restarts(self, turns: int) -> tuple[int, float]:
        """Another process each time."""

        async def turn() -> None:
            self._sink.restart("sequence_went_back")
            self._sink.apply(RawBatch(b"", 0, self._stored))

        return await self._repeat(turn, turns)

    async def registrations(self, turns: int) -> tuple[int, float]:
        """Gone and there again."""

        async def turn() -> None:
            self._sink.apply(RawBatch(b"", 0, self._stored))
            await self._node.remove_source("pod", None)
            self._sink = self._register()

        return await self._repeat(turn, turns)

    def _register(self) -> EventSink:
        sink = self._node.source_for_topic("pod", None, 0)
        assert sink is not None
        return sink

    async def _repeat(self, turn: Callable[[], Awaitable[None]], turns: int) -> tuple[int, float]:
        fifth = turns // 5
        for _ in range(WARM_TURNS):
            await turn()
        before = _rss()
        spent = [await self._time(turn, fifth) for _ in range(5)]
        while self._node.ingest.tidy_slice():
            pass
        return _rss() - before, spent[-1] / spent[0]

    async def _time(self, turn: Callable[[], Awaitable[None]], turns: int) -> float:
        begun = time.process_time()
        for number in range(turns):
            await turn()
            if number % 16 == 0:
                self._node.ingest.tidy_slice()
        return time.process_time() - begun


def endless(what: str, turns: int) -> tuple[int, float]:
    """One kind of turn in a fresh process: bytes of growth, and the last fifth's time as a multiple of the first's."""
    with Child(Endless, core=cores().service) as child:
        measured: tuple[int, float] = child.call(getattr(Endless, what), turns)
        return measured


def churn(*, blocks: int, sources: int, live_blocks: int) -> Curve:
    """The curve of a fresh process."""
    with Child(Churn, sources, live_blocks, core=cores().service) as child:
        return child.call(Churn.run, blocks)


def run(
    *, blocks: int = 5_000_000, sources: int = 8, live_blocks: int = 60_000, clears: int = 100_000, anew: int = 5_000
) -> Result:
    """Churn, and judge the curve; clear (`clears` times) and register `anew`, and judge the growth."""
    pin(cores().generator)
    result = begin("soak", {"sources": sources, "live blocks a source": live_blocks, "blocks churned": blocks})
    curve = churn(blocks=blocks, sources=sources, live_blocks=live_blocks)
    result.tables["Resident memory"] = _rows(curve)
    for row in result.tables["Resident memory"]:
        print(f"  {row['after']:>24}  {row['MiB']} MiB", flush=True)
    result.targets += [
        Target("growth after warm-up, share of the index", curve.growth, GROWTH_MAX, at_least=False),
        Target("not given back after all left, share of the index", curve.kept, LEFT_MAX, at_least=False),
    ]
    rows: list[Row] = []
    turns = {"engine_clears": clears, "operator_clears": anew, "restarts": anew, "registrations": anew}
    for what, count in turns.items():
        grown, slower = endless(what, count)
        rows.append({"what": what, "turns": count, "MiB": round(grown / 2**20, 1), "slower": round(slower, 2)})
        print(f"  {rows[-1]}", flush=True)
        title = what.replace("_", " ")
        result.targets += [
            Target(f"growth over {count:,} {title}, MiB", grown / 2**20, ENDLESS_MAX_MIB, at_least=False),
            Target(f"last fifth of {title} against the first", slower, SLOWER_MAX, at_least=False),
        ]
    result.tables["Without end"] = rows
    return result


def _rows(curve: Curve) -> list[Row]:
    points: list[tuple[str, int]] = [("start", curve.start)]
    points += [(f"{churned:,} blocks", size) for churned, size in curve.samples]
    points += [("all sources left", curve.freed), ("and what libc kept", curve.left)]
    return [{"after": after, "MiB": round(size / 2**20, 1)} for after, size in points]


def _rss() -> int:
    gc.collect()
    return rss_bytes()
