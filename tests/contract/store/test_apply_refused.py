"""Runs of batches that are not written: each reply of the script that says why, and nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.model import SourceId
from indexer.store.entries import Ticked
from indexer.store.journal import SourceRun
from indexer.store.lease import release
from indexer.store.outcomes import Done, Fenced, Lost, OtherCursor, OtherGeneration, WrongType
from tests.support.owning import POD, acquired, begun, owning, run_of, stored, told, with_client
from tests.support.redis_servers import dump

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)


def test_who_lost_the_partition_writes_nothing(store: Store, keys: PartitionKeys) -> None:
    """Whether somebody else took it or nobody has it."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(3)))
        await release(client, keys, store.look.get(keys.owner))
        before = dump(store, keys)
        assert Fenced(b"") == await journal.apply([run], told(run))
        assert before == dump(store, keys)

        second = await acquired(client, keys, nonce="n2")
        before = dump(store, keys)
        assert Fenced(second.token) == await journal.apply([run], told(run))
        assert Fenced(second.token) == await journal.tick(Ticked(5, []))
        assert before == dump(store, keys)

    with_client(store, body)


def test_a_journal_that_ends_elsewhere_is_told(store: Store, keys: PartitionKeys) -> None:
    """The store went back in time, or lost the journal: the owner's next entry would leave a hole."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        first = str(journal.position).encode()
        run = run_of(where, None, 0, stored(range(3)))
        await journal.apply([run], told(run))
        store.look.set(keys.head, first, keepttl=True)
        following = run_of(where, 0, 1, stored(range(3, 6)))
        before = dump(store, keys)

        assert Lost("log", first) == await journal.apply([following], told(following))
        assert Lost("log", first) == await journal.tick(Ticked(5, []))
        assert before == dump(store, keys)

        store.look.unlink(keys.head)
        assert Lost("log", b"0-0") == await journal.tick(Ticked(5, []))

    with_client(store, body)


@pytest.mark.parametrize("how", ["no state", "not whole", "no count", "another copy"])
def test_a_source_that_is_not_whole_is_told(store: Store, keys: PartitionKeys, how: str) -> None:
    """Its map must be asserted anew before anything is added to it."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(3)))
        match how:
            case "no state":
                store.look.unlink(keys.source(POD))
            case "not whole":
                store.look.hdel(keys.source(POD), "complete")
            case "no count":
                store.look.hdel(keys.source(POD), "gone")
            case _:
                store.look.hset(keys.source(POD), "copy", 5)
        before = dump(store, keys)

        assert Lost("source", nth=0) == await journal.apply([run], told(run))
        assert before == dump(store, keys)

    with_client(store, body)


def test_another_generation_is_told(store: Store, keys: PartitionKeys) -> None:
    """A command raised it: what was on its way does not come back (P4)."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        store.look.hset(keys.source(POD), "generation", 8)
        run = run_of(where, None, 0, stored(range(3)))
        before = dump(store, keys)

        assert OtherGeneration(8, 0) == await journal.apply([run], told(run))
        assert before == dump(store, keys)

    with_client(store, body)


@pytest.mark.parametrize(("at", "before", "after"), [(None, 4, 5), (4, None, 5), (4, 5, 6), (4, 3, 4)])
def test_another_cursor_is_told(
    store: Store, keys: PartitionKeys, at: int | None, before: int | None, after: int
) -> None:
    """Neither a batch that is in nor one too far: also where the source has none yet."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        first = run_of(where, None, at, stored(range(3)))
        await journal.apply([first], told(first))
        run = run_of(where, before, after, stored(range(3, 6)))
        content = dump(store, keys)

        assert OtherCursor(at, 0) == await journal.apply([run], told(run))
        assert content == dump(store, keys)

    with_client(store, body)


def test_a_cursor_has_64_bits(store: Store, keys: PartitionKeys) -> None:
    """Lua's numbers have 53: cursors are compared as they are written."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        last = 2**64 - 1
        for run in (run_of(where, None, last - 1, []), run_of(where, last - 1, last, [])):
            assert Done() == await journal.apply([run], told(run))
        late = run_of(where, last - 1, last, [])

        assert OtherCursor(last, 0) == await journal.apply([late], told(late))

    with_client(store, body)


@pytest.mark.parametrize("name", ["owner", "head", "log", "state", "segment"])
def test_a_key_of_another_type_is_told(store: Store, keys: PartitionKeys, name: str) -> None:
    """Named, with nothing written: not even what comes before it in the script."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal, segments=1)
        named = {"state": keys.source(POD), "segment": keys.segment(POD, 7, 0, 0)}
        key: bytes = named.get(name) or getattr(keys, name)
        store.look.unlink(key)
        store.look.rpush(key, "x")
        store.look.pexpire(key, 60_000)
        before = dump(store, keys)
        run = run_of(where, None, 0, stored(range(3)))

        assert WrongType(key, "list") == await journal.apply([run], told(run))
        assert before == dump(store, keys)

    with_client(store, body)


def test_a_source_stands_once_in_a_run(store: Store, keys: PartitionKeys) -> None:
    """Twice, the second would be checked against what the first is about to change."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run: SourceRun = run_of(where, None, 0, stored(range(3)))
        for runs in ([run, run], []):
            with pytest.raises(ValueError, match="each source once"):
                await journal.apply(runs, told(run))

    with_client(store, body)
