"""Scenario `bench`: what each stage costs, alone, in one thread. Best of several runs, CPU time of the thread.

For finding out where time goes; the promises are about whole ways (`ingest`, `lookups`). Shares are of the plain
MessagePack decoder on the same batches, and of the whole answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from api.rest.lookup_request import LookupRequests
from indexer.clock import SystemClock
from indexer.decode.vllm import decode
from indexer.hashing.chain import chained, local_hashes, root_seed
from indexer.index.walk import walk
from indexer.model import BlocksStored, RawBatch
from indexer.node import Node
from indexer.settings import Settings
from loadtest.content import BLOCK
from loadtest.machine import cores, pin
from loadtest.processes import Child
from loadtest.questions import FORMS
from loadtest.report import Result, Row, begin
from loadtest.service import MODEL, pod
from loadtest.shapes import Shape, ring_documents, stream
from loadtest.traffic import Traffic
from schemas.lookup import LookupQuery
from schemas.rest import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.rest.media import BodyForm
    from indexer.ports import EventSink
    from loadtest.traffic import Prompt

SOURCES: Final = 8
PAIRS: Final = 100_000
BEST_OF: Final = 7
INGEST_BLOCKS: Final = 16_384
SHAPES: Final = (Shape(8), Shape(8, removals=True), Shape(64), Shape(512))


class Stages:
    """A node without sockets or server, in a process of its own."""

    def __init__(self) -> None:
        self._node = Node(Settings(), SystemClock())
        self._traffic = Traffic(SOURCES, PAIRS)
        self._sinks: list[EventSink] = []
        for engine in self._traffic.engines:
            sink = self._open(pod(engine.number))
            for sequence, batch in enumerate(engine.fill()):
                sink.apply(RawBatch(b"", sequence, batch))
            self._sinks.append(sink)

    async def ingest(self, shape: Shape) -> Row:
        """Microseconds a block of one shape: the plain decoder, ours, hashing, and all of `apply`."""
        coming = ring_documents(shape, 0, 0, INGEST_BLOCKS)
        going = coming if shape.removals else ()
        batches = list(stream(shape, coming, going))
        blocks = sum(each.blocks for each in coming)
        plain = msgspec.msgpack.Decoder().decode
        decoded = [batch.events for batch in map(decode, batches) if batch is not None]
        events = [event for batch in decoded for event in batch if isinstance(event, BlocksStored)]
        seed = root_seed(BLOCK)
        costs = {
            "plain decoder": _best(lambda: [plain(batch) is None for batch in batches]),
            "decode": _best(lambda: [decode(batch) is None for batch in batches]),
            "hash": _best(lambda: [not chained(local_hashes(event.tokens, BLOCK), seed) for event in events]),
            "apply": min([await self._applied(batches) for _ in range(BEST_OF)]),
        }
        row: Row = {"batch": shape.name}
        row |= {f"{name}, us/block": round(cost / blocks * 1e6, 3) for name, cost in costs.items()}
        row["plain / apply"] = round(costs["plain decoder"] / costs["apply"], 3)
        return row

    def lookups(self, length: int) -> list[Row]:
        """Microseconds a lookup of that length: parse, hash, walk, the whole answer, encode."""
        prompts = self._traffic.prompts(length, 64)
        queries = [LookupQuery(tokens=prompt.tokens.tobytes(), model=MODEL) for prompt in prompts]
        node, mirror = self._node, self._node.mirror
        for sink in self._sinks:
            sink.alive(connected=True)
        seed = root_seed(BLOCK)
        hashes = [
            np.array(chained(local_hashes(prompt.tokens.tobytes(), BLOCK), seed), np.uint64) for prompt in prompts
        ]
        encode = msgspec.json.Encoder().encode
        answers = [node.lookup(query) for query in queries]
        costs = {f"parse {form.name}": self._parsed(form.body, form.content_type, prompts) for form in FORMS}
        costs |= {
            "hash, nothing remembered": _best(
                lambda: [not chained(local_hashes(query.tokens or b"", BLOCK), seed) for query in queries]
            ),
            "walk": _best(lambda: [walk(mirror, each, mirror.live_slots) is None for each in hashes]),
            "answer, all remembered": _best(lambda: [node.lookup(query) is None for query in queries]),
            "encode": _best(lambda: [not encode(answer) for answer in answers]),
        }
        return [{"tokens": length, "stage": name, "us": round(cost / 64 * 1e6, 2)} for name, cost in costs.items()]

    def _parsed(self, body: Callable[[Prompt], bytes], content_type: str, prompts: Sequence[Prompt]) -> float:
        requests = LookupRequests(U32_MAX)
        bodies = [body(prompt) for prompt in prompts]
        form: BodyForm = "ids" if "octet" in content_type else "json"
        query_string = f"model={MODEL}".encode() if form == "ids" else b""
        return _best(lambda: [requests.parse(form, each, query_string, {}) is None for each in bodies])

    async def _applied(self, batches: Sequence[bytes]) -> float:
        """Into a source that holds nothing yet."""
        sink = self._open("fresh")
        raw = [RawBatch(b"", sequence, batch) for sequence, batch in enumerate(batches)]
        started = time.thread_time()
        for batch in raw:
            sink.apply(batch)
        spent = time.thread_time() - started
        await self._node.remove_source("fresh", None)
        while self._node.ingest.tidy_slice():
            pass
        return spent

    def _open(self, name: str) -> EventSink:
        sink = self._node.source_for_topic(name, MODEL, 0)
        assert sink is not None
        return sink


def run(*, lengths: Sequence[int] = (512, 8_192, 131_072)) -> Result:
    """Measure every stage."""
    places = cores()
    pin(places.generator)
    result = begin("bench", {"sources": SOURCES, "pairs": PAIRS, "best of": BEST_OF})
    with Child(Stages, core=places.service) as stages:
        result.tables["Events"] = [stages.call(Stages.ingest, shape) for shape in SHAPES]
        result.tables["Lookups"] = [row for length in lengths for row in stages.call(Stages.lookups, length)]
    for rows in result.tables.values():
        for row in rows:
            print(f"  {row}", flush=True)
    return result


def _best(work: Callable[[], object]) -> float:
    """Seconds of CPU of the quickest run."""
    costs = []
    for _ in range(BEST_OF):
        started = time.thread_time()
        work()
        costs.append(time.thread_time() - started)
    return min(costs)
