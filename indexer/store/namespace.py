"""[I/O] All keys of one namespace: looked over, and taken away. For operators; the service never scans a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.store.layout import deployment_key, is_of, is_owner, keys_pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from indexer.store.client import Client

SLICE: Final = 500
"""Keys that one step of a scan looks at, about. A server answers nobody else meanwhile: well under a millisecond."""


class Overview(NamedTuple):
    """How many keys there are, in whatever version of the layout, and the fence tokens of leases that run."""

    keys: int
    leases: list[bytes]


async def look_over(client: Client, namespace: str) -> Overview:
    """Count, and find who owns something. Raises StoreFailure."""
    found: set[bytes] = set()
    leases: list[bytes] = []
    async for keys in _scan(client, namespace):
        for key in filter(is_owner, set(keys) - found):
            token = await client.string(key) if await client.type_of(key) == "string" else None
            leases += [] if token is None else [token]
        found.update(keys)
    return Overview(len(found), leases)


async def take_away(client: Client, namespace: str, on_taken: Callable[[int], None]) -> None:
    """Every key that is there from the beginning to the end; `on_taken` is told how many went since it was told last.

    What replicas must agree on goes last: until all else is gone, who would lay the store out in another way does not
    start. Cut short, it can be done again. Raises StoreFailure.
    """
    agreed = deployment_key(namespace)
    async for keys in _scan(client, namespace):
        going = [key for key in keys if key != agreed]
        on_taken(await client.unlink_each(going))
    on_taken(await client.unlink_each([agreed]))


async def _scan(client: Client, namespace: str) -> AsyncIterator[list[bytes]]:
    """In slices; a key may come twice."""
    pattern = keys_pattern(namespace)
    for server in await client.servers():
        cursor = -1
        while cursor:
            cursor, keys = await client.scan_keys(server, max(cursor, 0), pattern, SLICE)
            yield [key for key in keys if is_of(key, namespace)]
