"""A node that reads its engine's metrics and hears of requests: what it knows of loads, and where it tells."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from indexer.clock import SystemClock
from indexer.errors import BadRequestError
from indexer.model import Descriptor, RawBatch, SourceId
from indexer.node import Node
from indexer.settings.sections import Loads, Settings
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from schemas.recommend import RecommendQuery
from schemas.rest import SourceLoad
from tests.support.busy_engine import busy_engine, load_text, whole
from tests.support.collecting import until
from tests.support.core_events import payload, prompt, stored, u32
from tests.support.moved import OF_ENGINES, check_moved

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

A = SourceId("a", 0)


def node_of(loads: Loads, address: str | None = None) -> Node:
    """With one source."""
    node = Node(Settings(loads=loads), SystemClock())
    node.roster.add(Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", address=address))
    return node


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """Until the block ends."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        await until(lambda: bool(node.fleet.sources()), "its sockets, which it closes")
        yield
        stop.set()


async def route(node: Node, request_id: str | None, of: str | None = None) -> None:
    """A request goes to the only pod."""
    query = LookupQuery() if of else LookupQuery(tokens=u32(prompt(1)))
    await node.report_routed(RoutedReport(pod="a", dp_rank=None, request_id=request_id, of=of, query=query))


def is_over(node: Node, request_id: str, *, ok: bool = True, prompt_tokens: int = 4, cached_tokens: int = 0) -> None:
    """So its caller reports."""
    query = LookupQuery(request_id=request_id)
    node.take_feedback(
        FeedbackReport(
            pod="a",
            request_id=request_id,
            ok=ok,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            query=query,
        )
    )


async def shown(node: Node) -> SourceLoad | None:
    """In the list of sources."""
    (view,) = await node.source_views()
    return view.load


def test_loads_are_told_where_sources_are() -> None:
    """In the list, on the metrics, and to whoever recommends: what the engine says and what was sent since."""

    async def story() -> bytes:
        async with busy_engine() as engine:
            engine.answer = whole(load_text(3, 2, 0.25))
            node = node_of(Loads(interval_s=60.0), engine.address)
            async with running(node):
                await until(lambda: A in node.loads.readings, "the load")
                await route(node, "r")
                load = await shown(node)
                assert load is not None
                assert ("metrics", 3, 2, 0.25, 1) == (
                    load.source,
                    load.running,
                    load.waiting,
                    load.kv_usage,
                    load.unseen,
                )
                assert {A: 6.0} == node.loads.view([A], node.clock.now()).requests
                return await node.metrics_text()

    exposition = asyncio.run(story())
    check_moved([exposition], OF_ENGINES)
    assert b'kvindexer_engine_load{kind="running",source="a"} 3.0' in exposition
    assert b'kvindexer_engine_load{kind="unseen",source="a"} 1.0' in exposition


def test_without_metrics_what_was_routed_is_known() -> None:
    """Once each, however often it is told and by whichever of its names, until feedback says that it is over."""

    async def story() -> None:
        node = node_of(Loads(interval_s=None), "127.0.0.1:1")
        async with running(node):
            assert await shown(node) is None
            node.lookup(LookupQuery(request_id="asked", tokens=u32(prompt(1))))
            for request_id, of in (("r", None), ("r", None), (None, "asked"), ("tried", "asked"), ("s", None)):
                await route(node, request_id, of)
            load = await shown(node)
            assert load is not None
            assert ("receipts", None, None, 3) == (load.source, load.running, load.age_ms, load.unseen)
            is_over(node, "asked")
            is_over(node, "s", ok=False)
            is_over(node, "unheard of")
            assert {A: 1.0} == node.loads.view([A], node.clock.now()).requests
            is_over(node, "r")
            assert await shown(node) is None
            assert not node.telemetry.scrapes

    asyncio.run(story())


def test_a_report_that_is_refused_ends_nothing() -> None:
    """It may be about anything."""

    async def story() -> None:
        node = node_of(Loads(interval_s=None))
        async with running(node):
            node.lookup(LookupQuery(request_id="r", tokens=u32(prompt(1))))
            await route(node, None, "r")
            with pytest.raises(BadRequestError):
                is_over(node, "r", cached_tokens=5)
            assert {A: 1.0} == node.loads.view([A], node.clock.now()).requests

    asyncio.run(story())


def test_who_is_recommended_follows_what_engines_say() -> None:
    """The idle one first, until so much was sent there that it is the busier one."""

    async def story() -> None:
        async with busy_engine() as busy, busy_engine() as idle:
            busy.answer, idle.answer = whole(load_text(6, 2)), whole(load_text(0))
            node = node_of(Loads(interval_s=60.0), busy.address)
            node.roster.add(Descriptor(pod="b", endpoint="tcp://127.0.0.1:2", address=idle.address))
            async with running(node):
                for pod in "ab":
                    sink = node.roster.sink(SourceId(pod, 0))
                    assert sink is not None
                    sink.alive(connected=True)
                    sink.apply(RawBatch(b"", 0, payload(stored([1], prompt(1, 500)))))
                await until(lambda: len(node.loads.readings) == 2, "both loads")
                assert ("b", "metrics") == recommended(node)
                for number in range(9):
                    node.note_sent("b", 0, str(number), None)
                assert ("a", "metrics") == recommended(node)

    asyncio.run(story())


def recommended(node: Node) -> tuple[str, str]:
    """Whom it names first for a prompt that nobody holds, and where loads come from."""
    answer = node.recommend(RecommendQuery(query=LookupQuery(tokens=u32(prompt(1, 900)))))
    return answer.picks[0].pod, answer.load.source
