"""Health: its watchers, and the list of all."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from api.rpc.server import POD_SCORES_SERVICE, SERVICE
from tests.support.fake_node import FakeNode
from tests.support.http2_frames import message, unread
from tests.support.rpc import rpc_served

WATCH = "/grpc.health.v1.Health/Watch"


async def test_a_watcher_that_reads_nothing_keeps_nobody_waiting() -> None:
    """Neither who watches beside it, nor the change of health itself, nor the end of the server."""
    stop = asyncio.Event()
    async with rpc_served(FakeNode(), stop=stop) as address, unread(address) as frames:
        for _ in range(3):
            await frames.send(frames.begin(WATCH), message(HealthCheckRequest().SerializeToString()), end=True)
        await frames.answered_ping()
        async with grpc.aio.insecure_channel(address) as channel:
            watching = HealthStub(channel).Watch(HealthCheckRequest())
            while HealthCheckResponse.SERVING != (await watching.read()).status:
                pass
            stop.set()
            assert HealthCheckResponse.NOT_SERVING == (await watching.read()).status


async def test_all_services_are_listed() -> None:
    """With what each would be told alone."""
    async with rpc_served(FakeNode()) as address, grpc.aio.insecure_channel(address) as channel:
        stub = HealthStub(channel)
        listed = (await stub.List(HealthListRequest())).statuses
        assert {"", SERVICE, POD_SCORES_SERVICE} == {*listed}
        watching = stub.Watch(HealthCheckRequest())
        while HealthCheckResponse.SERVING != (await watching.read()).status:
            pass
        assert {HealthCheckResponse.SERVING} == {
            each.status for each in (await stub.List(HealthListRequest())).statuses.values()
        }
