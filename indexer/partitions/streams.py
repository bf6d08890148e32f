"""[I/O] What came into the streams of several partitions: waited for together, in a cluster looked for now and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.store.failures import WRONG_TYPE, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.store.client import Client, StreamEntry

BLOCK_S: Final = 0.5
POLL_S: Final = 0.05
"""In a cluster, which has no common wait."""


async def next_entries(
    client: Client, after: Mapping[bytes, bytes], count: int
) -> Mapping[bytes, list[StreamEntry] | None]:
    """Entries behind an id of each stream; None where something else lies at its key. Raises StoreFailure."""
    try:
        if not client.is_cluster:
            return await client.await_entries(after, count, BLOCK_S)
        await asyncio.sleep(POLL_S)
        return await client.entries_of_each(after, count)
    except StoreFailure as failure:
        if failure.kind != "refused":
            raise
    await asyncio.sleep(POLL_S)
    return {key: await entries_of(client, key, position, count) for key, position in after.items()}


async def entries_of(client: Client, key: bytes, after: bytes, count: int) -> list[StreamEntry] | None:
    """The same of one, at once: what lies at the key of one partition must not cost the others theirs."""
    try:
        return await client.entries_after(key, after, count)
    except StoreFailure as failure:
        if failure.detail != WRONG_TYPE:
            raise
        return None
