"""A mirror shows what the owner of a partition wrote: loaded, then followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import SourceId
from tests.support.following import following
from tests.support.hand_owner import HandOwner
from tests.support.owning import POD, with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)


def test_what_is_there_is_loaded_and_what_comes_is_followed(store: Store, keys: PartitionKeys) -> None:
    """Stores, removals, several tiers, several engine hashes for one content, of two sources."""

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        await owner.store(POD, range(3_000))
        await owner.store(POD, range(2_900, 3_200), lanes=3)
        await owner.remove(POD, range(100))
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.put(OTHER)
            await owner.store(OTHER, range(1_000, 1_500), lanes=2, aliases=2)
            await owner.store(POD, range(50), lanes=2)
            await owner.remove(OTHER, range(1_000, 1_003))
            await owner.remove(POD, range(40, 200))
            await owner.store(OTHER, range(1_200, 1_300), lanes=1)
            await follow.until_shows(owner)

    with_client(store, body)
