"""A store that answers, and refuses: full, read-only, without its scripts, with another password. Nothing half done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from indexer.store.commands import Command, give
from indexer.store.entries import Ticked
from indexer.store.failures import FailureKind, StoreFailure
from indexer.store.fitness import judge
from indexer.store.lease import acquire, release, renew
from indexer.store.outcomes import Done, Whereabouts
from indexer.store.segments import by_segment
from tests.support.copies import flip, turned
from tests.support.owning import POD, TIMES, begun, client_of, owning, run_of, stored, told, with_client
from tests.support.redis_servers import Store, dump, free_port, own_server

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from indexer.store.client import Client
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys

OTHER_COPY = Whereabouts(7, 1, 1)


async def refused(call: Awaitable[object]) -> FailureKind:
    """How a call is refused; it must be, and known not to have been done."""
    with pytest.raises(StoreFailure) as failed:
        await call
    assert not failed.value.may_be_done
    return failed.value.kind


def everywhere(store: Store, *words: object) -> None:
    """A command to every server."""
    for server in store.servers:
        with server.client() as look:
            look.execute_command(*words)


async def tried_everything(
    store: Store, keys: PartitionKeys, client: Client, journal: Journal, where: Whereabouts
) -> set[FailureKind]:
    """How every script that writes something new is refused; nothing may change by it."""
    run = run_of(where, None, 0, stored(range(16)))
    command = Command(verb="put", source=POD, nonce="c", descriptor=b"d")
    token = store.look.get(keys.owner)
    before = dump(store, keys)
    kinds = {
        await refused(acquire(client, keys, replica="a", nonce="n9", held=token, **TIMES)),
        await refused(journal.apply([run], told(run))),
        await refused(journal.tick(Ticked(1, []))),
        await refused(turned(journal, 8)),
        await refused(journal.lay(POD, OTHER_COPY, by_segment(stored([1]), [keys.segment(POD, 7, 1, 0)])[0])),
        await refused(flip(journal, 0)),
        await refused(give(client, keys, command, TIMES["retain_ms"])),
    }
    assert before == dump(store, keys)
    assert journal.is_settled
    return kinds


def test_a_full_store_refuses_and_keeps_what_it_has(store: Store, keys: PartitionKeys) -> None:
    """Nothing half written; the lease can still be renewed and given up; with room it goes on where it was."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        token = store.look.get(keys.owner)
        everywhere(store, "CONFIG", "SET", "maxmemory", 1)
        assert {"out_of_memory"} == await tried_everything(store, keys, client, journal, where)
        assert Done() == await renew(client, keys, token, 60_000)

        everywhere(store, "CONFIG", "SET", "maxmemory", 0)
        run = run_of(where, None, 0, stored(range(16)))
        assert Done() == await journal.apply([run], told(run))
        everywhere(store, "CONFIG", "SET", "maxmemory", 1)
        assert Done() == await release(client, keys, token)

    with_client(store, body)


def test_a_read_only_replica_refuses(tmp_path: Path, keys: PartitionKeys) -> None:
    """After a failover nobody told us of; as the primary again it goes on where it was."""
    with own_server(tmp_path) as server:
        store = Store("valkey", [server])

        async def body(client: Client) -> None:
            journal = await owning(client, keys)
            where = await begun(journal)
            token = store.look.get(keys.owner)
            store.look.replicaof("127.0.0.1", free_port())
            assert {"read_only"} == await tried_everything(store, keys, client, journal, where)
            assert "read_only" == await refused(renew(client, keys, token, 60_000))
            assert "read_only" == await refused(release(client, keys, token))

            store.look.replicaof("NO", "ONE")
            run = run_of(where, None, 0, stored(range(16)))
            assert Done() == await journal.apply([run], told(run))

        with_client(store, body)
        store.look.close()


def test_scripts_that_are_gone_are_loaded_anew(store: Store, keys: PartitionKeys) -> None:
    """A restart, a failover, SCRIPT FLUSH: nobody notices."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        for number in range(3):
            everywhere(store, "SCRIPT", "FLUSH")
            run = run_of(where, number - 1 if number else None, number, stored(range(number, number + 1)))
            assert Done() == await journal.apply([run], told(run))
        assert [b"3", b"2"] == store.look.hmget(keys.source(POD), "pairs", "cursor")

    with_client(store, body)


def test_a_good_store_is_found_fit(store: Store) -> None:
    """With its kind and version, from every server."""

    async def body(client: Client) -> None:
        reports = await client.reports()
        assert len(store.servers) == len(reports)
        kind = judge(reports, as_cluster=client.is_cluster).kind
        assert kind == ("valkey" if store.kind in {"valkey", "cluster"} else "redis")

    with_client(store, body)


def test_a_store_that_evicts_is_found_unfit(store: Store) -> None:
    """On any of its servers."""
    with store.servers[-1].client() as look:
        look.config_set("maxmemory-policy", "volatile-lru")

    async def body(client: Client) -> None:
        with pytest.raises(StoreFailure, match="noeviction"):
            judge(await client.reports(), as_cluster=client.is_cluster)

    try:
        with_client(store, body)
    finally:
        everywhere(store, "CONFIG", "SET", "maxmemory-policy", "noeviction")


@pytest.mark.parametrize("credentials", ["", ":wrong@", "nobody:secret@"])
def test_a_wrong_password_is_told(tmp_path: Path, credentials: str) -> None:
    """As such, at once and without the password in the text."""
    with own_server(tmp_path, "--requirepass", "secret") as server:

        async def body() -> None:
            client = client_of(server.url.replace("//", f"//{credentials}"))
            with pytest.raises(StoreFailure) as failed:
                await client.string(b"a")
            await client.close()
            assert "denied" == failed.value.kind
            assert not failed.value.may_be_done
            assert not {"wrong", "secret"} & set(str(failed.value).split())

        asyncio.run(body())


def test_a_right_that_lacks_is_told(tmp_path: Path, keys: PartitionKeys) -> None:
    """A user who may read and not write: refused before the first write."""
    with own_server(tmp_path) as server:
        with server.client() as look:
            look.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-xadd")

        async def body() -> None:
            client = client_of(server.url.replace("//", "//u:p@"))
            assert "denied" == await refused(acquire(client, keys, replica="a", nonce="n", **TIMES))
            await client.close()

        asyncio.run(body())
        with server.client() as look:
            assert 0 == look.dbsize()


def test_an_address_of_another_form_is_told(store: Store) -> None:
    """A cluster's node as if it were alone, and a server alone as if it were a cluster."""
    plain = store.servers[0].url
    other = plain if store.kind == "cluster" else plain.replace("redis:", "redis+cluster:")

    async def body() -> None:
        client = client_of(other)
        with pytest.raises(StoreFailure, match="cluster") as failed:
            judge(await client.reports(), as_cluster=client.is_cluster)
        await client.close()
        assert "unfit" == failed.value.kind

    asyncio.run(body())
