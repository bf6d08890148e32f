"""Every form of address leads to a store that works: user and password, socket file, TLS, sentinels."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from indexer.store.breaker import BreakerOptions
from indexer.store.client import ClientOptions
from indexer.store.failures import StoreFailure
from indexer.store.layout import PartitionKeys, tags
from indexer.store.outcomes import Done
from tests.support.owning import begun, client_of, owning, run_of, stored, told
from tests.support.proxy import Proxy
from tests.support.redis_servers import Server, Store, binaries, free_port, own_server, start_store, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def works(url: str, keys: PartitionKeys) -> None:
    """Own a partition and write a run, by this address."""

    async def body() -> None:
        client = client_of(url)
        try:
            journal = await owning(client, keys)
            run = run_of(await begun(journal), None, 0, stored(range(16)))
            assert Done() == await journal.apply([run], told(run))
        finally:
            await client.close()

    asyncio.run(body())


def test_user_password_and_database(tmp_path: Path, keys: PartitionKeys) -> None:
    """In the address."""
    with own_server(tmp_path) as server:
        with server.client() as look:
            look.execute_command("ACL", "SETUSER", "u", "on", ">p@ss", "~*", "+@all")
        works(server.url.replace("//", "//u:p%40ss@") + "/3", keys)
        with server.client() as look:
            assert {"db3"} == look.info("keyspace").keys()


def test_a_password_alone(tmp_path: Path, keys: PartitionKeys) -> None:
    """As `requirepass` wants it."""
    with own_server(tmp_path, "--requirepass", "secret") as server:
        works(server.url.replace("//", "//:secret@"), keys)


def test_a_socket_file(tmp_path: Path, keys: PartitionKeys) -> None:
    """Without a port."""
    with own_server(tmp_path) as server:
        works(f"unix://{server.folder}/s", keys)


def test_tls(tmp_path: Path, keys: PartitionKeys) -> None:
    """With a certificate that a named authority signed; from anybody else it is refused."""
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    for name, ca in (("ours", authority), ("other", stranger)):
        ca.cert_pem.write_to_path(str(tmp_path / name))

    async def body(server: Server) -> None:
        async with Proxy(server.port, context).running() as proxy:
            url = proxy.url.replace("redis:", "rediss:") + f"?ca={tmp_path}/"
            trusting = client_of(url + "ours")
            assert await trusting.string(b"a") is None
            await owning(trusting, keys)
            await trusting.close()

            wary = client_of(url + "other", ClientOptions(timeout_s=20.0, retries=0))
            with pytest.raises(StoreFailure) as failed:
                await wary.string(b"a")
            await wary.close()
            assert "unreachable" == failed.value.kind

    with own_server(tmp_path) as server:
        asyncio.run(body(server))


def test_a_node_of_a_cluster_that_comes_back(tmp_path: Path, keys: PartitionKeys) -> None:
    """One killed: its partitions fail, in time. All killed: all fail. Back again: all go on."""

    async def body(cluster: Store) -> None:
        options = ClientOptions(timeout_s=5.0, retries=0, breaker=BreakerOptions(failures=1_000))
        client = client_of(cluster.url, options)
        everywhere = [PartitionKeys("kvi", tag).epoch for tag in tags(3)]  # one for each node
        assert [None] * 3 == [await client.string(key) for key in everywhere]
        cluster.servers[1].stop()
        with pytest.raises(StoreFailure) as failed:
            await client.string(everywhere[1])
        assert failed.value.kind in {"unreachable", "loading", "timeout"}
        cluster.servers[0].stop()
        cluster.servers[2].stop()
        fresh = client_of(cluster.url, options)
        for asker in (client, fresh):
            with pytest.raises(StoreFailure) as failed:
                await asker.string(everywhere[0])
            assert "unreachable" == failed.value.kind
        await fresh.close()
        for server in cluster.servers:
            server.start()
        for key in everywhere:
            while True:
                with contextlib.suppress(StoreFailure):
                    assert await client.string(key) is None
                    break
                await asyncio.sleep(0.02)
        await client.close()

    cluster = start_store("cluster", tmp_path)
    try:
        asyncio.run(body(cluster))
    finally:
        cluster.close()


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[tuple[Server, Server, Server]]:
    """A primary, its replica, and a sentinel that watches them."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(own_server(folder, "--repl-diskless-sync-delay", "0"))
        replica = stack.enter_context(own_server(folder, "--replicaof", f"127.0.0.1 {primary.port}"))
        look = stack.enter_context(replica.client())
        wait_for(lambda: look.info("replication")["master_link_status"] == "up", "the replica to follow")
        settings = folder / "sentinel.conf"
        settings.write_text(
            f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds main 300\n"
            "sentinel failover-timeout main 2000\n"
        )
        sentinel = Server(binaries()["valkey"], folder / f"sentinel{free_port()}", settings=settings)
        stack.callback(sentinel.stop)
        with sentinel.client() as ask:
            wait_for(lambda: ask.sentinel_master("main")["num-slaves"] == 1, "the sentinel to know the replica")
        yield primary, replica, sentinel


def test_sentinels_lead_to_the_new_primary(tmp_path: Path, keys: PartitionKeys) -> None:
    """The primary is killed: the same client writes to the one that took over, and goes on where it was."""

    async def body(primary: Server, replica: Server, sentinel: Server) -> None:
        options = ClientOptions(timeout_s=5.0, retries=0, breaker=BreakerOptions(rest_s=0.05, rest_max_s=0.1))
        client = client_of(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", options)
        journal = await owning(client, keys)
        where = await begun(journal)
        with primary.client() as look:
            assert 1 == look.wait(1, 20_000)  # what the replica has not got is lost with the primary
        primary.stop()
        while True:
            with contextlib.suppress(StoreFailure):
                await client.string(keys.owner)
                break
            await asyncio.sleep(0.02)

        run = run_of(where, None, 0, stored(range(16)))
        assert Done() == await journal.apply([run], told(run))
        await client.close()
        with replica.client() as look:
            assert b"16" == look.hget(keys.source(run.source), "pairs")

    with watched(tmp_path) as servers:
        asyncio.run(body(*servers))
