"""Generations and copies: begun empty, laid and flipped, kept alive; every reply of the scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.entries import Turned, decode_entry
from indexer.store.layout import source_name
from indexer.store.outcomes import Began, Done, Fenced, Laid, Lost, OtherGeneration, Whereabouts, WrongType
from tests.support.copies import COPY, fields, flip, lay, map_of, turned
from tests.support.owning import POD, acquired, begun, owning, run_of, stored, told, with_client
from tests.support.redis_servers import dump

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store


def test_a_generation_begins_empty(store: Store, keys: PartitionKeys) -> None:
    """Where the map of before is, is told; nothing of it is touched."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        assert Began(None) == await turned(journal, 7, 4)
        where = Whereabouts(7, 0, 4)
        run = run_of(where, None, 0, stored(range(20)))
        await journal.apply([run], told(run))

        assert Began(where) == await turned(journal, 8)

        state = store.look.hgetall(keys.source(POD))
        assert (b"8", b"0", b"1") == (state[b"generation"], state[b"pairs"], state[b"complete"])
        assert b"cursor" not in state
        assert Turned(source_name(POD), 8) == decode_entry(store.look.xrange(keys.log)[-1][1][b"e"])
        assert fields(range(20)) == map_of(store, keys, where)
        await journal.unlink(POD, where)
        assert {} == map_of(store, keys, where)

    with_client(store, body)


def test_a_generation_never_goes_back(store: Store, keys: PartitionKeys) -> None:
    """Nor is one begun twice, unless by the same call sent again."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        at = journal.position
        await turned(journal, 8)
        after = dump(store, keys)
        assert OtherGeneration(8, 0) == await turned(journal, 7)
        assert OtherGeneration(8, 0) == await turned(journal, 8)

        journal.position = at
        assert Began(None, again=True) == await turned(journal, 8)
        assert after == dump(store, keys)

    with_client(store, body)


def test_a_generation_that_a_command_raised_is_begun_by_the_owner(store: Store, keys: PartitionKeys) -> None:
    """The command leaves the number alone: nothing is held of it yet."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        store.look.hset(keys.source(POD), "generation", 8)

        assert Began(None) == await turned(journal, 8)
        assert OtherGeneration(8, 0) == await turned(journal, 8)

    with_client(store, body)


def test_a_new_copy_takes_the_place_of_the_old(store: Store, keys: PartitionKeys) -> None:
    """Nobody sees it before the flip; then the source is at its cursor, and the old one may go."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        old = await begun(journal)
        state = store.look.hgetall(keys.source(POD))

        assert 3000 == sum(part.fields for part in await lay(journal, keys, range(3000)) if isinstance(part, Laid))
        assert 3000 == sum(part.fields for part in await lay(journal, keys, range(3000)) if isinstance(part, Laid))
        assert state == store.look.hgetall(keys.source(POD))
        store.look.pexpire(keys.source(POD), 60_000)
        assert Began(old) == await flip(journal, 3000)

        assert store.look.pttl(keys.source(POD)) > 60_000
        assert fields(range(3000)) == map_of(store, keys, COPY)
        state = store.look.hgetall(keys.source(POD))
        assert (b"1", b"2", b"3000", b"9", b"1") == tuple(
            state[name] for name in (b"copy", b"segments", b"pairs", b"cursor", b"complete")
        )
        run = run_of(COPY, 9, 10, stored(range(3000, 3001)))
        assert Done() == await journal.apply([run], told(run))
        assert Lost("source", nth=0) == (await lay(journal, keys, range(1)))[0]  # in use now

    with_client(store, body)


def test_a_copy_ends_an_earlier_generation(store: Store, keys: PartitionKeys) -> None:
    """Which came back with a restored store; a later one stands, since a command began it."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        old = await begun(journal, generation=6)
        await lay(journal, keys, range(10))

        assert Began(old) == await flip(journal, 10)
        assert b"7" == store.look.hget(keys.source(POD), "generation")
        other = Whereabouts(6, 2, 1)
        assert [OtherGeneration(7, 0)] == await lay(journal, keys, range(1), other)
        assert OtherGeneration(7, 0) == await flip(journal, 0, other)

    with_client(store, body)


def test_a_copy_may_stand_before_the_first_batch(store: Store, keys: PartitionKeys) -> None:
    """Also where the copy of before was at one."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        run = run_of(await begun(journal), None, 0, stored(range(3)))
        await journal.apply([run], told(run))

        assert isinstance(await flip(journal, 0, cursor=None), Began)
        assert b"cursor" not in store.look.hgetall(keys.source(POD))

    with_client(store, body)


def test_a_copy_is_laid_also_where_the_state_was_lost(store: Store, keys: PartitionKeys) -> None:
    """After the store was emptied: state and map are made anew."""

    async def body(client: Client) -> None:
        await owning(client, keys)
        store.empty()
        journal = await owning(client, keys, nonce="n2")
        await lay(journal, keys, range(10))

        assert Began(None) == await flip(journal, 10, cursor=None)
        assert b"cursor" not in store.look.hgetall(keys.source(POD))
        run = run_of(COPY, None, 0, stored(range(10, 11)))
        assert Done() == await journal.apply([run], told(run))

    with_client(store, body)


def test_a_copy_that_is_not_whole_is_not_flipped(store: Store, keys: PartitionKeys) -> None:
    """A segment was lost on the way, as by a server that was killed."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        await lay(journal, keys, range(100))
        key = keys.segment(POD, 7, 1, 0)
        left = 100 - store.look.hlen(key)
        store.look.unlink(key)
        before = dump(store, keys)

        assert Lost("copy", b"%d" % left) == await flip(journal, 100)
        assert before == dump(store, keys)

    with_client(store, body)


def test_a_flip_sent_again_is_told(store: Store, keys: PartitionKeys) -> None:
    """Once in effect."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        await lay(journal, keys, range(10))
        at = journal.position
        await flip(journal, 10)
        after = dump(store, keys)

        journal.position = at
        assert Began(None, again=True) == await flip(journal, 10)
        assert after == dump(store, keys)

    with_client(store, body)


def test_all_of_it_is_fenced(store: Store, keys: PartitionKeys) -> None:
    """A former owner changes nothing."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        anew = await acquired(client, keys, nonce="n2", held=store.look.get(keys.owner))
        before = dump(store, keys)
        refused = Fenced(anew.token)

        assert refused == await turned(journal, 8)
        assert [refused] == await lay(journal, keys, range(1))
        assert refused == await flip(journal, 0)
        assert refused == await journal.keep(POD, Whereabouts(7, 0, 4))
        assert before == dump(store, keys)

    with_client(store, body)


def test_all_of_it_sees_a_command_and_a_lost_journal(store: Store, keys: PartitionKeys) -> None:
    """A generation raised meanwhile is told; so is a journal that ends elsewhere."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        store.look.hset(keys.source(POD), "generation", 8)
        assert [OtherGeneration(8, 0)] == await lay(journal, keys, range(1))
        assert OtherGeneration(8, 0) == await flip(journal, 0)

        store.look.set(keys.head, "5-5", keepttl=True)
        assert Lost("log", b"5-5") == await turned(journal, 9)
        assert Lost("log", b"5-5") == await flip(journal, 0)

    with_client(store, body)


@pytest.mark.parametrize("name", ["owner", "head", "log", "state", "segment"])
def test_a_key_of_another_type_is_told(store: Store, keys: PartitionKeys, name: str) -> None:
    """By every script that would use it."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        where = Whereabouts(7, 1, 1)
        named = {"state": keys.source(POD), "segment": keys.segment(POD, 7, 1, 0)}
        key: bytes = named.get(name) or getattr(keys, name)
        store.look.unlink(key)
        store.look.rpush(key, "x")
        store.look.pexpire(key, 60_000)
        before = dump(store, keys)
        wrong = WrongType(key, "list")

        assert wrong == await flip(journal, 0, where)
        if name != "segment":
            assert wrong == await turned(journal, 8)
        if name in {"owner", "state", "segment"}:
            assert wrong == await journal.keep(POD, where)
            assert [wrong] == await lay(journal, keys, range(1), where)
        assert before == dump(store, keys)

    with_client(store, body)
