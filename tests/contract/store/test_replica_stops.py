"""A stop that comes at a bad moment ends nevertheless."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from indexer.store.layout import PartitionKeys, tags
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


def test_a_stop_while_it_starts_leaves_no_lease(store: Store) -> None:
    """Whatever was on its way: a partition that was given without being heard of is given back."""

    async def body() -> None:
        keys = [PartitionKeys("kvi", tag).owner for tag in tags(16)]
        for nth in range(12):
            replica = Replica(store.url, pods=(), name=f"r{nth}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.004 * nth):
                    await replica.start()
            await replica.stop()
            left = {key: store.look.get(key) for key in keys}
            assert not [token for token in left.values() if token and not token.startswith(b"to:")], left

    run(body)
