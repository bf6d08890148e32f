"""A node without a store that is told by discoverers; what engines say is handed in."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.clock import SystemClock
from indexer.model import RawBatch, SourceId
from indexer.node import Node
from indexer.settings import load
from schemas.lookup import LookupQuery, PodEntry
from tests.support.core_events import payload, prompt, stored, u32
from tests.support.replicas import HandedIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from indexer.ingest import SourceSink
    from schemas.history import HistoryItem
    from tests.support.telling import Teller

DEADLINE_S: Final = 20.0


class Alone:
    """A node in memory mode and its discoverers; what engines say is handed in."""

    def __init__(self, *tellers: Teller, **flags: object) -> None:
        settings = load(None, flags={key.replace("__", "."): value for key, value in flags.items()}, environment={})
        self.node = Node(settings, SystemClock(), tellers)
        self.node.roster.fleet = HandedIn()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110  a condition of the test
                await asyncio.sleep(0.005)

    def sink(self, source: SourceId) -> SourceSink:
        sink = self.node.roster.sink(source)
        assert sink is not None
        return sink

    def knows(self, source: SourceId) -> bool:
        return source in self.node.registry.sources

    def is_ready(self, source: SourceId) -> bool:
        return self.node.registry.sources[source].facts.ready

    def hold(self, source: SourceId) -> None:
        """It announces two blocks, from the beginning."""
        sink = self.sink(source)
        sink.alive(connected=True)
        sink.apply(RawBatch(b"", 0, payload(stored([1, 2], prompt(2)))))

    def ask(self, **query: Any) -> tuple[str, dict[str, PodEntry]]:  # noqa: ANN401  of a question
        """State of the answer, and its entries by pod."""
        answer = self.node.lookup(LookupQuery(request_id="1", tokens=u32(prompt(2)), **query))
        pods = [msgspec.json.decode(p, type=PodEntry) if isinstance(p, msgspec.Raw) else p for p in answer.pods]
        return answer.state, {each.pod: each for each in pods}

    async def history(self, pod: str) -> list[HistoryItem]:
        return (await self.node.source_history(pod, None, limit=100, after=None)).items


@asynccontextmanager
async def alone(*tellers: Teller, **flags: object) -> AsyncIterator[Alone]:
    """It runs."""
    of, stop = Alone(*tellers, **flags), asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(of.node.run(stop))
        try:
            yield of
        finally:
            stop.set()
