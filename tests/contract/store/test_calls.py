"""Calls to a journal of which it is not known for a while whether they were done."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from indexer.clock import SystemClock
from indexer.partitions.calls import Calls
from indexer.store.client import ClientOptions
from indexer.store.entries import Ticked
from indexer.store.outcomes import done
from tests.support.owning import client_of, owning
from tests.support.proxy import Proxy
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from pathlib import Path

    from indexer.store.layout import PartitionKeys


def test_a_call_that_the_next_epoch_told_of_is_not_told_of_again(tmp_path: Path, keys: PartitionKeys) -> None:
    """Whoever was asking for it finds that it is known."""
    told: list[str] = []

    async def ask(proxy: Proxy) -> None:
        client = client_of(proxy.url, ClientOptions(timeout_s=20.0))
        journal = await owning(client, keys)
        calls = Calls(cast("Any", SimpleNamespace(clock=SystemClock(), rest=asyncio.sleep)), journal)
        proxy.set("stall_replies")
        async with asyncio.TaskGroup() as tasks:
            making = tasks.create_task(
                calls.make(
                    lambda: journal.tick(Ticked(0, [])), done, lambda: told.append("done"), lambda: told.append("not")
                )
            )
            await proxy.next_request()
            making.cancel()
            await asyncio.wait([making])
            assert calls.open is not None
            tasks.create_task(calls.settle_open())
            await proxy.next_request()
            calls.open = None  # as `Writing.close_call` does
            proxy.set("pass")
        await client.close()

    async def body() -> None:
        with own_server(tmp_path) as server:
            async with asyncio.timeout(60), Proxy(server.port).running() as proxy:
                await ask(proxy)

    asyncio.run(body())
    assert not told
