"""Journals followed with the store's own pieces and nothing around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.following import Reload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from indexer.store.client import Client, StreamEntry
    from indexer.store.following import Follower, Step


async def read_on(
    client: Client, followers: Mapping[bytes, Follower], *, count: int, block_s: float
) -> dict[bytes, list[Step]]:
    """What followers of journals, by key, make of the next entries of each; of those with nothing new, nothing.

    On one server this waits up to `block_s` for the first entry. A cluster has no common wait: it is asked once, and
    the caller sleeps between. Raises StoreFailure.
    """
    after = {key: str(follower.position).encode() for key, follower in followers.items()}
    entries: Mapping[bytes, Sequence[StreamEntry]]
    if client.is_cluster:
        entries = await client.entries_of_each(after, count)
    else:
        entries = await client.await_entries(after, count, block_s)
    return {
        key: _steps(followers[key].observe(entry_id, fields) for entry_id, fields in found)
        for key, found in entries.items()
        if found
    }


def _steps(steps: Iterable[Step]) -> list[Step]:
    """Up to the first that asks for loading anew."""
    taken: list[Step] = []
    for step in steps:
        taken.append(step)
        if isinstance(step, Reload):
            break
    return taken
