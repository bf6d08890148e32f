"""[I/O] How a gRPC server ends: no new calls, and those that are under way to their end, within bounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import grpc

    from api.rpc.calls import Calls

SEND_S: Final = 0.1
"""At the end of a stop, for what is answered and not yet sent; who only listens is cut then."""


async def drained(server: grpc.aio.Server, calls: Calls, drain_s: float) -> None:
    """No new calls from now on; return when the last is answered, or `drain_s` is over."""
    async with asyncio.TaskGroup() as tasks:
        refusing = tasks.create_task(server.stop(drain_s), name="grpc: stop")
        quiet = tasks.create_task(calls.quiet(), name="grpc: quiet")
        await asyncio.wait([refusing, quiet], return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()
        await server.stop(SEND_S)
