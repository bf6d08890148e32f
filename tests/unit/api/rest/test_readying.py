"""What questions wait for, and how many of one caller may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import httpx
import pytest

from api.problems import RequestRefused
from api.rest.app import create_app
from api.rest.batch import TEXTS_AT_ONCE
from api.rest.limits import RestLimits
from api.rest.readying import Readying
from schemas.lookup import LookupQuery, TextPrompt
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupBatchRequest, LookupRequest
from tests.support.collecting import run_on, until
from tests.support.fake_node import FakeNode
from tests.support.rpc import rpc_client


class SlowNode(FakeNode):
    """Tokenizes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.may_go_on = asyncio.Event()

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        self.asked += 1
        await self.may_go_on.wait()
        return await super().tokenized(query)


def test_one_caller_does_not_take_all_places_for_texts() -> None:
    """Another is let in; and the first one again once it has left some."""

    async def body() -> None:
        node = SlowNode()
        readying = Readying(node, RestLimits(texts_waiting=10), asyncio.Event())
        query = LookupQuery(text=TextPrompt(prompt="t"))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(readying.ready(query, "greedy"))
            await until(lambda: node.asked == 8, "its texts")
            with pytest.raises(RequestRefused) as caught:
                await readying.ready(query, "greedy")
            assert ("texts.too_many", 429) == (caught.value.code, caught.value.status)
            other = tasks.create_task(readying.ready(query, "other"))
            await until(lambda: node.asked == 9, "the other's")
            node.may_go_on.set()
        assert other.result().tokens
        assert (await readying.ready(query, "greedy")).tokens

    run_on("asyncio", body())


_DOORS = {
    "/v1/lookup": {"prompt": "t"},
    "/v1/lookup/batch": {"items": [{"prompt": "t"}]},
    "/v1/hash": {"prompt": "t", "block_size": 1},
    "/v1/explain": {"prompt": "t", "pod": "a"},
    "/v1/recommend": {"prompt": "t", "strategy": "load"},
    "/v1/pick": {"prompt": "t"},
    "/lookup": {"prompt": "t"},
}


@pytest.mark.parametrize("path", _DOORS)
def test_every_door_counts_its_texts(path: str) -> None:
    """Where no place is left, none gets by; where one is, all do."""

    async def body() -> None:
        node = SlowNode()
        readying = Readying(node, RestLimits(texts_waiting=1), asyncio.Event())
        transport = httpx.ASGITransport(create_app(node, readying=readying))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(readying.ready(LookupQuery(text=TextPrompt(prompt="t")), "another"))
                await until(lambda: node.asked == 1, "its text")
                refused = await client.post(path, json=_DOORS[path])
                node.may_go_on.set()
            answered = await client.post(path, json=_DOORS[path])
        assert 2 == node.asked
        if path.endswith("batch"):
            assert [429] == [item["status"] for item in refused.json()["items"]]
            assert ["exact"] == [item["state"] for item in answered.json()["items"]]
        else:
            assert 429 == refused.status_code
            assert answered.is_success

    run_on("asyncio", body())


class TimedNode(FakeNode):
    """Each text takes its time; kept is how much of the question's own was left for it."""

    def __init__(self) -> None:
        super().__init__()
        self.left_ms: list[int] = []

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        self.left_ms.append(query.timeout_ms or 0)
        await asyncio.sleep(0.1)
        return await super().tokenized(query)


async def _rest_batch(node: TimedNode, count: int) -> None:
    transport = httpx.ASGITransport(create_app(node))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        items = [{"prompt": "t", "timeout_ms": 20_000}] * count
        assert (await client.post("/v1/lookup/batch", json={"items": items})).is_success


async def _rpc_batch(node: TimedNode, count: int) -> None:
    async with rpc_client(node) as stub:
        await stub.LookupBatch(LookupBatchRequest(items=[LookupRequest(prompt="t", timeout_ms=20_000)] * count))


@pytest.mark.parametrize("batch", [_rest_batch, _rpc_batch])
def test_a_text_that_waits_for_others_of_its_batch_does_so_in_its_own_time(
    batch: Callable[[TimedNode, int], Coroutine[None, None, None]],
) -> None:
    """Else a batch of texts that take too long would be answered after the caller's deadline, all of it."""
    node = TimedNode()
    run_on("asyncio", batch(node, TEXTS_AT_ONCE + 1))
    assert node.left_ms[-1] <= node.left_ms[0] - 90
