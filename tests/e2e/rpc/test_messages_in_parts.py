"""Messages that do not come at once: what the server holds of them is bounded over all calls."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha import reflection_pb2

from api.rest.limits import RestLimits
from api.rest.readying import Readying
from api.rpc import arrivals
from api.rpc.draining import SEND_S
from api.rpc.limits import RpcLimits
from api.rpc.server import POD_SCORES_SERVICE, SERVICE, UNREAD_BYTES
from api.server import ServerSettings
from schemas.lookup import LookupQuery
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.collecting import until
from tests.support.fake_node import FakeNode
from tests.support.http2_frames import message, speaking
from tests.support.rpc import DEADLINE_S, refused, rpc_served
from tests.support.serving import served

LOOKUP = f"/{SERVICE}/Lookup"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LARGE = message(pb.LookupRequest(token_bytes=bytes(600_000)).SerializeToString())
HALF = len(LARGE) // 2
LIMITS = RpcLimits(body_bytes=2**20, pending_bytes=5 * 2**20)
ONE_CALLER = 4
"""What it gets of five: something is left for others."""
EXHAUSTED = b"grpc-status\x018"
ABORTED = b"grpc-status\x0210"
OK = b"grpc-status\x010"


async def test_all_messages_in_parts_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it they are refused and counted; small ones are answered meanwhile, and the others once they are whole."""
    monkeypatch.setattr(arrivals, "AT_ONCE_S", 0.2)
    node = FakeNode()
    async with rpc_served(node, LIMITS) as address, speaking(address) as frames:
        calls = [frames.begin(LOOKUP) for _ in range(10)]
        for call in calls:
            await frames.send(call, LARGE[:HALF])
        await frames.until_ended(len(calls) - ONE_CALLER)
        assert all(EXHAUSTED in told and b"body.pending_bytes" in told for told in frames.ended.values())
        assert {"limits.pending_bytes": len(calls) - ONE_CALLER} == node.limits_reached
        async with grpc.aio.insecure_channel(address) as channel:
            assert (await KvIndexerStub(channel).Lookup(pb.LookupRequest(token_ids=[1]))).pods
        rest = [call for call in calls if call not in frames.ended]
        assert ONE_CALLER == len(rest)
        for call in rest:
            await frames.send(call, LARGE[HALF:], end=True)
        await frames.until_ended(len(calls))
        assert all(OK in frames.ended[call] for call in rest)
        again = frames.begin(LOOKUP)
        await frames.send(again, LARGE, end=True)
        await frames.until_ended(len(calls) + 1)
        assert OK in frames.ended[again], "room again"


async def test_bodies_of_rest_share_it_too() -> None:
    """Also those that the short way receives: there is one bound, whichever door it is that fills it."""
    settings = ServerSettings(
        port=0, grpc_port=0, limits=RestLimits(pending_bytes=LIMITS.pending_bytes), rpc_limits=LIMITS
    )
    async with served(FakeNode(), settings) as (rest, rpc):

        async def looked_up() -> int:
            async with httpx.AsyncClient(base_url=rest, timeout=DEADLINE_S) as client:
                told = {"content-type": "application/octet-stream"}
                return (await client.post("/v1/lookup", content=bytes(600_000), headers=told)).status_code

        async with speaking(rpc.removeprefix("grpc://")) as frames:
            assert HTTPStatus.OK == await looked_up()
            for _ in range(ONE_CALLER + 1):
                await frames.send(frames.begin(LOOKUP), LARGE[:HALF])
            await frames.until_ended(1)
            assert HTTPStatus.TOO_MANY_REQUESTS == await looked_up()


_METHODS = {
    f"/{service}/{name}"
    for service, names in {
        SERVICE: ["Lookup", "LookupBatch", "Recommend", "ListSources", "WatchSources", "ReportRouted"],
        POD_SCORES_SERVICE: ["GetPodScores"],
        "grpc.health.v1.Health": ["Check", "List", "Watch"],
        "grpc.reflection.v1alpha.ServerReflection": ["ServerReflectionInfo"],
    }.items()
    for name in names
}


@pytest.mark.parametrize("path", sorted(_METHODS))
async def test_every_method_counts_to_the_bound_of_all_doors(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of REST have taken all of it: a message that stays away takes nothing, of whatever method."""
    monkeypatch.setattr(arrivals, "AT_ONCE_S", 0.05)
    node = FakeNode()
    readying = Readying(node, RestLimits(pending_bytes=1_000), asyncio.Event())
    assert readying.pending.take("another", 1_000)
    async with rpc_served(node, readying=readying) as address, speaking(address) as frames:
        call = frames.begin(path)
        await frames.send(call, LARGE[:HALF])
        await frames.until_ended(1)
        assert EXHAUSTED in frames.ended[call]
    assert {"limits.pending_bytes": 1} == node.limits_reached


async def test_what_nobody_reads_is_not_taken() -> None:
    """Behind a question that waits, a caller is let send a window, however quick it was before."""

    class WaitingNode(FakeNode):
        def __init__(self) -> None:
            super().__init__()
            self.waiting = 0
            self.may_go_on = asyncio.Event()

        async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:  # noqa: ARG002 - the port
            self.waiting += 1
            await self.may_go_on.wait()

    node = WaitingNode()
    waits = message(pb.LookupRequest(token_ids=[1], min_sequence={"p": 1}, timeout_ms=60_000).SerializeToString())
    async with rpc_served(node) as address, speaking(address) as frames, asyncio.TaskGroup() as tasks:
        for count in range(20):  # by which gRPC would learn how much fits into the line, and take that
            await frames.send(frames.begin(LOOKUP), LARGE, end=True)
            await frames.until_ended(count + 1)
        stream = frames.begin(f"/{SERVICE}/LookupStream")
        await frames.send(stream, waits)
        await until(lambda: node.waiting == 1, "the question")
        sending = tasks.create_task(frames.send(stream, LARGE * 20))
        before = -1
        while frames.sent[stream] != before:
            before = frames.sent[stream]
            await frames.answered_ping()
        assert len(waits) + UNREAD_BYTES // 2 <= before <= len(waits) + 2 * UNREAD_BYTES
        sending.cancel()
        node.may_go_on.set()


async def test_conversations_of_reflection_are_shared() -> None:
    """Each may be about to bring a message; beyond their limit they are refused."""
    node = FakeNode()
    async with rpc_served(node, RpcLimits(other_calls=5)) as address, speaking(address) as frames:
        calls = [frames.begin(REFLECTION) for _ in range(10)]
        await frames.until_ended(len(calls) - ONE_CALLER)
        assert all(EXHAUSTED in told for told in frames.ended.values())
        for call in calls:
            if call not in frames.ended:
                await frames.send(call, message(b"\xff\xff"), end=True)
        await frames.until_ended(len(calls))
        assert ONE_CALLER == sum(b"body.not_protobuf" in told for told in frames.ended.values())
    assert {"rpc.other_calls": len(calls) - ONE_CALLER} == node.limits_reached


async def test_a_conversation_of_reflection_ends_when_it_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message has the time of one; what is counted for the silence is free again then."""
    monkeypatch.setattr(arrivals, "AT_ONCE_S", 0.05)
    node = FakeNode()
    readying = Readying(node, RestLimits(), asyncio.Event())
    async with rpc_served(node, RpcLimits(body_wait_s=0.5), readying=readying) as address, speaking(address) as frames:
        call = frames.begin(REFLECTION)
        for _ in range(3):
            await frames.send(
                call, message(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())
            )
            await until(lambda: readying.pending.total > 0, "the silence that counts")
        await frames.until_ended(1)
        told = frames.ended[call]
        assert 3 == told.count(b"grpc.health.v1.Health")
        assert ABORTED in told
        assert b"body.timeout" in told
        assert 0 == readying.pending.total
    assert {"limits.body_wait_s": 1} == node.limits_reached


_ANSWERED = {
    f"/{SERVICE}/Lookup": pb.LookupRequest(token_ids=[1]),
    f"/{SERVICE}/LookupBatch": pb.LookupBatchRequest(items=[pb.LookupRequest(token_ids=[1])]),
    f"/{SERVICE}/ListSources": pb.ListSourcesRequest(),
    f"/{POD_SCORES_SERVICE}/GetPodScores": GetPodScoresRequest(prompt="t"),
    "/grpc.health.v1.Health/Check": HealthCheckRequest(),
}


@pytest.mark.parametrize("path", _ANSWERED)
async def test_a_stop_waits_for_messages_that_arrive(path: str) -> None:
    """Whoever was let in is answered, though its message is not whole when the stop begins."""
    stop, asked = asyncio.Event(), message(_ANSWERED[path].SerializeToString())
    async with rpc_served(FakeNode(), stop=stop, drain_s=3_600) as address, speaking(address) as frames:
        call = frames.begin(path)
        await frames.send(call, asked[:3])
        await frames.answered_ping()
        async with grpc.aio.insecure_channel(address) as channel:
            listening = KvIndexerStub(channel).WatchSources(pb.WatchSourcesRequest())
            assert "complete" == (await listening.read()).event
            stop.set()
            assert "server.stopping" == (await refused(listening.read()))[1]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * SEND_S):  # in the first of which it would be cut if it were not waited for
                await frames.until_ended(1)
        await frames.send(call, asked[3:], end=True)
        await frames.until_ended(1)
        assert OK in frames.ended[call]


async def test_a_message_that_does_not_come_keeps_a_stop_no_longer_than_it_may() -> None:
    """After `drain_s` it is cut."""
    stop = asyncio.Event()
    async with rpc_served(FakeNode(), stop=stop, drain_s=0.05) as address, speaking(address) as frames:
        call = frames.begin(LOOKUP)
        await frames.send(call, LARGE[:HALF])
        await frames.answered_ping()
        stop.set()
        await frames.until_ended(1)
        assert OK not in frames.ended[call]
