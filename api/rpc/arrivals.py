"""Calls whose message is still to come.

gRPC hands a call with one message to its method once the message is whole, however long that takes, and says nothing
before. So such methods are registered as if they took a stream, and read its first message here: within a time, and
within a share of all that arrive, or a few callers who send nothing would take every place there is. Who may not call
is refused before a byte of it is read.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import grpc

from api.admission import Shares
from api.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from api.access.caller import Scope
    from api.ports import NodePort
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context


class Arrivals:
    """One instance a server."""

    def __init__(self, node: NodePort, calls: Calls, limits: RpcLimits) -> None:
        self._calls = calls
        self._wait_s = limits.body_wait_s
        self._reached = node.limit_reached
        self._places = Shares("rpc.arriving", limits.arriving, reached=node.limit_reached)

    def answered(
        self, method: Callable[[bytes, Context], Awaitable[bytes]], scope: Scope | None
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """For a method that takes one message and gives one. `scope`: as of a REST door."""

        async def call(_requests: object, context: Context) -> bytes:
            return await method(await self._message(context, scope), context)

        return grpc.stream_unary_rpc_method_handler(cast("Any", call))

    def streamed(
        self, method: Callable[[bytes, Context], Awaitable[None]], scope: Scope | None
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """For a method that takes one message and gives many."""

        async def call(_requests: object, context: Context) -> None:
            await method(await self._message(context, scope), context)

        return grpc.stream_stream_rpc_method_handler(cast("Any", call))

    async def _message(self, context: Context, scope: Scope | None) -> bytes:
        """The one message of a call; a call without is refused."""
        try:
            if scope is not None:
                self._calls.caller(context, scope)
            with self._calls.place(self._places, context, "calls.too_many", "calls whose message arrives"):
                async with asyncio.timeout(self._wait_s):
                    return _whole(await context.read())
        except TimeoutError:
            self._reached("limits.body_wait_s")
            detail = f"the message did not come within {self._wait_s:g} s"
            await self._calls.refuse(context, RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "body.timeout", detail))
        except RequestRefused as refusal:
            await self._calls.refuse(context, refusal)
        return b""  # never comes to it


def _whole(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    raise RequestRefused(HTTPStatus.BAD_REQUEST, "body.missing", "this call takes one message, and none came")
