"""The demo's service, as a process of its own: started by `api.demo.service`, never by hand.

Reads settings as flags of `serve` understand them, prints its addresses, and ends when its standard input does. So it
ends with the process that started it, however that one ends, and needs no signal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Final

import uvloop

from api.cli.serve import run_service
from api.demo.service import LEASE_S
from indexer.settings import BadSettings, load

HEARTBEAT_S: Final = 0.5
MIN_HOLD_S: Final = 1.0
"""In a deployment partitions move seldom; here somebody watches."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.settings import Settings


def main(port: str, grpc_port: str, store_url: str, replica: str, sources: Sequence[str]) -> int:
    """Serve until standard input ends. Nothing of the user's environment or files changes the demo.

    `grpc_port` may be `off`. `store_url` empty: memory mode.
    """
    logging.basicConfig(level="WARNING")
    try:
        settings = load(
            environment={},
            flags={
                "server.port": int(port),
                "server.grpc_port": False if grpc_port == "off" else int(grpc_port),
                "events.probe_interval_s": 1.0,
                "redis.url": store_url or None,
                "redis.replica": replica,
                "redis.lease_s": LEASE_S,
                "redis.heartbeat_s": HEARTBEAT_S,
                "redis.min_hold_s": MIN_HOLD_S,
            },
            source_flags=sources,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_input_ends(settings))
    except BadSettings as bad:
        print(bad, file=sys.stderr)
        return 2
    return 0


async def _until_input_ends(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 64):
            loop.remove_reader(sys.stdin)
            stop.set()

    loop.add_reader(sys.stdin, look)
    await run_service(settings, stop, lambda addresses: print(*addresses, flush=True))
