"""The generator where wrk is not installed: raw HTTP/1.1 over keep-alive connections on a uvloop.

    python -m loadtest.client PORT CONNECTIONS SECONDS BODIES TARGET CONTENT_TYPE SKIP

Reads of an answer no more than where it ends. A line of JSON at the end, as wrk.lua prints it. Does I/O.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import uvloop

from loadtest.generator import read_bodies
from loadtest.stats import median, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


class Asker(asyncio.Protocol):
    """One connection: the next request leaves when the last answer is whole."""

    def __init__(self, requests: Iterator[bytes], latencies_us: list[float]) -> None:
        self.errors = 0
        self._requests = requests
        self._latencies = latencies_us
        self._buffer = b""
        self._left = -1
        self._at = 0.0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask first."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Wait for the end of the answer."""
        if self._left < 0:
            self._buffer += data
            end = self._buffer.find(_END)
            if end < 0:
                return
            head = self._buffer[:end].lower()
            self.errors += not head.startswith(b"http/1.1 2")
            at = head.index(_LENGTH) + len(_LENGTH)
            self._left = int(head[at:].split(b"\r\n", 1)[0]) - (len(self._buffer) - end - len(_END))
        else:
            self._left -= len(data)
        if not self._left:
            self._latencies.append((time.perf_counter() - self._at) * 1e6)
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Only at the end."""
        self.errors += exc is not None

    def close(self) -> None:
        """Ask no more."""
        if self._transport is not None:
            self._transport.close()

    def _ask(self) -> None:
        self._buffer, self._left, self._at = b"", -1, time.perf_counter()
        if self._transport is not None:
            self._transport.write(next(self._requests))


async def ask(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> str:
    """Ask for so long; the line with the result."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    turns = cycle(requests)
    askers = [
        (await loop.create_connection(lambda: Asker(turns, latencies), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    latencies.clear()
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    taken, passed = list(latencies), time.perf_counter() - started
    for asker in askers:
        asker.close()
    result = {
        "requests": len(taken),
        "seconds": passed,
        "p50_us": median(taken),
        "p99_us": percentile(taken, 0.99),
        "errors": sum(asker.errors for asker in askers),
    }
    return "RESULT " + json.dumps(result)


def main(words: Sequence[str]) -> None:
    """See the module."""
    port, connections, seconds, bodies, target, content_type, skip = words
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: "
    requests = [head.encode() + b"%d" % len(body) + _END + body for body in read_bodies(Path(bodies))]
    first = int(skip) % len(requests)
    requests = requests[first:] + requests[:first]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(ask(int(port), requests, int(connections), float(seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
