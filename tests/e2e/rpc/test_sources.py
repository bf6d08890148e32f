"""`ListSources` and `WatchSources` over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest

from api.rpc.limits import RpcLimits
from api.rpc.watching import LOOK_S, STEPS_KEPT
from indexer.model import Descriptor
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.fake_node import FakeNode
from tests.support.rpc import DEADLINE_S, refused, rpc_client


def _source(pod: str, rank: int = 0, model: str | None = "m", tenant: str = "default") -> Descriptor:
    return Descriptor(pod=pod, dp_rank=rank, endpoint="tcp://10.0.0.1:5557", model=model, origin="api", tenant=tenant)


async def _node(*descriptors: Descriptor) -> FakeNode:
    node = FakeNode()
    for descriptor in descriptors:
        await node.add_source(descriptor)
    return node


async def test_the_list_tells_all_that_rest_tells() -> None:
    """Field for field, and what is null there is absent here."""
    node = await _node(_source("a"), _source("b", 1, model=None))
    views = await node.source_views()
    async with rpc_client(node) as stub:
        answer = await stub.ListSources(pb.ListSourcesRequest())

    assert not answer.HasField("next")
    for view, told in zip(views, answer.sources, strict=True):
        for name, value in msgspec.structs.asdict(view).items():
            if value is None:
                assert not told.HasField(name)
            elif isinstance(value, dict):
                assert value == dict(getattr(told, name))
            elif isinstance(value, list):
                assert value == list(getattr(told, name))
            else:
                assert value == getattr(told, name)


async def test_a_long_list_comes_by_pages() -> None:
    """Filtered, and each page tells where the next begins."""
    node = await _node(*[_source("a", rank) for rank in range(3)], _source("b"), _source("c", model="other"))
    seen, after = [], None
    async with rpc_client(node) as stub:
        while True:
            page = await stub.ListSources(pb.ListSourcesRequest(limit=2, after=after, model="m"))
            seen += [(each.pod, each.dp_rank) for each in page.sources]
            if not page.HasField("next"):
                break
            after = page.next
        default = await stub.ListSources(pb.ListSourcesRequest(state="live"))

    assert [("a", 0), ("a", 1), ("a", 2), ("b", 0)] == seen
    assert 0 == len(default.sources)


async def test_the_longest_page_is_bounded() -> None:
    """Also where no limit is told."""
    node = await _node(*[_source("a", rank) for rank in range(5)])
    async with rpc_client(node, RpcLimits(listed=2)) as stub:
        for limit in (None, 0, 100):
            page = await stub.ListSources(pb.ListSourcesRequest(limit=limit))
            assert (2, "a#1") == (len(page.sources), page.next)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (pb.ListSourcesRequest(state="x"), "state.not_allowed"),
        (pb.ListSourcesRequest(limit=2**32 - 1), "limit.not_allowed"),
        (pb.ListSourcesRequest(after=""), "after.not_allowed"),
    ],
)
async def test_bad_filters_are_told(asked: pb.ListSourcesRequest, code: str) -> None:
    """By the rules of the query string."""
    async with rpc_client(FakeNode()) as stub:
        status, told, _ = await refused(stub.ListSources(asked))

    assert (grpc.StatusCode.INVALID_ARGUMENT, code) == (status, told)


async def _told(call: Any, count: int) -> list[tuple[str, str, bool]]:  # noqa: ANN401 - calls are not typed
    """The next events: what, of which pod, whether cordoned."""
    async with asyncio.timeout(DEADLINE_S):
        events = [await call.read() for _ in range(count)]
    return [(each.event, each.source.pod, each.source.cordoned) for each in events]


async def test_a_watcher_sees_those_there_then_each_change() -> None:
    """What comes, changes and goes."""
    node = await _node(_source("b"), _source("a"))
    async with rpc_client(node) as stub:
        call = stub.WatchSources(pb.WatchSourcesRequest())
        assert [("present", "a", False), ("present", "b", False), ("complete", "", False)] == await _told(call, 3)
        await node.add_source(_source("c"))
        assert [("added", "c", False)] == await _told(call, 1)
        await node.cordon_source("a", None, cordoned=True)
        assert [("changed", "a", True)] == await _told(call, 1)
        await node.remove_source("b", None)
        assert [("removed", "b", False)] == await _told(call, 1)


async def test_a_fault_in_a_look_ends_nothing() -> None:
    """Watchers learn of the change with a later look, and others are answered."""
    node = await _node(_source("a"))
    async with rpc_client(node) as stub:
        call = stub.WatchSources(pb.WatchSourcesRequest())
        assert [("present", "a", False), ("complete", "", False)] == await _told(call, 2)
        await node.add_source(_source("b"))
        node.fault = ZeroDivisionError("secret")
        await asyncio.sleep(2 * LOOK_S)
        node.fault = None
        assert [("added", "b", False)] == await _told(call, 1)
        assert (await stub.Lookup(pb.LookupRequest(token_ids=[1]))).pods


async def test_what_is_quiet_beats() -> None:
    """A watcher knows that it is still told."""
    async with rpc_client(FakeNode()) as stub:
        call = stub.WatchSources(pb.WatchSourcesRequest(heartbeat_ms=1_000))
        assert [("complete", "", False), ("heartbeat", "", False)] == await _told(call, 2)


async def test_a_watcher_may_ask_for_one_model() -> None:
    """A source that is of another model by now has gone for it."""
    node = await _node(_source("a"), _source("b", model="other"))
    async with rpc_client(node) as stub:
        call = stub.WatchSources(pb.WatchSourcesRequest(model="m"))
        assert [("present", "a", False), ("complete", "", False)] == await _told(call, 2)
        node.sources[_source("b").id] = _source("b")
        assert [("added", "b", False)] == await _told(call, 1)
        node.sources[_source("a").id] = _source("a", model="other")
        assert [("removed", "a", False)] == await _told(call, 1)


async def test_who_reads_late_sees_how_things_are() -> None:
    """However many steps were between: what is told is bounded by the sources, not by their changes."""
    node = await _node(_source("a"))
    async with rpc_client(node) as late, rpc_client(node):
        call = late.WatchSources(pb.WatchSourcesRequest())
        await _told(call, 2)
        for step in range(STEPS_KEPT):
            await node.cordon_source("a", None, cordoned=step % 2 == 0)
        await node.add_source(_source("z"))
        events = await _told(call, 1)

    assert events[0][:2] in {("added", "z"), ("changed", "a")}


@pytest.mark.parametrize("heartbeat_ms", [0, 999, 3_600_001])
async def test_a_heartbeat_has_bounds(heartbeat_ms: int) -> None:
    """Else a caller could ask for a flood."""
    async with rpc_client(FakeNode()) as stub:
        call = stub.WatchSources(pb.WatchSourcesRequest(heartbeat_ms=heartbeat_ms))
        assert (grpc.StatusCode.INVALID_ARGUMENT, "heartbeat_ms.not_allowed") == (await refused(call.read()))[:2]


async def test_watchers_are_bounded_and_their_places_come_back() -> None:
    """The next one is told to come later."""
    async with rpc_client(FakeNode(), RpcLimits(watchers=1)) as stub:
        first = stub.WatchSources(pb.WatchSourcesRequest())
        await _told(first, 1)
        second = stub.WatchSources(pb.WatchSourcesRequest())
        assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "watchers.too_many") == (await refused(second.read()))[:2]
        first.cancel()
        async with asyncio.timeout(DEADLINE_S):
            while True:  # until the server has noticed
                try:
                    assert "complete" == (await stub.WatchSources(pb.WatchSourcesRequest()).read()).event
                    break
                except grpc.aio.AioRpcError:
                    continue
