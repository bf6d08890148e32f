"""A store that lost what it had acknowledged: emptied, restored, its owner dead in mid-assertion."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from indexer.store.budget import JournalBudget
from indexer.store.commands import Command, Verb, give
from indexer.store.entries import Reasserted, Ticked
from indexer.store.following import Follower, Reload
from indexer.store.journal import Journal, NewCopy
from indexer.store.layout import is_without_ttl, source_name
from indexer.store.lease import renew
from indexer.store.outcomes import Began, Done, Fenced, Laid, Lost, Whereabouts
from indexer.store.rebuild import LoadOptions, load
from indexer.store.segments import by_segment
from tests.support.owning import POD, acquired, begun, client_of, owning, run_of, stored, told, with_client
from tests.support.reading_on import read_on
from tests.support.redis_servers import Store, cut_off, follows, lasting_keys, own_server, wait_for, wait_for_copy
from tests.support.shelf import RecordingShelf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

GENERATION = 2**52
RETAIN_MS = 600_000


async def known(client: Client, keys: PartitionKeys, verb: Verb = "put") -> None:
    """The source stands in the registry."""
    await give(client, keys, Command(verb=verb, source=POD, nonce="put", descriptor=b"d"), 60_000)


async def lay(journal: Journal, keys: PartitionKeys, pairs: int) -> Whereabouts:
    """A new copy, not in use yet."""
    where = journal.new_copy(GENERATION, pairs)
    segments = list(keys.copy(POD, where.generation, where.copy, where.segments))
    for part in by_segment(stored(range(pairs)), segments):
        assert isinstance(await journal.lay(POD, where, part), Laid)
    return where


async def assert_anew(journal: Journal, keys: PartitionKeys, pairs: int, cursor: int) -> Whereabouts:
    """What an owner does once the store has lost something: lay what it knows, and flip."""
    where = await lay(journal, keys, pairs)
    copy = NewCopy(source=POD, where=where, cursor=cursor, facts=b"", pairs=pairs)
    reply = await journal.flip(copy, Reasserted(source_name(POD), where.generation, where.copy))
    assert isinstance(reply, Began)
    return where


async def read(client: Client, keys: PartitionKeys) -> tuple[RecordingShelf, Follower]:
    """What a mirror that starts now holds."""
    shelf = RecordingShelf()
    loaded = await load(client, keys, shelf, LoadOptions())
    assert {POD: "whole"} == loaded.outcomes
    return shelf, Follower(loaded.position)


def on_server(folder: Path, body: Callable[[Client, Store], Awaitable[None]], *options: str) -> None:
    """Run a test's body with a server that it may kill."""
    with own_server(folder, *options) as server:
        store = Store("valkey", [server])

        async def run() -> None:
            client = client_of(server.url)
            await body(client, store)
            await client.close()

        asyncio.run(run())
        assert [] == lasting_keys(store, is_without_ttl)
        store.look.close()


def test_a_server_that_comes_back_empty(tmp_path: Path, keys: PartitionKeys) -> None:
    """Killed without a snapshot. Its owner is fenced off, takes the partition anew and asserts what it knows."""

    async def body(client: Client, store: Store) -> None:
        await known(client, keys)
        journal = await owning(client, keys)
        run = run_of(await begun(journal, generation=GENERATION), None, 5, stored(range(100)))
        assert Done() == await journal.apply([run], told(run))
        _, follower = await read(client, keys)

        store.servers[0].stop()
        store.servers[0].start()
        assert Fenced(b"") == await journal.tick(Ticked(1, []))
        await known(client, keys, "restore")
        journal = await owning(client, keys, nonce="n2")
        where = await assert_anew(journal, keys, 100, 5)

        shelf, _ = await read(client, keys)
        assert 100 == len(shelf.held[POD])
        assert {keys.log: [Reload("other_history")]} == await read_on(client, {keys.log: follower}, count=9, block_s=1)
        following = run_of(where, 5, 6, stored(range(100, 110)))
        assert Done() == await journal.apply([following], told(following))

    on_server(tmp_path, body)


def test_a_server_that_goes_back_in_time(tmp_path: Path, keys: PartitionKeys) -> None:
    """Restored from a snapshot: the owner's token is good, its journal is not; a new epoch, and nothing is lost.

    The ids that were written since are never given to other entries: who read them must notice.
    """

    async def body(client: Client, store: Store) -> None:
        await known(client, keys)
        journal = await owning(client, keys)
        where = await begun(journal, generation=GENERATION)
        first = run_of(where, None, 5, stored(range(50)))
        assert Done() == await journal.apply([first], told(first))
        store.look.save()
        snapshot = store.servers[0].folder / "dump.rdb"
        shutil.copy(snapshot, tmp_path / "kept")
        at_snapshot = journal.position
        second = run_of(where, 5, 6, stored(range(50, 100)))
        assert Done() == await journal.apply([second], told(second))
        _, follower = await read(client, keys)

        store.servers[0].stop()
        shutil.copy(tmp_path / "kept", snapshot)
        store.servers[0].start()
        third = run_of(where, 6, 7, stored(range(100, 110)))
        assert Lost("log", str(at_snapshot).encode()) == await journal.apply([third], told(third))
        before = journal.position
        journal = await owning(client, keys, nonce="n2", held=store.look.get(keys.owner))
        assert before < journal.position
        await assert_anew(journal, keys, 100, 6)

        shelf, _ = await read(client, keys)
        assert 100 == len(shelf.held[POD])
        assert {keys.log: [Reload("other_history")]} == await read_on(client, {keys.log: follower}, count=9, block_s=1)

    on_server(tmp_path, body)


def test_a_failover_that_loses_what_was_acknowledged(tmp_path: Path, keys: PartitionKeys) -> None:
    """The primary was killed between a write and its replication. The owner's next write to the new primary says so."""

    async def body(client: Client, primary: Store) -> None:
        with own_server(tmp_path, "--replicaof", f"127.0.0.1 {primary.servers[0].port}") as replica:
            wait_for(lambda: follows(replica), "the replica to follow")
            await known(client, keys)
            journal = await owning(client, keys)
            where = await begun(journal, generation=GENERATION)
            first = run_of(where, None, 5, stored(range(50)))
            assert Done() == await journal.apply([first], told(first))
            wait_for_copy(primary.servers[0], replica)
            replicated = journal.position
            cut_off(primary.servers[0], replica)
            lost = run_of(where, 5, 6, stored(range(50, 100)))
            assert Done() == await journal.apply([lost], told(lost))
            token = primary.look.get(keys.owner)
            primary.servers[0].stop()
            replica.thaw()
            after = Store("valkey", [replica])
            after.look.replicaof("NO", "ONE")

            promoted = client_of(replica.url)
            budget = JournalBudget(1 << 20, 0)
            journal = Journal(
                promoted, keys, token=token, position=journal.position, budget=budget, retain_ms=RETAIN_MS
            )
            following = run_of(where, 6, 7, stored(range(100, 110)))
            assert Lost("log", str(replicated).encode()) == await journal.apply([following], told(following))
            journal = await owning(promoted, keys, nonce="n2", held=token)
            await assert_anew(journal, keys, 100, 6)
            assert 100 == len((await read(promoted, keys))[0].held[POD])
            await promoted.close()
            after.look.close()
        primary.servers[0].start()

    on_server(tmp_path, body, "--repl-diskless-sync-delay", "0")


def test_a_store_that_hung_for_longer_than_a_lease(tmp_path: Path, keys: PartitionKeys) -> None:
    """Nobody owns the partition any more: what the owner still sends is refused, and it may take it again."""

    async def body(client: Client, store: Store) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        token = store.look.get(keys.owner)
        assert Done() == await renew(client, keys, token, 1)
        store.servers[0].freeze()
        store.servers[0].thaw()
        wait_for(lambda: not store.look.exists(keys.owner), "the lease to end")
        run = run_of(where, None, 5, stored(range(50)))

        assert Fenced(b"") == await journal.apply([run], told(run))
        assert Fenced(b"") == await renew(client, keys, token, 60_000)
        journal = await owning(client, keys, nonce="n2", held=token)
        assert Done() == await journal.apply([run], told(run))

    on_server(tmp_path, body)


def test_an_owner_that_dies_in_mid_assertion(store: Store, keys: PartitionKeys) -> None:
    """What it laid is in nobody's way, and expires; until another one flips, readers see the old copy."""

    async def body(client: Client) -> None:
        await known(client, keys)
        journal = await owning(client, keys)
        run = run_of(await begun(journal, generation=GENERATION), None, 5, stored(range(10)))
        assert Done() == await journal.apply([run], told(run))
        left = await lay(journal, keys, 500)
        assert 10 == len((await read(client, keys))[0].held[POD])

        journal = await owning(client, keys, nonce="n2", held=store.look.get(keys.owner))
        where = await assert_anew(journal, keys, 40, 5)

        assert left.copy != where.copy
        assert 40 == len((await read(client, keys))[0].held[POD])

    with_client(store, body)


def test_numbers_of_copies_do_not_come_again(store: Store, keys: PartitionKeys) -> None:
    """In one epoch, and over epochs."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        one = [journal.new_copy(GENERATION, 5).copy for _ in range(100)]
        owned = await acquired(client, keys, nonce="n2", held=store.look.get(keys.owner))
        journal = await owning(client, keys, nonce="n3", held=owned.token)
        other = [journal.new_copy(GENERATION, 5).copy for _ in range(100)]

        assert 200 == len({*one, *other})
        assert 0 not in one

    with_client(store, body)
