"""An owner writes over a bad way: requests and replies are held back, connections cut. Once in effect all the same.

What was held back goes on later, behind the owner's back: the server then sees old calls, long settled.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from indexer.store.breaker import BreakerOptions
from indexer.store.budget import JournalBudget
from indexer.store.client import ClientOptions
from indexer.store.commands import Command, give
from indexer.store.failures import StoreFailure
from indexer.store.following import Follower, Next, Reload
from indexer.store.journal import Journal
from indexer.store.outcomes import Done, done
from indexer.store.rebuild import LoadOptions, load
from tests.support.owning import POD, begun, client_of, owning, removed, run_of, stored, told, until_well
from tests.support.proxy import Proxy
from tests.support.reading_on import read_on
from tests.support.redis_servers import own_server
from tests.support.shelf import RecordingShelf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.proxy import Way

HASTY = ClientOptions(timeout_s=0.05, retries=1, rest_s=0.001, breaker=BreakerOptions(rest_s=0.001, rest_max_s=0.002))
WAYS: tuple[Way, ...] = ("pass", "pass", "pass", "stall_requests", "stall_replies", "reset")
RUNS = 60
TOKEN = 1_000_000


async def write(client: Client, journal: Journal, call: Callable[[], Awaitable[object]], proxy: Proxy) -> None:
    """One run, settled whatever happens to it; after the first failure the way is good again."""
    reply: object = None
    while not isinstance(reply, Done):
        assert reply is None, reply
        try:
            reply = await (call() if journal.is_settled else journal.settle(done))
        except StoreFailure:  # more than one where the machine is busy
            proxy.set("pass")
            await until_well(client)


@pytest.mark.parametrize("seed", range(4))
def test_every_run_is_in_effect_once(tmp_path: Path, keys: PartitionKeys, seed: int) -> None:
    """Map, cursor, journal and what a follower makes of it are those of an owner without trouble."""
    chance = random.Random(seed)

    async def body(port: int, url: str) -> None:
        calm = client_of(url)
        await give(calm, keys, Command(verb="put", source=POD, nonce="put", descriptor=b"d"), 60_000)
        async with Proxy(port).running() as proxy:
            client = client_of(proxy.url, HASTY)
            first = await owning(calm, keys)
            where = await begun(first, generation=2**52)
            token = await calm.string(keys.owner)
            budget = JournalBudget(1 << 20, 0)
            assert token is not None
            journal = Journal(client, keys, token=token, position=first.position, budget=budget, retain_ms=600_000)
            follower, shelf = Follower(journal.position), RecordingShelf()
            held: set[int] = set()
            for sequence in range(RUNS):
                proxy.set(chance.choice(WAYS))
                numbers = chance.sample(range(200), 16)
                new, out = [n for n in numbers if n not in held], [n for n in numbers if n in held]
                held ^= set(numbers)
                run = run_of(where, sequence - 1 if sequence else None, sequence, [*stored(new), *removed(out)])
                presence = [(TOKEN + n, 1) for n in new] + [(TOKEN + n, 0) for n in out]
                await write(client, journal, partial(journal.apply, [run], told(run, presence)), proxy)
            await client.close()

        while follower.position < journal.position:
            for step in (await read_on(calm, {keys.log: follower}, count=9, block_s=1.0)).get(keys.log, []):
                assert not isinstance(step, Reload), step
                if isinstance(step, Next):
                    shelf.apply(step.entry)
        loaded = RecordingShelf()
        assert {POD: "whole"} == (await load(calm, keys, loaded, LoadOptions())).outcomes
        await calm.close()

        assert {TOKEN + n: 1 for n in held} == loaded.held[POD] == shelf.held[POD]
        assert (RUNS - 1, len(held)) == (loaded.states[POD].cursor, loaded.states[POD].pairs)
        assert RUNS + 2 == journal.position.number

    with own_server(tmp_path) as server:
        asyncio.run(body(server.port, server.url))


@pytest.mark.parametrize("kind", ["circuit_open", "out_of_memory"])
def test_a_settling_that_fails_says_nothing_of_the_call(tmp_path: Path, keys: PartitionKeys, kind: str) -> None:
    """It was done, and nobody knows: the store is not asked again for a while, or refuses for want of memory."""

    async def body(port: int, url: str) -> None:
        calm = client_of(url)
        async with Proxy(port).running() as proxy:
            client = client_of(proxy.url, HASTY)
            first = await owning(calm, keys)
            where = await begun(first)
            token = await calm.string(keys.owner)
            assert token is not None
            budget = JournalBudget(1 << 20, 0)
            journal = Journal(client, keys, token=token, position=first.position, budget=budget, retain_ms=600_000)
            run = run_of(where, None, 0, stored(range(16)))
            await until_well(client)
            proxy.set("stall_replies")
            with pytest.raises(StoreFailure):
                await journal.apply([run], told(run))
            if kind == "out_of_memory":
                proxy.set("pass")
                await until_well(client)
                with server.client() as look:
                    look.config_set("maxmemory", 1)
            failures = set()
            while kind not in failures:
                with pytest.raises(StoreFailure) as failed:
                    await journal.settle(done)
                failures.add(failed.value.kind)
                assert not journal.is_settled

            with server.client() as look:
                look.config_set("maxmemory", 0)
            proxy.set("pass")
            await until_well(client)
            await write(client, journal, partial(journal.settle, done), proxy)
            following = run_of(where, 0, 1, stored(range(16, 20)))
            assert Done() == await journal.apply([following], told(following))
            await client.close()
        await calm.close()

    with own_server(tmp_path) as server:
        asyncio.run(body(server.port, server.url))
