"""Callers who ask and take no answer: they hold their own share of all calls, and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthListRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from api.rpc.limits import RpcLimits
from api.rpc.server import POD_SCORES_SERVICE, SERVICE
from schemas.rpc.indexer.v1 import indexer_pb2
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.callers import bearer, gates
from tests.support.collecting import until
from tests.support.fake_node import FakeNode
from tests.support.http2_frames import Frames, burst, message, unread
from tests.support.rpc import refused, rpc_served

LOOKUP = f"/{SERVICE}/Lookup"
BATCH = f"/{SERVICE}/LookupBatch"
STREAM = f"/{SERVICE}/LookupStream"
WATCH = f"/{SERVICE}/WatchSources"
CHECK = "/grpc.health.v1.Health/Check"
ASKED: dict[str, Message] = {
    LOOKUP: pb.LookupRequest(token_ids=[1]),
    STREAM: pb.LookupRequest(token_ids=[1]),
    BATCH: pb.LookupBatchRequest(items=[pb.LookupRequest(token_ids=[1])]),
    f"/{SERVICE}/Recommend": pb.RecommendRequest(question=pb.LookupRequest(token_ids=[1])),
    f"/{SERVICE}/ReportRouted": pb.ReportRoutedRequest(items=[pb.RoutedReport(pod="a", of="r")]),
    f"/{SERVICE}/ReportReuse": pb.ReportReuseRequest(items=[pb.ReuseReport(pod="a", request_id="r", cached_tokens=1)]),
    f"/{SERVICE}/ListSources": pb.ListSourcesRequest(),
    WATCH: pb.WatchSourcesRequest(),
    f"/{POD_SCORES_SERVICE}/GetPodScores": GetPodScoresRequest(prompt="t"),
    CHECK: HealthCheckRequest(),
    "/grpc.health.v1.Health/List": HealthListRequest(),
    "/grpc.health.v1.Health/Watch": HealthCheckRequest(),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ServerReflectionRequest(list_services=""),
}
"""Every method, and what it answers."""
ONE_CALLER = 8
"""What it gets of ten."""
OK = b"grpc-status\x010"
EXHAUSTED = b"grpc-status\x018"
ABORTED = b"grpc-status\x0210"
PLENTY = 100_000


class _TenCalls(RpcLimits, frozen=True, kw_only=True):
    @property
    def calls(self) -> int:
        return 10


def test_no_method_is_left_out() -> None:
    """Of any service here."""
    services = [
        pb.DESCRIPTOR.services_by_name["KvIndexer"],
        indexer_pb2.DESCRIPTOR.services_by_name["IndexerService"],
        health_pb2.DESCRIPTOR.services_by_name["Health"],
        reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
    ]
    assert {*ASKED} == {f"/{service.full_name}/{name}" for service in services for name in service.methods_by_name}


async def _ask(frames: Frames, path: str, count: int) -> list[int]:
    """So many whole calls, the server having seen all of them."""
    calls = []
    for _ in range(count):
        calls.append(call := frames.begin(path))
        await frames.send(call, message(ASKED[path].SerializeToString()), end=True)
    await frames.until_answering(count)
    return calls


async def _others_are_answered(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        assert (await KvIndexerStub(channel).Lookup(ASKED[LOOKUP])).pods
        assert await HealthStub(channel).Check(HealthCheckRequest())


@pytest.mark.parametrize("path", sorted(ASKED))
async def test_who_takes_no_answer_leaves_something_for_others(path: str) -> None:
    """Of all calls a caller holds its share until the answers are really sent; refused ones cost nothing."""
    node = FakeNode()
    async with rpc_served(node, _TenCalls()) as address, unread(address) as frames:
        calls = await _ask(frames, path, 20)
        await frames.until_ended(len(calls) - ONE_CALLER)
        assert all(EXHAUSTED in told and b"calls.too_many" in told for told in frames.ended.values())
        assert {"rpc.calls": len(calls) - ONE_CALLER} == node.limits_reached
        await _others_are_answered(address)
        again = frames.begin(path)
        await frames.until_ended(len(calls) - ONE_CALLER + 1)
        assert EXHAUSTED in frames.ended[again], "what is still held counts, however long"


@pytest.mark.parametrize("path", sorted({*ASKED} - {WATCH, "/grpc.health.v1.Health/Watch"}))
async def test_answers_that_are_taken_make_room(path: str) -> None:
    """Their places are free again, whether the answers are taken or their caller goes."""
    async with rpc_served(FakeNode(), _TenCalls()) as address:
        async with unread(address) as frames:
            calls = await _ask(frames, path, ONE_CALLER)
            for call in calls:
                frames.take(call, PLENTY)
            await frames.until_ended(len(calls))
            assert all(OK in told for told in frames.ended.values())
            more = await _ask(frames, path, ONE_CALLER)
            await frames.answered_ping()
            assert not {*more} & {*frames.ended}
        await until(lambda: _tasks_of_calls() == 0, "the end of what nobody waits for any more")
        async with unread(address, window=PLENTY) as frames:
            await _ask(frames, path, ONE_CALLER)
            await frames.until_ended(ONE_CALLER)
            assert all(OK in told for told in frames.ended.values())


def _tasks_of_calls() -> int:
    return sum(task.get_name() == "rpc_task" for task in asyncio.all_tasks())


async def test_who_shows_no_valid_token_counts_by_its_address(tmp_path: Path) -> None:
    """Whoever shows one has a share of its own, also from there."""
    access = gates(tmp_path, ("asks", ("lookup",), None)).access
    async with (
        rpc_served(FakeNode(), _TenCalls(), access=access) as address,
        unread(address, source="127.0.0.1") as frames,
        grpc.aio.insecure_channel(address) as channel,
    ):
        await _ask(frames, CHECK, ONE_CALLER)
        stub = KvIndexerStub(channel)
        for shown in ("", "Bearer of-nothing"):
            told = await refused(stub.Lookup(ASKED[LOOKUP], metadata=(("authorization", shown),)))
            assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "calls.too_many") == told[:2]
        assert (await stub.Lookup(ASKED[LOOKUP], metadata=(("authorization", bearer("asks")),))).pods


@pytest.mark.parametrize(
    ("path", "limit", "code"),
    [
        (BATCH, "rpc.batches_waiting", b"batches.too_many"),
        (f"/{SERVICE}/ListSources", "rpc.other_calls", b"calls.too_many"),
    ],
)
async def test_long_answers_are_bounded_until_they_are_taken(path: str, limit: str, code: bytes) -> None:
    """Those of batches and lists: fewer of them may wait for their caller."""
    node = FakeNode()
    async with rpc_served(node, RpcLimits(batches_waiting=10, other_calls=10)) as address, unread(address) as frames:
        calls = await _ask(frames, path, 20)
        await frames.until_ended(len(calls) - ONE_CALLER)
        assert all(EXHAUSTED in told and code in told for told in frames.ended.values())
        assert {limit: len(calls) - ONE_CALLER} == node.limits_reached
        for call in calls:
            frames.take(call, PLENTY)
        await frames.until_ended(len(calls))
        assert ONE_CALLER == sum(OK in told for told in frames.ended.values())


@pytest.mark.parametrize(("path", "limit"), [(WATCH, "rpc.watch_stall_s"), (STREAM, "rpc.stream_idle_s")])
async def test_who_stops_reading_is_told_why_it_ended(path: str, limit: str, caplog: pytest.LogCaptureFixture) -> None:
    """Behind what it was sent before, also where that is the first of all; it counts as a call until then."""
    node = FakeNode()
    limits = _TenCalls(watch_stall_s=0.5, stream_idle_s=0.5)
    async with rpc_served(node, limits) as address, unread(address) as frames:
        calls = await _ask(frames, path, ONE_CALLER)
        await until(lambda: node.limits_reached[limit] == len(calls), "the end of their time")
        told = frames.begin(path)
        await frames.until_ended(1)
        assert EXHAUSTED in frames.ended[told]
        for call in calls:
            frames.take(call, PLENTY)
        await frames.until_ended(1 + len(calls))
        assert all(ABORTED in frames.ended[call] for call in calls)
    assert [] == _faults(caplog)


@pytest.mark.parametrize("path", sorted(ASKED))
async def test_a_caller_that_is_gone_is_no_fault(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """While it is sent something: neither an error nor a traceback, however many go at once."""
    node = FakeNode()
    async with rpc_served(node) as address:
        async with unread(address) as frames:
            await _ask(frames, path, 20)
            frames.vanish()
        await until(lambda: _tasks_of_calls() == 0, "the end of their calls")
        await _others_are_answered(address)
    assert [] == _faults(caplog)


def _faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """But those of other tests: grpc.aio has one queue a process; what ended with an earlier loop comes by it here."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and not _is_of_another_loop(record)
    ]


def _is_of_another_loop(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    ours = "PollerCompletionQueue" not in record.getMessage()
    return not ours and isinstance(error, RuntimeError) and str(error) == "Event loop is closed"


async def test_a_burst_drops_no_call_of_others() -> None:
    """Nor one of its own without a word, though the loop was at something else while all of them came."""
    asked = ASKED[LOOKUP].SerializeToString()
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        host, _, port = address.partition(":")
        stub = KvIndexerStub(channel)
        assert (await stub.Lookup(ASKED[LOOKUP])).pods
        with _closed(burst((host, int(port)), "127.0.0.2", LOOKUP, asked, 1_000) for _ in range(4)):
            async with asyncio.TaskGroup() as tasks:
                answers = [tasks.create_task(_pods(stub)) for _ in range(50)]
        assert all(answer.result() for answer in answers)


async def _pods(stub: KvIndexerStub) -> int:
    return len((await stub.Lookup(ASKED[LOOKUP])).pods)


@contextlib.contextmanager
def _closed(connections: Iterator[socket.socket]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for connection in connections:
            stack.enter_context(connection)
        yield
