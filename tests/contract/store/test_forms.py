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
from tests.support.redis_servers import Server, Store, free_port, own_server, start_store

if TYPE_CHECKING:
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


def test_tls(tmp_path: Path, keys: PartitionKeys, tls_end: str) -> None:
    """With a certificate that a named authority signed; from anybody else it is refused."""
    authority, stranger = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    for name, ca in (("ours", authority), ("other", stranger)):
        ca.cert_pem.write_to_path(str(tmp_path / name))

    async def body(port: int) -> None:
        url = f"rediss://127.0.0.1:{port}?ca={tmp_path}/"
        trusting = client_of(url + "ours")
        assert await trusting.string(b"a") is None
        await owning(trusting, keys)
        await trusting.close()

        wary = client_of(url + "other", ClientOptions(timeout_s=20.0, retries=0))
        with pytest.raises(StoreFailure) as failed:
            await wary.string(b"a")
        await wary.close()
        assert "unreachable" == failed.value.kind

    async def behind_proxy(server: Server) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        async with Proxy(server.port, context).running() as proxy:
            await body(proxy.port)

    if tls_end == "proxy":
        with own_server(tmp_path) as server:
            asyncio.run(behind_proxy(server))
    else:
        certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
        port, pem = free_port(), str(tmp_path / "pem")
        words = ("--tls-port", str(port), "--tls-auth-clients", "no", "--tls-cert-file", pem, "--tls-key-file", pem)
        with own_server(tmp_path, *words, "--tls-ca-cert-file", str(tmp_path / "ours"), kind="system"):
            asyncio.run(body(port))


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
