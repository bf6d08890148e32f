"""What replicas must agree on: the first says, and who differs is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.deployment import agree
from indexer.store.failures import StoreFailure
from indexer.store.layout import deployment_key
from tests.support.owning import with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from tests.support.redis_servers import Store

FACTS = {"scheme": "kvi1", "partitions": "16"}


def test_the_first_replica_says_and_others_agree(store: Store) -> None:
    """As often as it may start; another namespace is another deployment."""

    async def body(client: Client) -> None:
        for _ in range(2):
            await agree(client, "kvi", FACTS)
        await agree(client, "other", {**FACTS, "partitions": "8"})
        assert {b"scheme": b"kvi1", b"partitions": b"16"} == store.look.hgetall(deployment_key("kvi"))

    with_client(store, body)


@pytest.mark.parametrize("name", FACTS)
def test_a_replica_that_differs_does_not_start(store: Store, name: str) -> None:
    """Told what stands and what it has; nothing is changed by it."""

    async def body(client: Client) -> None:
        await agree(client, "kvi", FACTS)
        before = store.look.hgetall(deployment_key("kvi"))
        with pytest.raises(StoreFailure, match=f"{name} is {FACTS[name]} .* and 9 here") as failed:
            await agree(client, "kvi", {**FACTS, name: "9"})
        assert "unfit" == failed.value.kind
        assert before == store.look.hgetall(deployment_key("kvi"))

    with_client(store, body)


def test_a_key_of_another_type_is_told(store: Store) -> None:
    """Somebody else's."""
    store.look.rpush(deployment_key("kvi"), "x")

    async def body(client: Client) -> None:
        with pytest.raises(StoreFailure, match="WRONGTYPE"):
            await agree(client, "kvi", FACTS)

    with_client(store, body)
