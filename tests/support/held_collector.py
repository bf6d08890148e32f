"""A process of its own whose event loop stands still when told to: what libzmq does meanwhile must not end it.

    python -m tests.support.held_collector ENDPOINT HOLD_S

prints `connected`, waits for a line, holds its loop for HOLD_S, reads on until the connection is seen lost, prints
`lost` and how many batches were applied, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace

from indexer.model import Descriptor
from tests.support.collecting import QUICK, collecting, until
from tests.support.recording_sink import RecordingSink

OPTIONS = replace(QUICK, heartbeat_interval_s=0.2, heartbeat_timeout_s=3.0, heartbeat_ttl_s=6.0)
"""Heartbeats fall due several times while the loop is held, and none times out."""


async def main(endpoint: str, hold_s: float) -> None:
    """One subscriber, held once."""
    sink = RecordingSink(Descriptor(pod="a", endpoint=endpoint))
    async with collecting(sink, options=OPTIONS):
        await until(lambda: sink.connected, "connection")
        print("connected", flush=True)
        sys.stdin.readline()
        time.sleep(hold_s)  # noqa: ASYNC251  holding the loop is the point
        await until(lambda: bool(sink.applied), "messages")
        await until(lambda: not sink.connected, "loss of the connection")
        print("lost", len(sink.applied), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
