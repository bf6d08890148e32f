"""The client when the way to the store is bad: every call ends, with what is known; and heals by itself."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from indexer.store.breaker import BreakerOptions
from indexer.store.client import Client, ClientOptions
from indexer.store.failures import StoreFailure
from indexer.store.journal import Unsettled
from indexer.store.outcomes import Done, done
from tests.support.owning import begun, client_of, owning, run_of, stored, told, until_well
from tests.support.proxy import Proxy
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from indexer.store.layout import PartitionKeys
    from tests.support.proxy import Way
    from tests.support.redis_servers import Server

HASTY = ClientOptions(timeout_s=1.0, retries=0, breaker=BreakerOptions(failures=1_000_000))
"""Gives up soon and tells each failure."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that a test may freeze and kill."""
    with own_server(tmp_path) as own:
        yield own


def behind_proxy(
    server: Server, body: Callable[[Client, Proxy], Awaitable[None]], options: ClientOptions = HASTY
) -> None:
    """Run a test's body with a client whose way to the server is in its hands."""

    async def run() -> None:
        async with _proxied(server, options) as (client, proxy):
            await body(client, proxy)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _proxied(server: Server, options: ClientOptions) -> AsyncIterator[tuple[Client, Proxy]]:
    async with Proxy(server.port).running() as proxy:
        client = client_of(proxy.url, options)
        try:
            yield client, proxy
        finally:
            await client.close()


async def failure(call: Awaitable[object]) -> StoreFailure:
    """How a call fails; it must."""
    with pytest.raises(StoreFailure) as failed:
        await call
    return failed.value


@pytest.mark.parametrize(
    ("way", "kind"), [("stall_requests", "timeout"), ("stall_replies", "timeout"), ("reset", "unreachable")]
)
def test_a_call_without_an_answer_ends(server: Server, way: Way, kind: str) -> None:
    """It may have been done. Afterwards each call gets its own reply, none of an earlier one."""
    with server.client() as look:
        look.mset({"a": "A", "b": "B"})

    async def body(client: Client, proxy: Proxy) -> None:
        assert b"A" == await client.string(b"a")
        proxy.set(way)
        failed = await failure(client.string(b"a"))
        assert (kind, True) == (failed.kind, failed.may_be_done)

        proxy.set("pass")
        await until_well(client)
        assert [b"B", b"A"] == [await client.string(b"b"), await client.string(b"a")]

    behind_proxy(server, body)


def test_a_frozen_server_is_a_time_out(server: Server) -> None:
    """SIGSTOP: new connections are taken and nothing answers. SIGCONT heals it."""

    async def body(client: Client, proxy: Proxy) -> None:
        server.freeze()
        assert "timeout" == (await failure(client.string(b"a"))).kind
        assert "timeout" == (await failure(client.string(b"a"))).kind
        server.thaw()
        await until_well(client)

    behind_proxy(server, body)


def test_a_slow_way_is_no_failure(server: Server) -> None:
    """Within the deadline."""

    async def body(client: Client, proxy: Proxy) -> None:
        proxy.set("delay")
        assert await client.string(b"a") is None

    behind_proxy(server, body, ClientOptions(timeout_s=20.0, retries=0))


def test_a_broken_connection_is_made_anew_unseen(server: Server) -> None:
    """One retry is enough, and the caller hears nothing of it."""

    async def body(client: Client, proxy: Proxy) -> None:
        await client.string(b"a")
        proxy.set("reset")
        proxy.set("pass")
        assert await client.string(b"a") is None
        assert 2 == proxy.connections

    behind_proxy(server, body, ClientOptions(timeout_s=20.0, retries=1))


def test_a_caller_that_is_cancelled_leaves_no_reply_behind(server: Server) -> None:
    """The next caller on that connection would get it."""
    with server.client() as look:
        look.mset({"a": "A", "b": "B"})

    async def body(client: Client, proxy: Proxy) -> None:
        await client.string(b"a")
        proxy.set("stall_replies")
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(client.string(b"a"))
            await proxy.next_request()
            call.cancel()
        proxy.set("pass")
        assert b"B" == await client.string(b"b")

    behind_proxy(server, body, ClientOptions(timeout_s=20.0))


def test_after_failures_in_a_row_nobody_asks(server: Server) -> None:
    """Callers are told at once and no connection is made, until a probe finds that it is well."""
    options = ClientOptions(timeout_s=5.0, retries=0, breaker=BreakerOptions(failures=3, rest_s=60.0))

    async def body(client: Client, proxy: Proxy) -> None:
        proxy.set("reset")
        assert ["unreachable"] * 3 == [(await failure(client.string(b"a"))).kind for _ in range(3)]
        connections = proxy.connections
        failed = await failure(client.string(b"a"))
        assert ("circuit_open", False) == (failed.kind, failed.may_be_done)
        assert connections == proxy.connections

    behind_proxy(server, body, options)


def test_an_open_circuit_closes_by_itself(server: Server) -> None:
    """Killed, and back later: nobody needs to do anything."""
    options = ClientOptions(timeout_s=5.0, retries=0, breaker=BreakerOptions(failures=1, rest_s=0.01, rest_max_s=0.02))

    async def body(client: Client, proxy: Proxy) -> None:
        server.stop()
        kinds = {(await failure(client.string(b"a"))).kind for _ in range(5)}
        assert {"unreachable", "circuit_open"} == kinds
        server.start()
        await until_well(client)
        assert "closed" == client.breaker.state

    behind_proxy(server, body, options)


def test_connections_are_bounded(server: Server) -> None:
    """However many callers there are."""

    async def body(client: Client, proxy: Proxy) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(300):
                tasks.create_task(client.string(b"a"))
        assert 1 <= proxy.connections <= 4

    behind_proxy(server, body, ClientOptions(timeout_s=20.0, calls_at_once=4))


def test_waiting_for_a_turn_counts(server: Server) -> None:
    """While the store hangs, all callers end, not one deadline after the other."""

    async def body(client: Client, proxy: Proxy) -> None:
        proxy.set("stall_replies")
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(failure(client.string(b"a"))) for _ in range(50)]
        assert {"timeout"} == {call.result().kind for call in calls}

    behind_proxy(server, body, ClientOptions(timeout_s=0.3, retries=0, calls_at_once=1))


def test_a_write_without_an_answer_is_settled_by_the_same_call(server: Server, keys: PartitionKeys) -> None:
    """It was done: the same call says so, with one effect. Nothing else may be written before."""

    async def body(client: Client, proxy: Proxy) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(16)))
        await journal.apply([run], told(run))
        following = run_of(where, 0, 1, stored(range(16, 20)))
        at = journal.position
        proxy.set("stall_replies")
        assert (await failure(journal.apply([following], told(following)))).may_be_done
        proxy.set("pass")

        assert not journal.is_settled
        with pytest.raises(Unsettled):
            await journal.apply([following], told(following))
        await until_well(client)
        assert Done(again=True) == await journal.settle(done)
        assert (at.next, True) == (journal.position, journal.is_settled)
        with pytest.raises(Unsettled):
            await journal.settle(done)
        with server.client() as look:
            assert [b"20", b"1"] == look.hmget(keys.source(run.source), "pairs", "cursor")
            assert journal.position.number == look.xlen(keys.log)

    behind_proxy(server, body)


def test_a_write_that_never_arrived_is_done_by_the_same_call(server: Server, keys: PartitionKeys) -> None:
    """Cut off before the server saw it."""

    async def body(client: Client, proxy: Proxy) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(16)))
        proxy.set("reset")
        assert (await failure(journal.apply([run], told(run)))).may_be_done
        proxy.set("pass")
        await until_well(client)

        assert Done() == await journal.settle(done)
        with server.client() as look:
            assert b"16" == look.hget(keys.source(run.source), "pairs")

    behind_proxy(server, body)


def test_a_write_without_an_answer_stays_open_while_nobody_asks(server: Server, keys: PartitionKeys) -> None:
    """The circuit is open: the second try did nothing, and the first one was done."""
    options = ClientOptions(timeout_s=1.0, retries=0, breaker=BreakerOptions(failures=1, rest_s=60.0))

    async def body(client: Client, proxy: Proxy) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(16)))
        await journal.apply([run], told(run))
        following = run_of(where, 0, 1, stored(range(16, 20)))
        proxy.set("stall_replies")
        assert (await failure(journal.apply([following], told(following)))).may_be_done
        proxy.set("pass")

        assert "circuit_open" == (await failure(journal.settle(done))).kind
        assert not journal.is_settled
        client.breaker.succeeded()
        assert Done(again=True) == await journal.settle(done)

    behind_proxy(server, body, options)


def test_a_write_that_was_not_even_tried_need_not_be_settled(server: Server, keys: PartitionKeys) -> None:
    """The circuit was open: the owner may write something else."""
    options = ClientOptions(timeout_s=5.0, retries=0, breaker=BreakerOptions(failures=1, rest_s=60.0))

    async def body(client: Client, proxy: Proxy) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        run = run_of(where, None, 0, stored(range(16)))
        proxy.set("reset")
        assert "unreachable" == (await failure(client.string(b"a"))).kind

        assert "circuit_open" == (await failure(journal.apply([run], told(run)))).kind
        assert journal.is_settled

    behind_proxy(server, body, options)


def test_a_follower_waits_no_longer_than_told(server: Server, keys: PartitionKeys) -> None:
    """Entries come as they are written; without any it is back in time; a frozen server is a failure."""

    async def body(client: Client, proxy: Proxy) -> None:
        journal = await owning(client, keys)
        first = str(journal.position).encode()
        assert {} == await client.await_entries({keys.log: first}, 10, 0.01)

        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.await_entries({keys.log: first}, 10, 60.0))
            await proxy.next_request()
            await begun(journal)
        assert [str(journal.position).encode()] == [entry_id for entry_id, _ in waiting.result()[keys.log]]

        server.freeze()
        assert "timeout" == (await failure(client.await_entries({keys.log: first}, 10, 0.05))).kind
        server.thaw()

    behind_proxy(server, body)
