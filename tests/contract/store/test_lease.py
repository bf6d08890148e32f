"""Owning a partition: one owner, a new epoch each time, every reply of the three scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.entries import START, Position
from indexer.store.lease import Acquired, Held, acquire, release, renew
from indexer.store.outcomes import Done, Fenced, WrongType
from tests.support.owning import TIMES, acquired, with_client
from tests.support.redis_servers import dump

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store


def test_the_first_owner_continues_nothing(store: Store, keys: PartitionKeys) -> None:
    """Its token names epoch, replica and nonce; the journal begins with the entry that says what it continues."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)

        assert b"%d:a:n1" % owned.position.epoch == owned.token == store.look.get(keys.owner)
        assert (Position(owned.position.epoch, 1), START) == (owned.position, owned.after)
        assert [(str(owned.position).encode(), {b"a": b"0-0"})] == store.look.xrange(keys.log)
        assert str(owned.position).encode() == store.look.get(keys.head)

    with_client(store, body)


def test_one_owner_at_a_time(store: Store, keys: PartitionKeys) -> None:
    """Another replica is told who it is and for how long, and changes nothing."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        before = dump(store, keys)

        held = await acquire(client, keys, replica="b", nonce="n2", **TIMES)

        assert isinstance(held, Held)
        assert owned.token == held.holder
        assert 0 < held.left_ms <= TIMES["lease_ms"]
        assert before == dump(store, keys)

    with_client(store, body)


def test_an_attempt_sent_again_is_the_same_attempt(store: Store, keys: PartitionKeys) -> None:
    """The reply was lost, the same nonce comes again: same token, no second epoch, no second entry."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        before = dump(store, keys)

        again = await acquired(client, keys)

        assert (owned.token, owned.position) == (again.token, again.position)
        assert before == dump(store, keys)

    with_client(store, body)


def test_an_owner_may_begin_a_new_epoch(store: Store, keys: PartitionKeys) -> None:
    """After a loss in the store: a higher epoch, whose first entry continues what the journal still has."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)

        anew = await acquired(client, keys, nonce="n2", held=owned.token)

        assert owned.position.epoch < anew.position.epoch
        assert owned.position == anew.after
        assert Fenced(anew.token) == await renew(client, keys, owned.token, 60_000)

    with_client(store, body)


def test_a_released_partition_goes_to_the_next(store: Store, keys: PartitionKeys) -> None:
    """With a higher epoch; the one before is fenced off. Releasing again is told, and harmless."""

    async def body(client: Client) -> None:
        first = await acquired(client, keys)
        assert Done() == await release(client, keys, first.token)
        assert Fenced(b"") == await release(client, keys, first.token)
        assert Fenced(b"") == await renew(client, keys, first.token, 60_000)

        second = await acquired(client, keys, nonce="n2")

        assert second.position.epoch > first.position.epoch
        assert second.after == first.position
        assert Fenced(second.token) == await release(client, keys, first.token)
        assert second.token == store.look.get(keys.owner)

    with_client(store, body)


def test_renewing_lengthens_the_lease(store: Store, keys: PartitionKeys) -> None:
    """By the owner's token only."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        assert Fenced(owned.token) == await renew(client, keys, owned.token + b"x", 900_000)
        assert store.look.pttl(keys.owner) <= TIMES["lease_ms"]

        assert Done() == await renew(client, keys, owned.token, 900_000)

        assert store.look.pttl(keys.owner) > TIMES["lease_ms"]

    with_client(store, body)


def test_an_epoch_grows_over_an_emptied_store(store: Store, keys: PartitionKeys) -> None:
    """By what the replica knows, and by the server's clock."""

    async def body(client: Client) -> None:
        first = await acquired(client, keys)
        store.empty()
        second = await acquired(client, keys, nonce="n2")
        store.empty()
        third = await acquire(client, keys, replica="a", nonce="n3", known_epoch=2**52, **TIMES)

        assert isinstance(third, Acquired)
        assert first.position.epoch < second.position.epoch
        assert 2**52 + 1 == third.position.epoch

    with_client(store, body)


def test_an_epoch_is_remembered_without_a_journal(store: Store, keys: PartitionKeys) -> None:
    """Nobody owned the partition for so long that everything else expired; clocks may be wrong."""

    async def body(client: Client) -> None:
        first = await acquire(client, keys, replica="a", nonce="n1", known_epoch=2**52, **TIMES)
        assert isinstance(first, Acquired)
        store.look.unlink(keys.owner, keys.head, keys.log)

        second = await acquired(client, keys, nonce="n2")

        assert (first.position.epoch + 1, START) == (second.position.epoch, second.after)

    with_client(store, body)


@pytest.mark.parametrize("name", ["epoch", "owner", "head", "log"])
def test_a_key_of_another_type_is_told(store: Store, keys: PartitionKeys, name: str) -> None:
    """Acquiring names it and writes nothing."""
    key: bytes = getattr(keys, name)
    store.look.rpush(key, "x")
    store.look.pexpire(key, 60_000)

    async def body(client: Client) -> None:
        before = dump(store, keys)

        assert WrongType(key, "list") == await acquire(client, keys, replica="a", nonce="n", **TIMES)
        assert before == dump(store, keys)

    with_client(store, body)


def test_renewing_and_releasing_look_at_the_type(store: Store, keys: PartitionKeys) -> None:
    """The same for the two other scripts."""
    store.look.rpush(keys.owner, "x")
    store.look.pexpire(keys.owner, 60_000)

    async def body(client: Client) -> None:
        assert WrongType(keys.owner, "list") == await renew(client, keys, b"t", 60_000)
        assert WrongType(keys.owner, "list") == await release(client, keys, b"t")

    with_client(store, body)


@pytest.mark.parametrize(("replica", "nonce"), [("a:b", "n"), ("a", "n:m"), ("a", "")])
def test_names_cannot_forge_a_token(store: Store, keys: PartitionKeys, replica: str, nonce: str) -> None:
    """A colon would let one replica's attempt end like another's."""

    async def body(client: Client) -> None:
        with pytest.raises(ValueError, match="colon"):
            await acquire(client, keys, replica=replica, nonce=nonce, **TIMES)

    with_client(store, body)
