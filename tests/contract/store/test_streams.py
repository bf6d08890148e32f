"""What came into the streams of several partitions is heard, whatever lies at the key of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.partitions.streams import entries_of, next_entries
from indexer.store.layout import PartitionKeys, tags
from tests.support.owning import with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from tests.support.redis_servers import Store


def test_something_else_at_one_key_costs_the_others_nothing(store: Store) -> None:
    """Of that one None comes; where all are streams, those in which something came."""
    ours, theirs, empty = (PartitionKeys("kvi", tag).control for tag in tags(16)[:3])
    entry_id = store.look.xadd(ours, {"v": "put"})
    entries = [(entry_id, {b"v": b"put"})]
    store.look.pexpire(ours, 60_000)

    async def body(client: Client) -> None:
        after = dict.fromkeys((ours, theirs, empty), b"0-0")
        found = await next_entries(client, after, 10)
        assert {ours: entries} == {key: each for key, each in found.items() if each != []}
        store.look.set(theirs, "x", px=60_000)
        assert {ours: entries, theirs: None, empty: []} == await next_entries(client, after, 10)
        assert entries == await entries_of(client, ours, b"0-0", 10)
        assert await entries_of(client, theirs, b"0-0", 10) is None

    with_client(store, body)
