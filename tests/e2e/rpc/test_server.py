"""The server around the methods: health, reflection, its end, and callers that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from api.rest.limits import RestLimits
from api.rest.readying import Readying
from api.rpc.limits import RpcLimits
from api.rpc.server import POD_SCORES_SERVICE, SERVICE, RpcSettings, rpc_server
from indexer.errors import SettingsError
from schemas.lookup import LookupQuery
from schemas.rpc.indexer.v1 import indexer_pb2, indexer_pb2_grpc
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client, rpc_served

QUESTION = pb.LookupRequest(token_ids=[1, 2, 3])
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class SlowNode(FakeNode):
    """Events that a question waits for come when `applied` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.applied = asyncio.Event()

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:  # noqa: ARG002 - the port
        self.asked.set()
        await self.applied.wait()


async def _health(channel: grpc.aio.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


@pytest.mark.parametrize("service", ["", SERVICE, POD_SCORES_SERVICE])
async def test_health_follows_readiness(service: str) -> None:
    """Of the whole and of each service; a watcher learns when it changes."""
    node = FakeNode()
    node.ready = False
    async with rpc_served(node) as address, grpc.aio.insecure_channel(address) as channel:
        assert NOT_SERVING == await _health(channel, service)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
        assert NOT_SERVING == (await watch.read()).status
        node.ready = True
        assert SERVING == (await watch.read()).status
        node.fault = ValueError("x")
        assert NOT_SERVING == (await watch.read()).status


async def test_reflection_lists_the_services() -> None:
    """So that tools need no proto."""
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = (await call.read()).list_services_response
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
        described = (await call.read()).file_descriptor_response
        await call.done_writing()

    names = {service.name for service in listed.service}
    assert {SERVICE, POD_SCORES_SERVICE, "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_proto


async def test_a_stop_answers_what_is_under_way_and_ends_what_only_listens() -> None:
    """Long before the time that requests may take: nobody waits for watchers and idle streams."""
    node, stop = SlowNode(), asyncio.Event()
    async with rpc_served(node, stop=stop, drain_s=3_600) as address, grpc.aio.insecure_channel(address) as channel:
        stub = KvIndexerStub(channel)
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert SERVING == (await health.read()).status or SERVING == (await health.read()).status
        stream, watch = stub.LookupStream(), stub.WatchSources(pb.WatchSourcesRequest())
        await stream.write(QUESTION)
        assert (await stream.read()).HasField("answer")
        assert "complete" == (await watch.read()).event
        busy = stub.LookupStream()
        await busy.write(pb.LookupRequest(token_ids=[1], min_sequence={"p": 1}, timeout_ms=60_000))
        await node.asked.wait()
        stop.set()
        assert NOT_SERVING == (await health.read()).status
        assert (grpc.StatusCode.UNAVAILABLE, "server.stopping") == (await refused(stream.read()))[:2]
        assert (grpc.StatusCode.UNAVAILABLE, "server.stopping") == (await refused(watch.read()))[:2]
        assert (await busy.read()).HasField("answer")
        assert (grpc.StatusCode.UNAVAILABLE, "server.stopping") == (await refused(busy.read()))[:2]


async def test_what_takes_longer_than_a_stop_is_cut() -> None:
    """After `drain_s`."""

    class StuckNode(FakeNode):
        async def tokenized(self, query: LookupQuery) -> LookupQuery:
            asked.set()
            await asyncio.Event().wait()
            return query

    asked, stop = asyncio.Event(), asyncio.Event()
    served = rpc_served(StuckNode(), stop=stop, drain_s=0.05)
    async with served as address, grpc.aio.insecure_channel(address) as channel:
        call = KvIndexerStub(channel).Lookup(pb.LookupRequest(prompt="x"))
        await asked.wait()
        stop.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await call


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01" + b"\xff" * 500,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 10_000,
        b"\x00" * 100_000,
    ],
)
async def test_garbage_on_the_port_harms_nobody(garbage: bytes) -> None:
    """Connections that talk nonsense, or nothing, while others are answered."""
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        stub = KvIndexerStub(channel)
        host, port = address.split(":")
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                reader, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                with contextlib.suppress(ConnectionError):
                    writer.write(garbage)
                    await writer.drain()
                assert (await stub.Lookup(QUESTION)).pods
            del reader
        assert (await stub.Lookup(QUESTION)).pods


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("/kvindexer.v1.KvIndexer/Lookup", b"\xff\xff\xff"),
        ("/kvindexer.v1.KvIndexer/LookupBatch", b"\x0a\x05abc"),
        ("/kvindexer.v1.KvIndexer/ListSources", b"\x0a\x02\xff\xfe"),
        ("/indexer.v1.IndexerService/GetPodScores", b"\x0a\x02\xff\xfe"),
    ],
)
async def test_what_is_no_message_is_refused(method: str, data: bytes) -> None:
    """With a code, as everything that is wrong."""
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(method)(data)
        assert (grpc.StatusCode.INVALID_ARGUMENT, "body.not_protobuf") == (await refused(call))[:2]


async def test_a_flood_is_refused_and_others_are_answered() -> None:
    """The calls that are too many are told so at once; when they are gone there is room again."""
    node = SlowNode()
    waiting = pb.LookupRequest(token_ids=[1], min_sequence={"p": 1}, timeout_ms=60_000)

    async def outcome(call: Awaitable[pb.LookupResponse]) -> tuple[grpc.StatusCode, str]:
        try:
            return (await refused(call))[:2]
        except AssertionError:
            return grpc.StatusCode.OK, ""

    async with (
        rpc_served(node, RpcLimits(sequence_waits=5)) as address,  # one caller gets four fifths
        grpc.aio.insecure_channel(address) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        stub = KvIndexerStub(channel)
        calls = {tasks.create_task(outcome(stub.Lookup(waiting))) for _ in range(20)}
        refusals = 0
        while refusals < 16:
            done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert {(grpc.StatusCode.RESOURCE_EXHAUSTED, "lookups.too_many_waits")} == {each.result() for each in done}
            refusals += len(done)
        node.applied.set()
        assert [(grpc.StatusCode.OK, "")] * 4 == [await each for each in calls]
        assert (await stub.Lookup(QUESTION)).pods


async def test_large_headers_are_refused() -> None:
    """And the connection lives on."""
    async with rpc_client(FakeNode()) as stub:
        status, _, _ = await refused(stub.Lookup(QUESTION, metadata=(("x", "y" * 100_000),)))
        assert status in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
        assert (await stub.Lookup(QUESTION)).pods


async def test_a_port_in_use_is_named() -> None:
    """By the setting that has to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"{port} on 127.0.0.1 is in use by another process") as caught:
            async with rpc_server(FakeNode(), RpcSettings(port=port)):
                pass
    assert "server.grpc_port" == caught.value.key


async def test_scores_as_the_other_project_has_them() -> None:
    """Pods that hold nothing are absent."""
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        stub = indexer_pb2_grpc.IndexerServiceStub(channel)
        answer = await stub.GetPodScores(indexer_pb2.GetPodScoresRequest(prompt="hello", model_name="m"))
        assert 0 == len(answer.scores)
        status, code, _ = await refused(stub.GetPodScores(indexer_pb2.GetPodScoresRequest(model_name="m")))
        assert (grpc.StatusCode.INVALID_ARGUMENT, "prompt.missing") == (status, code)


@pytest.mark.parametrize("method", ["Lookup", "GetPodScores"])
async def test_texts_count_as_those_of_other_faces_do(method: str) -> None:
    """Where no place is left for one, it is refused here, too."""
    node = FakeNode()
    readying = Readying(node, RestLimits(texts_waiting=0), asyncio.Event())
    async with rpc_served(node, readying=readying) as address, grpc.aio.insecure_channel(address) as channel:
        calls = {
            "Lookup": lambda: KvIndexerStub(channel).Lookup(pb.LookupRequest(prompt="t")),
            "GetPodScores": lambda: indexer_pb2_grpc.IndexerServiceStub(channel).GetPodScores(
                indexer_pb2.GetPodScoresRequest(prompt="t")
            ),
        }
        assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "texts.too_many") == (await refused(calls[method]()))[:2]
    assert {"limits.texts_waiting": 1} == node.limits_reached


async def test_calls_whose_message_does_not_come_end_and_take_no_place_of_others() -> None:
    """Told as such; whoever sends its message is answered meanwhile, and they are counted."""
    node = FakeNode()
    limits = RpcLimits(body_wait_s=0.2, arriving=10)
    async with rpc_served(node, limits) as address, grpc.aio.insecure_channel(address) as channel:
        stub = KvIndexerStub(channel)
        silent = [channel.stream_unary(f"/{SERVICE}/Lookup")() for _ in range(20)]
        codes = {(await refused(call))[:2] for call in silent}
        assert (grpc.StatusCode.ABORTED, "body.timeout") in codes
        assert codes <= {
            (grpc.StatusCode.ABORTED, "body.timeout"),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "calls.too_many"),
        }
        assert (await stub.Lookup(QUESTION)).pods
        empty = channel.stream_unary(f"/{SERVICE}/Lookup")()
        await empty.done_writing()
        assert (grpc.StatusCode.INVALID_ARGUMENT, "body.missing") == (await refused(empty))[:2]
