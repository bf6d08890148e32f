"""All keys of a namespace are found and taken away, and none of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from indexer.store.layout import PartitionKeys, deployment_key, tags
from indexer.store.namespace import look_over, take_away
from tests.support.owning import acquired, with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from tests.support.redis_servers import Store

KEYS = 2_345
TTL_MS = 600_000


def fill(store: Store, namespace: str, keys: int) -> None:
    """Keys as replicas lay them, over all partitions."""
    partitions = [PartitionKeys(namespace, tag) for tag in tags(16)]
    for number in range(keys):
        store.look.set(partitions[number % 16].log + b"%d" % number, b"x", px=TTL_MS)


def test_all_of_a_namespace_goes_and_nothing_else(store: Store) -> None:
    """Also in another layout; names that begin or end alike, and keys of strangers, stay."""
    fill(store, "kvi", KEYS)
    store.look.hset(deployment_key("kvi"), "partitions", 16)
    store.look.set(b"kvi:17:{3.1}:something:else", b"x", px=TTL_MS)
    others = [b"kvi2:1:a", b"my-kvi:1:a", b"kvi.a:1:a", b"kvi:1", b"kvi:x1:a", b"kvi:1x:a", b"kvi", b"a:kvi:1:a"]
    for other in others:
        store.look.set(other, b"x", px=TTL_MS)
    told: list[int] = []

    async def body(client: Client) -> None:
        assert (KEYS + 2, []) == await look_over(client, "kvi")
        await take_away(client, "kvi", told.append)
        assert (0, []) == await look_over(client, "kvi")

    with_client(store, body)

    assert sorted(others) == sorted(store.all_keys())
    assert KEYS + 2 == sum(told)
    assert max(told) < KEYS  # in slices


def test_a_name_with_letters_that_patterns_know_is_only_itself(store: Store) -> None:
    """A dot is a dot."""
    for key in (b"k.i:1:a", b"kvi:1:a", b"k-i:1:a"):
        store.look.set(key, b"x", px=TTL_MS)

    async def body(client: Client) -> None:
        await take_away(client, "k.i", lambda _: None)

    with_client(store, body)

    assert [b"k-i:1:a", b"kvi:1:a"] == sorted(store.all_keys())


def test_who_owns_something_is_found(store: Store, keys: PartitionKeys) -> None:
    """By the leases that run; what is none does not matter."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        other = PartitionKeys("kvi", tags(16)[4]).owner
        store.look.rpush(other, "x")
        store.look.pexpire(other, TTL_MS)
        assert [owned.token] == (await look_over(client, "kvi")).leases

    with_client(store, body)


def test_what_replicas_agree_on_goes_last(store: Store) -> None:
    """Cut short, a replica that would lay the store out in another way still does not start."""
    fill(store, "kvi", KEYS)
    store.look.hset(deployment_key("kvi"), "partitions", 16)

    async def body(client: Client) -> None:
        first = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(take_away(client, "kvi", lambda _: first.set()))
            await first.wait()
            taking.cancel()
        assert 1 < (await look_over(client, "kvi")).keys < KEYS
        assert {b"partitions": b"16"} == store.look.hgetall(deployment_key("kvi"))
        await take_away(client, "kvi", lambda _: None)

    with_client(store, body)

    assert [] == store.all_keys()


@pytest.mark.parametrize("namespace", ["", "a:b", "a*", "a" * 65])
def test_what_is_no_namespace_is_refused(store: Store, namespace: str) -> None:
    """Before anything is asked."""

    async def body(client: Client) -> None:
        with pytest.raises(ValueError, match="namespace"):
            await take_away(client, namespace, lambda _: None)

    with_client(store, body)
