"""The connection that only exchanges heartbeats, with peers that are no engines."""

from __future__ import annotations

import asyncio
import struct

import pytest

from indexer.clock import SystemClock
from indexer.collect.pulse import Pulse
from indexer.collect.sockets import open_context
from tests.support.collecting import LOOPS, QUICK, run_on, until

pytestmark = pytest.mark.parametrize("loop", LOOPS)

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.0, without security."""
_TYPE = b"\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"
_BODY = b"\x05READY" + _TYPE
READY = bytes([4, len(_BODY)]) + _BODY
UNASKED = bytes([0, 7]) + b"unasked"


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Shake hands as a publisher does."""
    writer.write(GREETING)
    await reader.readexactly(len(GREETING))
    writer.write(READY)
    await writer.drain()


@pytest.mark.parametrize("sends", [b"", UNASKED * 5_000], ids=["nothing", "unasked"])
def test_a_publisher_that_sends_what_nobody_asked_for_does_not_beat(loop: str, sends: bytes) -> None:
    """Its connection is cut, again and again; one that says nothing is a good one."""

    async def main() -> None:
        greeted: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _greet(reader, writer)
            greeted.append(writer)
            writer.write(sends)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        clock, context = SystemClock(), open_context(QUICK)
        pulse = Pulse(context, endpoint, QUICK, clock.now())

        def beats() -> bool:
            pulse.look(clock.now())
            return pulse.beats

        if sends:
            await until(lambda: not beats() and len(greeted) > 2, "several connections")
        else:
            await until(beats, "a beat")
        pulse.close()
        context.term()
        for writer in greeted:
            writer.close()
        server.close()

    run_on(loop, main())
