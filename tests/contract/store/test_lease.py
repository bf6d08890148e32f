"""Owning a partition: one owner, a new epoch each time, handed over or found free; every reply of the scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.entries import START, Position
from indexer.store.lease import Acquired, Held, Standing, acquire, look, release, renew
from indexer.store.outcomes import Done, Fenced, WrongType
from tests.support.owning import TIMES, acquired, with_client
from tests.support.redis_servers import dump, wait_for

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


def test_a_partition_handed_over_is_kept_for_its_heir(store: Store, keys: PartitionKeys) -> None:
    """Nobody owns it; the heir may take it as if it were free, everybody else is told for whom it is kept."""

    async def body(client: Client) -> None:
        first = await acquired(client, keys)
        assert Done() == await release(client, keys, first.token, to="b", reserve_ms=30_000)

        for replica in ("a", "c", "bb"):
            held = await acquire(client, keys, replica=replica, nonce="n2", held=first.token, **TIMES)
            assert isinstance(held, Held)
            assert b"to:b" == held.holder
            assert 0 < held.left_ms <= 30_000
        assert Fenced(b"to:b") == await renew(client, keys, first.token, 60_000)
        assert Fenced(b"to:b") == await release(client, keys, first.token)
        heir = await acquire(client, keys, replica="b", nonce="n3", **TIMES)

        assert isinstance(heir, Acquired)
        assert heir.token == store.look.get(keys.owner)
        assert (first.position, True) == (heir.after, heir.position.epoch > first.position.epoch)
        assert store.look.pttl(keys.owner) > 30_000  # its lease, and not what was left of the time it was kept for

    with_client(store, body)


def test_a_handover_sent_again_is_the_same_handover(store: Store, keys: PartitionKeys) -> None:
    """While it is kept; once the heir has it, the owner before it is fenced off like any other."""

    async def body(client: Client) -> None:
        first = await acquired(client, keys)
        assert Done() == await release(client, keys, first.token, to="b")
        before = dump(store, keys)

        assert Done(again=True) == await release(client, keys, first.token, to="b")
        assert Fenced(b"to:b") == await release(client, keys, first.token, to="c")
        assert before == dump(store, keys)

        heir = await acquire(client, keys, replica="b", nonce="n2", **TIMES)
        assert isinstance(heir, Acquired)
        assert Fenced(heir.token) == await release(client, keys, first.token, to="b")

    with_client(store, body)


def test_only_its_owner_hands_a_partition_over(store: Store, keys: PartitionKeys) -> None:
    """A token that does not stand keeps nothing for anybody."""

    async def body(client: Client) -> None:
        assert Fenced(b"") == await release(client, keys, b"1:a:n1", to="b")
        owned = await acquired(client, keys)

        assert Fenced(owned.token) == await release(client, keys, owned.token + b"x", to="b")
        assert owned.token == store.look.get(keys.owner)

    with_client(store, body)


def test_what_is_kept_and_not_taken_is_free_again(store: Store, keys: PartitionKeys) -> None:
    """The heir died meanwhile."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        assert Done() == await release(client, keys, owned.token, to="b", reserve_ms=1)
        wait_for(lambda: not store.look.exists(keys.owner), "the end of the time it was kept for")

        assert Fenced(b"") == await renew(client, keys, owned.token, 60_000)
        await acquired(client, keys, nonce="n2")

    with_client(store, body)


def test_a_look_tells_how_a_partition_stands(store: Store, keys: PartitionKeys) -> None:
    """Free, owned, kept, free again; who had it last is known throughout. Looking changes nothing."""

    async def body(client: Client) -> None:
        assert Standing(b"", 0, "", b"") == await look(client, keys)
        assert {} == dump(store, keys)

        owned = await acquired(client, keys)
        standing = await look(client, keys)
        assert isinstance(standing, Standing)
        assert (owned.token, "", owned.token) == (standing.holder, standing.reserved_for, standing.last)
        assert 0 < standing.left_ms <= TIMES["lease_ms"]

        await release(client, keys, owned.token, to="b", reserve_ms=30_000)
        standing = await look(client, keys)
        assert isinstance(standing, Standing)
        assert (b"to:b", "b", owned.token) == (standing.holder, standing.reserved_for, standing.last)
        assert 0 < standing.left_ms <= 30_000

        store.look.unlink(keys.owner)
        assert Standing(b"", 0, "", owned.token) == await look(client, keys)

    with_client(store, body)


def test_an_owner_key_without_a_time_to_live_is_no_lease(store: Store, keys: PartitionKeys) -> None:
    """Somebody took its time to live away: nothing is left of it, and whoever holds the token may renew it."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        store.look.persist(keys.owner)

        assert Standing(owned.token, 0, "", owned.token) == await look(client, keys)
        assert Done() == await renew(client, keys, owned.token, 60_000)

    with_client(store, body)


@pytest.mark.parametrize("name", ["epoch", "owner"])
def test_a_look_tells_of_another_type(store: Store, keys: PartitionKeys, name: str) -> None:
    """Instead of taking it for a free partition."""
    key: bytes = getattr(keys, name)
    store.look.rpush(key, "x")
    store.look.pexpire(key, 60_000)

    async def body(client: Client) -> None:
        assert WrongType(key, "list") == await look(client, keys)

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
        assert WrongType(keys.owner, "list") == await release(client, keys, b"t", to="b")

    with_client(store, body)


@pytest.mark.parametrize(("replica", "nonce"), [("a:b", "n"), ("a", "n:m"), ("a", "")])
def test_names_cannot_forge_a_token(store: Store, keys: PartitionKeys, replica: str, nonce: str) -> None:
    """A colon would let one replica's attempt end like another's."""

    async def body(client: Client) -> None:
        with pytest.raises(ValueError, match="colon"):
            await acquire(client, keys, replica=replica, nonce=nonce, **TIMES)

    with_client(store, body)


def test_an_heir_cannot_look_like_a_token(store: Store, keys: PartitionKeys) -> None:
    """A colon would let what is kept end like somebody's attempt."""

    async def body(client: Client) -> None:
        owned = await acquired(client, keys)
        with pytest.raises(ValueError, match="colon"):
            await release(client, keys, owned.token, to="b:n2")

    with_client(store, body)
