"""An engine's `/metrics` on a real socket, connections kept: what is to be answered next, and what was asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOAD: Final = (
    'vllm:num_requests_running{{engine="{0}",model_name="m"}} {1}\n'
    'vllm:num_requests_waiting{{engine="{0}",model_name="m"}} {2}\n'
    'vllm:kv_cache_usage_perc{{engine="{0}",model_name="m"}} {3}\n'
)


def load_text(running: float, waiting: float = 0, kv_usage: float = 0.5, *, engine: int = 0) -> str:
    """As vLLM tells it, of one rank."""
    return LOAD.format(engine, running, waiting, kv_usage)


def whole(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    """An answer with its length."""
    content = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status}", f"content-length: {len(content)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + content


def chunked(body: str, size: int = 7) -> bytes:
    """An answer in chunks, as servers send what they stream."""
    content = body.encode()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


class BusyEngine:
    """`answer`: bytes as they go out; b"" for none. `ends`: whether the connection does, after each."""

    def __init__(self) -> None:
        self.address = ""
        self.answer: bytes = whole(load_text(0))
        self.answers: dict[str, bytes] = {}
        """By path; others have `answer`."""
        self.ends = False
        self.without_end = False
        """Whether after that bytes come for as long as anybody reads."""
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1].decode()
                self.heads.append(head)
                self.asked.append(path)
                writer.write(self.answers.get(path, self.answer))
                await writer.drain()
                while self.without_end:
                    writer.write(b"#" * 65_536)
                    await writer.drain()
                if self.ends:
                    break
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self.open.remove(writer)


@contextlib.asynccontextmanager
async def busy_engine() -> AsyncIterator[BusyEngine]:
    """One on a free port, until the block ends."""
    engine = BusyEngine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    engine.address = f"{host}:{port}"
    try:
        yield engine
    finally:
        server.close()
        while engine.open:
            for writer in engine.open:
                writer.transport.abort()
            await asyncio.sleep(0.001)
