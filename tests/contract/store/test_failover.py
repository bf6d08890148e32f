"""Another server takes over: in a cluster of three and three, and where sentinels watch.

What was replicated is there and goes on without a hole; what was not is noticed by the owner's next write.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from indexer.store.breaker import BreakerOptions
from indexer.store.client import ClientOptions
from indexer.store.entries import Position
from indexer.store.failures import StoreFailure
from indexer.store.following import Follower, Next
from indexer.store.outcomes import Done, Lost, done
from tests.support.owning import begun, client_of, owning, run_of, stored, told
from tests.support.reading_on import read_on
from tests.support.redis_servers import binaries, cut_off, start_store, wait_for_copy
from tests.support.sentinels import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from indexer.store.client import Client
    from indexer.store.journal import Journal, SourceRun
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Refusal
    from tests.support.redis_servers import Kind, Server, Store

IMPATIENT = ClientOptions(timeout_s=1.0, retries=0, breaker=BreakerOptions(rest_s=0.05, rest_max_s=0.1))


async def written(journal: Journal, run: SourceRun) -> Done | Refusal:
    """The reply of a write that is sent until there is one. The test's own time limit ends it."""
    while True:
        with contextlib.suppress(StoreFailure):
            if journal.is_settled:
                return await journal.apply([run], told(run))
            return await journal.settle(done)
        await asyncio.sleep(0.02)


async def read_all(client: Client, keys: PartitionKeys, position: Position, count: int) -> list[int]:
    """Numbers of the entries that follow a position, up to so many, none of them behind a hole."""
    follower, numbers = Follower(position), list[int]()
    while len(numbers) < count:
        steps = (await read_on(client, {keys.log: follower}, count=100, block_s=1)).get(keys.log, [])
        assert all(isinstance(step, Next) for step in steps), steps
        numbers += [step.position.number for step in steps if isinstance(step, Next)]
    return numbers


def test_a_primary_of_a_cluster_is_killed(tmp_path: Path, program_kind: Kind, keys: PartitionKeys) -> None:
    """Its replica takes over: the owner goes on writing where it was, other partitions see nothing of it."""

    async def body(cluster: Store) -> None:
        client = client_of(cluster.url, IMPATIENT)
        journal = await owning(client, keys)
        where, start = await begun(journal), journal.position
        assert Done() == await written(journal, first := run_of(where, None, 0, stored(range(16))))
        primary, replica = cluster.pair(keys.owner)
        wait_for_copy(primary, replica)
        primary.stop()
        for number in range(1, 4):
            assert Done() == await written(journal, run_of(where, number - 1, number, stored(range(16))))
        assert [start.number + n for n in range(1, 5)] == await read_all(client, keys, start, 4)
        with replica.client() as look:
            assert [b"3", b"16"] == look.hmget(keys.source(first.source), "cursor", "pairs")
        await client.close()

    on_cluster(tmp_path, program_kind, body)


def test_a_cluster_loses_what_it_acknowledged(tmp_path: Path, program_kind: Kind, keys: PartitionKeys) -> None:
    """Killed between write and replication: the next write to the one that took over is refused, with the reason."""

    async def body(cluster: Store) -> None:
        client = client_of(cluster.url, IMPATIENT)
        journal = await owning(client, keys)
        where = await begun(journal)
        primary, replica = cluster.pair(keys.owner)
        wait_for_copy(primary, replica)
        kept = journal.position
        cut_off(primary, replica)
        assert Done() == await written(journal, run_of(where, None, 0, stored(range(16))))
        primary.stop()
        replica.thaw()
        reply = await written(journal, run_of(where, 0, 1, stored(range(16, 20))))
        assert Lost("log", str(kept).encode()) == reply
        await client.close()

    on_cluster(tmp_path, program_kind, body)


def on_cluster(folder: Path, kind: Kind, body: Callable[[Store], Coroutine[None, None, None]]) -> None:
    """Run a test's body on a cluster of its own, which it may wound."""
    cluster = start_store("cluster", folder, binaries()[kind], replicas=True)
    try:
        asyncio.run(body(cluster))
    finally:
        cluster.close()


def test_sentinels_lead_to_the_new_primary(tmp_path: Path, program_kind: Kind, keys: PartitionKeys) -> None:
    """The primary is killed: the same client writes to the one that took over, and goes on where it was."""

    async def body(primary: Server, replica: Server, sentinel: Server) -> None:
        client = client_of(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", IMPATIENT)
        journal = await owning(client, keys)
        where, start = await begun(journal), journal.position
        wait_for_copy(primary, replica)
        primary.stop()
        run = run_of(where, None, 0, stored(range(16)))
        assert Done() == await written(journal, run)
        assert [start.number + 1] == await read_all(client, keys, start, 1)
        await client.close()
        with replica.client() as look:
            assert b"16" == look.hget(keys.source(run.source), "pairs")

    with watched(tmp_path, program_kind) as servers:
        asyncio.run(body(*servers))


def test_sentinels_lead_to_one_that_lacks_the_last_writes(
    tmp_path: Path, program_kind: Kind, keys: PartitionKeys
) -> None:
    """Acknowledged and not replicated: refused at the next write, as in a cluster."""

    async def body(primary: Server, replica: Server, sentinel: Server) -> None:
        client = client_of(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", IMPATIENT)
        journal = await owning(client, keys)
        where = await begun(journal)
        wait_for_copy(primary, replica)
        kept = journal.position
        cut_off(primary, replica)
        assert Done() == await written(journal, run_of(where, None, 0, stored(range(16))))
        primary.stop()
        replica.thaw()
        reply = await written(journal, run_of(where, 0, 1, stored(range(16, 20))))
        assert Lost("log", str(kept).encode()) == reply
        await client.close()

    with watched(tmp_path, program_kind) as servers:
        asyncio.run(body(*servers))
