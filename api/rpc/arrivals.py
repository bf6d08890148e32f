"""Calls whose message is still to come.

gRPC hands a call with one message to its method once the message is whole, however long that takes, and says nothing
before. So such methods are registered as if they took a stream, and read its first message here: within a time, and
within a share of all that arrive, or a few callers who send nothing would take every place there is. Who may not call
is refused before a byte of it is read.

Nobody tells how much of a message has come. What gRPC holds of one that nobody reads is bounded by its window
(server.py); of one that is read it may be all that a message may have. So one that does not come at once counts as if
it had come, in bytes, to the bound that holds for unfinished bodies of all doors.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from api.admission import Shares
from api.problems import RequestRefused
from api.rest.readying import overload
from api.rpc.calls import place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from api.access.caller import Scope
    from api.ports import NodePort
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context


AT_ONCE_S: Final = 0.5
"""For a message to come before its bytes are counted."""


class Arrivals:
    """One instance a server. `pending`: the bytes of unfinished bodies."""

    def __init__(self, node: NodePort, calls: Calls, limits: RpcLimits, pending: Shares) -> None:
        self._calls = calls
        self._wait_s = limits.body_wait_s
        self._pending = pending
        self._bytes = min(limits.body_bytes, pending.most)
        self._reached = node.limit_reached
        self._places = Shares("rpc.arriving", limits.arriving, reached=node.limit_reached)

    def answered(
        self, method: Callable[[bytes, Context], Awaitable[bytes]], scope: Scope | None
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """For a method that takes one message and gives one. `scope`: as of a REST door.

        The server's end waits for such a call from here on, not only once its message is whole.
        """

        async def call(_requests: object, context: Context) -> bytes:
            with self._calls.counted():
                return await method(await self.message(context, scope), context)

        return grpc.stream_unary_rpc_method_handler(cast("Any", call))

    def streamed(
        self, method: Callable[[bytes, Context], Awaitable[None]], scope: Scope | None
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """For a method that takes one message and gives many."""

        async def call(_requests: object, context: Context) -> None:
            await method(await self.message(context, scope), context)

        return grpc.stream_stream_rpc_method_handler(cast("Any", call))

    async def message(self, context: Context, scope: Scope | None) -> bytes:
        """The one message of a call; a call without is refused. `scope`: as above."""
        try:
            if scope is not None:
                self._calls.caller(context, scope)
            sharer = self._calls.sharer(context)
            with place(self._places, sharer, "calls.too_many", "calls whose message arrives"):
                return _whole(await self._arrived(context, sharer))
        except RequestRefused as refusal:
            await self._calls.refuse(context, refusal)
        return b""  # never comes to it

    async def next_message(self, context: Context, sharer: str) -> bytes | None:
        """The next one of a conversation within the same bounds; None: the caller has no more. Raises `RequestRefused`.

        Whoever says nothing between two messages ends by this, too: from here a silence looks like a message of which
        some is there.
        """
        data = await self._arrived(context, sharer)
        return data if isinstance(data, bytes) else None

    async def _arrived(self, context: Context, sharer: str) -> object:
        """What is read. Raises `RequestRefused` 408, and 429 for one that would take too many bytes."""
        loop = asyncio.get_running_loop()
        counted: bool | None = None

        def count() -> None:
            nonlocal counted
            left_s = self._wait_s - AT_ONCE_S
            if left_s > 0:
                counted = self._pending.take(sharer, self._bytes)
            patience.reschedule(loop.time() + (left_s if counted else 0))

        counting = loop.call_later(min(AT_ONCE_S, self._wait_s), count)
        try:
            async with asyncio.timeout(None) as patience:
                return await context.read()
        except TimeoutError:
            if counted is False:
                detail = "too many bytes of messages that do not come at once are held at the moment"
                raise overload("body.pending_bytes", detail) from None
            self._reached("limits.body_wait_s")
            detail = f"the message did not come within {self._wait_s:g} s"
            raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "body.timeout", detail) from None
        finally:
            counting.cancel()
            if counted:
                self._pending.give_back(sharer, self._bytes)


def _whole(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    raise RequestRefused(HTTPStatus.BAD_REQUEST, "body.missing", "this call takes one message, and none came")
