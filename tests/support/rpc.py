"""The gRPC face on a real socket, and callers of it, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc

from api.access.access import Access
from api.ports import NodePort
from api.rest.readying import Readying
from api.rpc.limits import RpcLimits
from api.rpc.server import RpcSettings, rpc_server
from api.rpc.statuses import CODE_KEY, PROBLEM_KEY
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import Problem
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub

DEADLINE_S = 20.0


@contextlib.asynccontextmanager
async def rpc_served(
    node: NodePort,
    limits: RpcLimits | None = None,
    *,
    stop: asyncio.Event | None = None,
    access: Access | None = None,
    drain_s: float = 5.0,
    readying: Readying | None = None,
) -> AsyncIterator[str]:
    """`host:port` of a server that runs until the block ends, or `stop` is set inside it."""
    stop = stop or asyncio.Event()
    settings = RpcSettings(port=0, drain_s=drain_s, limits=limits or RpcLimits())
    async with (
        rpc_server(node, settings, access=access, readying=readying) as (server, addresses),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(server.run(stop))
        try:
            yield addresses[0].removeprefix("grpc://")
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def rpc_client(node: NodePort, limits: RpcLimits | None = None, **more: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - stubs are not typed
    """A stub of such a server."""
    async with rpc_served(node, limits, **more) as address, grpc.aio.insecure_channel(address) as channel:
        yield KvIndexerStub(channel)


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, Problem]:
    """Status, code and problem of a call that must be refused."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        metadata = dict(error.trailing_metadata() or ())
        problem = Problem.FromString(bytes(metadata.get(PROBLEM_KEY, b"")))
        return error.code(), str(metadata.get(CODE_KEY, "")), problem
    raise AssertionError("it was not refused")
