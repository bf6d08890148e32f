"""A client on a test's loop, and partitions that it owns."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

from indexer.clock import SystemClock
from indexer.model import SourceId, Tier
from indexer.store.address import parse
from indexer.store.budget import JournalBudget
from indexer.store.client import Client, ClientOptions
from indexer.store.entries import Changed, SourceChange, Turned, pack_presence
from indexer.store.failures import StoreFailure
from indexer.store.journal import Journal, SourceRun
from indexer.store.layout import source_name
from indexer.store.lease import Acquired, acquire
from indexer.store.outcomes import Began, Whereabouts
from indexer.store.segments import Change, Field, Placed, encode_field, encode_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

TIMES: Final = {"lease_ms": 60_000, "retain_ms": 600_000}
PATIENT: Final = ClientOptions(timeout_s=20.0)
"""For tests in which the store is well: a busy machine is not a fault."""
BUDGET: Final = 1 << 20
POD: Final = SourceId("pod-1", 0)


def client_of(url: str, options: ClientOptions = PATIENT) -> Client:
    """To be made inside the test's event loop, and closed there."""
    return Client(parse(url), options, SystemClock(), random.Random(5))


def with_client(store: Store, test: Callable[[Client], Awaitable[None]], options: ClientOptions = PATIENT) -> None:
    """Run a test's body on a loop of its own."""

    async def run() -> None:
        client = client_of(store.url, options)
        try:
            await test(client)
        finally:
            await client.close()

    asyncio.run(run())


async def acquired(client: Client, keys: PartitionKeys, nonce: str = "n1", held: bytes = b"") -> Acquired:
    """Take the partition; it must be free, or held under that token."""
    reply = await acquire(client, keys, replica="a", nonce=nonce, held=held, **TIMES)
    assert isinstance(reply, Acquired)
    return reply


async def owning(client: Client, keys: PartitionKeys, nonce: str = "n1", held: bytes = b"") -> Journal:
    """The writing end of a partition's journal, just acquired."""
    owned = await acquired(client, keys, nonce, held)
    budget = JournalBudget(BUDGET, 0)
    retain_ms = TIMES["retain_ms"]
    return Journal(client, keys, token=owned.token, position=owned.position, budget=budget, retain_ms=retain_ms)


async def begun(journal: Journal, source: SourceId = POD, *, generation: int = 7, segments: int = 4) -> Whereabouts:
    """A generation of a source, empty."""
    reply = await journal.turn(source, generation, segments, Turned(source_name(source), generation))
    assert isinstance(reply, Began)
    return Whereabouts(generation, 0, segments)


def stored(numbers: Iterable[int], token_offset: int = 1_000_000) -> list[Change]:
    """Engine hashes with one copy on the GPU; the token hash is the number plus the offset."""
    return [
        Change(encode_field(Field(n, 0)), encode_value((Placed(n + token_offset, ((Tier.GPU, 1),)),))) for n in numbers
    ]


def removed(numbers: Iterable[int]) -> list[Change]:
    """Engine hashes taken out."""
    return [Change(encode_field(Field(n, 0)), None) for n in numbers]


def run_of(
    where: Whereabouts, before: int | None, after: int | None, changes: list[Change], source: SourceId = POD
) -> SourceRun:
    """What a run of batches did."""
    return SourceRun(source=source, where=where, before=before, after=after, changes=changes, facts=b"facts")


def told(run: SourceRun, presence: list[tuple[int, int]] | None = None) -> Changed:
    """The journal entry that goes with a run."""
    hashes, lanes = pack_presence(presence or [])
    change = SourceChange(source_name(run.source), run.where.generation, run.after, run.facts, hashes, lanes)
    return Changed([change])


async def until_well(client: Client) -> None:
    """Until the store answers. The test's own time limit ends it."""
    while True:
        with contextlib.suppress(StoreFailure):
            await client.string(b"x")
            return
        await asyncio.sleep(0.01)
