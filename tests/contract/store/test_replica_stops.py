"""A stop that comes at a bad moment ends nevertheless."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.support.replicas import DEADLINE_S, SHORT, Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

TIMES = 4
"""The moment is met in two of three; in none, once in a hundred runs."""


def test_a_stop_right_after_a_pause_that_cost_all_leases(store: Store) -> None:
    """What follows from the pause and the stop come together: epochs end while their tasks are cancelled."""

    async def body() -> None:
        for _ in range(TIMES):
            replica = await Replica(store.url, pods=()).start()
            time.sleep(1.1 * SHORT["redis.lease_s"])  # noqa: ASYNC251  a process that is paused
            async with asyncio.timeout(DEADLINE_S):
                await replica.stop()

    run(body)
