"""An engine's HTTP side as far as texts need it: `/tokenize` on a real socket, which answers as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Reply = Callable[["TokenizeEngine", dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


def _http(status: str, body: bytes, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode("latin-1") + b"\r\n" + body


def tokens_of(question: dict[str, Any]) -> list[int]:
    """A token a byte; messages are their JSON."""
    told = question["prompt"] if "prompt" in question else json.dumps(question["messages"])
    return list(told.encode())


async def well(_: TokenizeEngine, question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """As vLLM answers."""
    tokens = tokens_of(question)
    told = {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}
    writer.write(_http("200 OK", json.dumps(told).encode(), "content-type: application/json"))


async def never(engine: TokenizeEngine, _: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Takes the question and says nothing."""
    await engine.over.wait()


async def in_drops(engine: TokenizeEngine, _: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """A byte now and then: no single wait is long."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        while not engine.over.is_set():
            writer.write(b" ")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(engine.over.wait(), 0.01)


async def without_end(engine: TokenizeEngine, _: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """More and more numbers."""
    writer.write(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n{"tokens":[\r\n')
    chunk = b"10000\r\n" + b"1," * 0x8000 + b"\r\n"
    with contextlib.suppress(ConnectionError):
        while not engine.over.is_set():
            writer.write(chunk)
            await writer.drain()


def saying(status: str, body: bytes, *headers: str) -> Reply:
    """That, whatever is asked."""

    async def reply(_: TokenizeEngine, __: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(_http(status, body, *headers))

    return reply


@dataclass
class TokenizeEngine:
    """`asked`: the questions so far. `connections`: how many were opened."""

    reply: Reply = well
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)
    connections: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
                self.cookies += [value for name, value in lines.items() if name == "cookie"]
                self.paths.append(head.split(" ", 2)[1])
                self.asked.append(json.loads(await reader.readexactly(int(lines["content-length"]))))
                await self.reply(self, self.asked[-1], writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def engine(reply: Reply = well) -> AsyncIterator[TokenizeEngine]:
    """One that listens until the block ends."""
    made = TokenizeEngine(reply)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.over.set()
        server.close()
        await server.wait_closed()
