"""What happens to sources moves the metrics that are about it: each of those that need no store."""

from __future__ import annotations

import asyncio

import pytest

from indexer.clock import SystemClock
from indexer.metric_texts import ADVICE
from indexer.model import Descriptor, RawBatch, SourceId
from indexer.node import Node
from indexer.settings.forms import MIB
from indexer.settings.sections import Feedback, Settings
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from schemas.recommend import RecommendQuery
from schemas.reports import ReplayReport
from tests.support.collecting import until
from tests.support.core_events import payload, prompt, removed, stored, u32
from tests.support.moved import IN_MEMORY, check_moved, samples_of


@pytest.fixture(scope="module")
def exposition() -> bytes:
    """Of a node to whose one source all of it happened."""
    return asyncio.run(_story())


async def _story() -> bytes:
    node = Node(Settings(feedback=Feedback(answers_bytes=MIB)), SystemClock())
    node.roster.add(Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", blocks_total=10))
    sink = node.roster.sink(SourceId("a", 0))
    assert sink is not None
    sink.alive(connected=True)
    sink.apply(RawBatch(b"", 0, payload(stored([1], prompt(1)))))
    sink.restart("sequence_went_back")
    sink.apply(RawBatch(b"", 0, payload(*_blocks(0))))
    sink.count("gaps")
    for times, result in enumerate(ReplayReport.__struct_fields__, 1):
        sink.count(f"replays_{result}", times)  # type: ignore[arg-type]
    sink.gap(1, 1)
    for number in range(2, 6):  # what was evicted unheard is given up little by little
        evicted = [removed(engine_hash) for engine_hash in range(100 * number - 100, 100 * number - 90)]
        sink.apply(RawBatch(b"", number, payload(*(evicted if number > 2 else ()), *_blocks(number))))
    sink.apply(RawBatch(b"", 6, payload(stored([9_999], prompt(1), parent=77_777), {"type": "unheard of"})))
    node.limit_reached("limits.tokens")
    node.recommend(RecommendQuery(query=LookupQuery(tokens=u32(prompt(1)))))
    node.count_reload("tls", usable=False)
    for number in range(2_000):  # more than are remembered
        node.lookup(LookupQuery(request_id=str(number), tokens=u32(prompt(1))))
    held, unknown = u32(prompt(1, 500_000)), u32(prompt(2, 9_000_000))
    for request_id, tokens, cached in (("false", held, 0), ("lost", unknown, 4)):
        node.lookup(LookupQuery(request_id=request_id, tokens=tokens + u32([1])))
        query = LookupQuery(request_id=request_id)
        node.take_feedback(FeedbackReport(pod="a", request_id=request_id, cached_tokens=cached, query=query))
    for start in (600_000, 700_000):
        query = LookupQuery(tokens=u32(prompt(1, start)))
        await node.report_routed(RoutedReport(pod="a", dp_rank=None, request_id=None, of=None, query=query))
    sink.apply(RawBatch(b"", 7, payload(stored([8_888], prompt(1, 600_000)))))
    await _housekeeping(node)
    return await node.metrics_text()


def _blocks(number: int) -> list[object]:
    return [stored([100 * number + i], prompt(1, 1_000 * (100 * number + i))) for i in range(10)]


async def _housekeeping(node: Node) -> None:
    """Until it has looked at the loop; the source stays what it is."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        await until(lambda: node.telemetry.loop_lag_s > 0, "a look at the loop")
        stop.set()


@pytest.mark.parametrize("metric", IN_MEMORY)
def test_it_moves(exposition: bytes, metric: str) -> None:
    """With the labels that are written down."""
    check_moved([exposition], [metric])


def test_replays_have_the_results_of_the_report(exposition: bytes) -> None:
    """All that are written down, each under its own name."""
    counted = {labels["result"]: value for labels, value in samples_of(exposition)["kvindexer_replays_total"]}

    assert {result: times for times, result in enumerate(ReplayReport.__struct_fields__, 1)} == counted
    assert list(counted) == ADVICE["kvindexer_replays_total"].labels["result"].split(", ")
