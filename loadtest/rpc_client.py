"""What asks over gRPC: so many connections, each with one question under way. In a process of its own.

It costs as much CPU as the service does, so that rates say little: what counts is the service's CPU time. Does I/O.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import grpc

from loadtest.generator import GeneratorFailed, Load, read_bodies
from loadtest.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Ask = Callable[[bytes], Awaitable[bytes]]

_OWN_CONNECTION: Final = ("grpc.use_local_subchannel_pool", 1)
_ANY_SIZE: Final = ("grpc.max_receive_message_length", -1)


class RpcClient:
    """Asks what is in a file of bodies."""

    def __init__(self) -> None:
        self._path = ""
        self._bodies: list[bytes] = []
        self._turn = 0
        self._seen: list[float] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def read(self, path: str) -> None:
        """From now on these."""
        self._bodies, self._turn = read_bodies(Path(path)), 0

    async def once(self, port: int, method: str, *, stream: bool) -> bytes:
        """The answer to the first."""
        async with self._channel(port) as channel:
            return await self._asker(channel, method, stream=stream)(self._bodies[0])

    async def load(self, port: int, method: str, connections: int, seconds: float, *, stream: bool) -> Load:
        """Ask for so long."""
        self._seen = []
        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(connections):
                    tasks.create_task(
                        self._ask(port, method, started + seconds, stream=stream), name=f"connection-{number}"
                    )
        except* grpc.aio.AioRpcError as group:
            first = group.exceptions[0]
            raise GeneratorFailed(f"{method}: {first}") from None
        took = time.perf_counter() - started
        seen = sorted(self._seen)
        return Load(len(seen), took, percentile(seen, 0.5) * 1e6, percentile(seen, 0.99) * 1e6, 0)

    async def _ask(self, port: int, method: str, end: float, *, stream: bool) -> None:
        async with self._channel(port) as channel:
            ask = self._asker(channel, method, stream=stream)
            while (before := time.perf_counter()) < end:
                self._turn += 1
                await ask(self._bodies[self._turn % len(self._bodies)])
                self._seen.append(time.perf_counter() - before)

    @staticmethod
    def _channel(port: int) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[_OWN_CONNECTION, _ANY_SIZE])

    @staticmethod
    def _asker(channel: grpc.aio.Channel, method: str, *, stream: bool) -> Ask:
        if not stream:
            unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            return unary
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(method)()

        async def ask(body: bytes) -> bytes:
            await call.write(body)
            answer = await call.read()
            if not isinstance(answer, bytes):
                raise GeneratorFailed(f"{method}: the stream has ended")
            return answer

        return ask
