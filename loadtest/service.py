"""The service in a process of its own: the real node, its real sockets, and HTTP with a null route beside.

Lives in a `Child` on a uvloop. What it tells about itself it measures itself: CPU time, memory, the loop's waits.
Does I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec
import uvicorn
import zmq

from api.pending import Pending
from api.rest.app import create_app
from api.rest.limits import RestLimits
from api.server import ServerSettings, _config
from indexer.clock import SystemClock
from indexer.collect.sockets import descriptor_of, state_of
from indexer.model import Descriptor, SourceId
from indexer.node import Node
from indexer.settings import Limits, Models, Redis, Server, Settings
from loadtest.beats import Beat, Beats
from loadtest.content import BLOCK
from loadtest.machine import rss_bytes
from loadtest.null_route import FrontWithNull
from loadtest.rpc_side import RpcSide
from schemas.lookup import LookupQuery, PodEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indexer.index.source import SourceIndex
    from loadtest.content import Document

MODEL: Final = "llama"
OTHER_MODEL: Final = "other"
POLL_S: Final = 0.002
CLEARS_MAX: Final = 1_000_000
BATCHES: Final = 128
"""Under way at once: all of one caller's connections ask here, of whom four fifths are the most."""
"""A minute. The guard is against a discovery gone wrong; here sources are cleared between measurements."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Between two moments of the process: all its threads together, and the event loop's thread alone."""

    cpu_s: float
    loop_cpu_s: float
    wall_s: float


class _Moment:
    """When something began."""

    def __init__(self) -> None:
        self._at = time.process_time(), time.thread_time(), time.perf_counter()

    def since(self) -> Spent:
        """What was spent from then on."""
        now = time.process_time(), time.thread_time(), time.perf_counter()
        return Spent(*(end - begin for end, begin in zip(now, self._at, strict=True)))


def pod(engine: int) -> str:
    """The name of an engine."""
    return f"10.0.{engine // 250}.{engine % 250}:8000"


class Service:
    """Node and server. `http` False: no server, for runs that only look at events.

    With `redis` in Redis mode, in these roles. `watch`: the loop is measured from the node's start on. `sources`: as
    configured, beside those that are registered later. `rpc`: with gRPC beside; `tokenizer`: path of a file.
    """

    def __init__(
        self,
        *,
        http: bool = False,
        redis: Redis | None = None,
        roles: tuple[Literal["collect", "lookup"], ...] = ("collect", "lookup"),
        watch: bool = False,
        sources: Sequence[Descriptor] = (),
        rpc: bool = False,
        tokenizer: str | None = None,
    ) -> None:
        settings = Settings(
            models=Models(tokenizer=tokenizer),
            server=Server(roles=roles),
            redis=redis or Redis(),
            limits=Limits(max_clears_per_minute=CLEARS_MAX),
            sources=tuple(sources),
        )
        self.node = Node(settings, SystemClock())
        self._http = http
        self._rpc = RpcSide(self.node, BATCHES) if rpc else None
        self._watch = watch
        self._stop = asyncio.Event()
        self._running = contextlib.AsyncExitStack()
        self._tasks = asyncio.TaskGroup()
        self._server: uvicorn.Server | None = None
        self._port = 0
        self._beats = Beats()
        self._sources: list[SourceId] = []
        self._seen: list[tuple[int, int]] = []
        self._bare_seen: list[int] = []

    async def __aenter__(self) -> Self:
        await self._running.enter_async_context(self._tasks)
        self._tasks.create_task(self.node.run(self._stop), name="node")
        if self._watch:
            await asyncio.sleep(0)  # modules are collected and frozen before anything else runs
            self._beats.start()
        if self._http:
            await self._serve()
        if self._rpc is not None:
            started = asyncio.Event()
            self._tasks.create_task(self._rpc.run(self._stop, started), name="rpc")
            await started.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._server is not None:
            self._server.should_exit = True
        await self._running.aclose()

    async def _serve(self) -> None:
        listener = self._running.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        settings = ServerSettings(port=self._port, drain_s=0.1, limits=RestLimits(batches_waiting=BATCHES))
        front = FrontWithNull(create_app(self.node, settings.limits), settings.limits)
        self._server = uvicorn.Server(_config(front, settings, Pending(settings.limits.pending_bytes)))
        self._tasks.create_task(self._server.serve([listener]), name="rest")
        server = self._server
        await _until(lambda: server.started)

    # -- sources -------------------------------------------------------------------------------------------------------

    def port(self) -> int:
        """Where HTTP is served on loopback."""
        return self._port

    def rpc_ports(self) -> tuple[int, int]:
        """Where gRPC is served on loopback, and where its null methods are."""
        rpc = self._rpc
        return (0, 0) if rpc is None else (rpc.port, rpc.null_port)

    def set_null_size(self, size: int) -> None:
        """How large the answers of the null methods are."""
        if self._rpc is not None:
            self._rpc.size = size

    async def connect(self, endpoints: Sequence[str], models: Sequence[str] = ()) -> None:
        """One source an endpoint, all of one model where nothing else is said."""
        for number, endpoint in enumerate(endpoints):
            model = models[number] if models else MODEL
            descriptor = Descriptor(pod=pod(number), endpoint=endpoint, model=model, origin="api")
            await self.node.add_source(descriptor)
            self._sources.append(descriptor.id)

    async def clear(self) -> None:
        """Forget what every source holds, as an operator's clear does."""
        for name, rank in self._sources:
            await self.node.clear_source(name, rank)

    async def remove(self, engine: int) -> None:
        """One source leaves."""
        await self.node.remove_source(pod(engine), 0)

    async def applied(self, last: Sequence[int]) -> Spent:
        """Return when the first sources have each applied this sequence; what was spent meanwhile."""
        begin = _Moment()
        waiting = list(zip(self._sources, last, strict=False))
        await _until(lambda: all(_applied(self._index(source)) >= end for source, end in waiting))
        return begin.since()

    async def settled(self) -> None:
        """Return when housekeeping has nothing left to do."""
        await _until(lambda: not self.node.ingest.tidy_slice(), 0)

    async def settled_by_itself(self) -> None:
        """The same, with the node's own housekeeping doing it."""
        mirror = self.node.mirror  # reverse maps are freed before the mirror is scrubbed
        await _until(lambda: not (mirror.retired_slots() or mirror.table.moving() or mirror.table.wants_to_move()))

    async def rest(self, seconds: float) -> Spent:
        """Do nothing but what the service does by itself."""
        begin = _Moment()
        await asyncio.sleep(seconds)
        return begin.since()

    def _index(self, source: SourceId) -> SourceIndex:
        return self.node.registry.sources[source]

    # -- what it knows -------------------------------------------------------------------------------------------------

    def matched(self, documents: Sequence[Document]) -> list[dict[int, int]]:
        """For each document, as a lookup says: blocks held from the start, by engine."""
        numbers = {pod(number): number for number in range(len(self._sources))}
        out = []
        for document in documents:
            entries = self._ask(document.prompt().tobytes())
            held = {numbers[entry.pod]: entry.matched_tokens // BLOCK for entry in entries if entry.matched_tokens}
            out.append(held)
        return out

    def _ask(self, tokens: bytes) -> list[PodEntry]:
        return self._entries(LookupQuery(tokens=tokens, model=MODEL))

    def _entries(self, query: LookupQuery) -> list[PodEntry]:
        answer = self.node.lookup(query)
        return [
            msgspec.json.decode(entry, type=PodEntry) if isinstance(entry, msgspec.Raw) else entry
            for entry in answer.pods
        ]

    def counts(self) -> dict[str, int]:
        """Unique blocks in the mirror, pairs in the reverse maps, and what was lost on the way (must be 0)."""
        sources = [self._index(source) for source in self._sources if source in self.node.registry.sources]
        lost = sum(source.counters["gaps"] + source.counters["wire.gaps"] for source in sources)
        return {
            "unique": self.node.mirror.table.live,
            "pairs": sum(source.pairs for source in sources),
            "gaps": lost,
            "skipped": sum(n for source in sources for name, n in source.counters.items() if name.startswith("skip")),
        }

    def cpu_s(self) -> float:
        """CPU seconds of all threads so far."""
        return time.process_time()

    def rss_bytes(self) -> int:
        """Resident memory after a collection."""
        gc.collect()
        return rss_bytes()

    def decode_alone(self, batches: Sequence[bytes]) -> float:
        """CPU seconds that the plain decoder takes for these batches, on this core, in this thread."""
        decode = msgspec.msgpack.Decoder().decode
        started = time.thread_time()
        for batch in batches:
            decode(batch)
        return time.thread_time() - started

    # -- the loop's waits ----------------------------------------------------------------------------------------------

    def watch_loop(self) -> None:
        """Begin to measure."""
        self._beats.start()

    def loop_watched(self) -> Beat:
        """End it."""
        return self._beats.stop()

    # -- from publish to visible ---------------------------------------------------------------------------------------

    def watch_visible(self, documents: Sequence[Document], bare_endpoint: str) -> None:
        """From now on note when a lookup sees each document on engine 0, and when bare messages arrive.

        Documents must be announced one a batch, in this order. A lookup is made whenever a batch was applied.
        """
        expected = iter([document.prompt().tobytes() for document in documents])
        source = self._index(self._sources[0])
        reported = self.node.ingest.touched
        applied = source.facts.sequence

        def touched(which: SourceIndex) -> None:
            nonlocal applied
            reported(which)
            if which is source and source.facts.sequence != applied:
                applied = source.facts.sequence
                tokens = next(expected)
                seen = any(entry.matched_tokens == len(tokens) // 4 for entry in self._ask(tokens))
                self._seen.append((time.monotonic_ns(), int(seen)))

        self.node.ingest.touched = touched
        self._watch_bare(bare_endpoint)

    def visible_seen(self) -> tuple[list[tuple[int, int]], list[int]]:
        """(moment, whether the lookup saw it) of each document; moments of the bare messages. Clears both."""
        seen, bare = self._seen, self._bare_seen
        self._seen, self._bare_seen = [], []
        return seen, bare

    def _watch_bare(self, endpoint: str) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        subscriber = context.socket(zmq.SUB)
        subscriber.set(zmq.LINGER, 0)
        subscriber.set(zmq.SUBSCRIBE, b"")
        subscriber.connect(endpoint)

        def readable() -> None:
            while state_of(subscriber) & zmq.POLLIN:
                subscriber.recv_multipart()
                self._bare_seen.append(time.monotonic_ns())

        loop = asyncio.get_running_loop()
        descriptor = descriptor_of(subscriber)
        loop.add_reader(descriptor, readable)
        self._running.callback(subscriber.close)
        self._running.callback(loop.remove_reader, descriptor)


async def _until(condition: Callable[[], bool], pause_s: float = POLL_S) -> None:
    """Return once it holds."""
    while not condition():  # noqa: ASYNC110  the node's parts announce nothing to tests
        await asyncio.sleep(pause_s)


def _applied(source: SourceIndex) -> int:
    """The last sequence applied, -1 before the first."""
    return -1 if source.facts.sequence is None else source.facts.sequence
