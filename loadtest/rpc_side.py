"""gRPC beside HTTP in the service's process, and what it is compared with: methods that answer with a constant.

The null methods take and give bytes like the product's own, on a server with the same options. Does I/O.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc

from api.rpc.limits import RpcLimits
from api.rpc.server import RpcServer, RpcSettings, options_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from indexer.node import Node

NULL_SERVICE: Final = "loadtest.Null"


class RpcSide:
    """Both servers, on free ports of loopback. `size`: of the null methods' answer, in bytes."""

    def __init__(self, node: Node, batches: int) -> None:
        self.size = 0
        self.port = 0
        self.null_port = 0
        self._server = RpcServer(node, RpcSettings(port=0, drain_s=0.1, limits=RpcLimits(batches_waiting=batches)))
        self._null = grpc.aio.server(options=options_of(RpcLimits()))
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Null": grpc.unary_unary_rpc_method_handler(self._answer),
            "NullStream": grpc.stream_stream_rpc_method_handler(self._answers),
        }
        self._null.add_registered_method_handlers(NULL_SERVICE, handlers)

    async def run(self, stop: asyncio.Event, started: asyncio.Event) -> None:
        """Serve until `stop`."""
        addresses = await self._server.start()
        self.port = int(addresses[0].rpartition(":")[2])
        self.null_port = self._null.add_insecure_port("127.0.0.1:0")
        await self._null.start()
        started.set()
        try:
            await self._server.run(stop)
        finally:
            await self._server.close()
            await self._null.stop(None)

    async def _answer(self, _data: bytes, _context: object) -> bytes:
        return b"0" * self.size

    async def _answers(self, asked: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for _ in asked:
            yield b"0" * self.size
