"""What happens to a partition at the same time: nothing of one is lost over the other."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from indexer.model import Descriptor, SourceId
from indexer.store.entries import Ticked
from indexer.store.layout import PartitionKeys, tags
from indexer.store.outcomes import done
from tests.support.core_events import prompt, removed, stored
from tests.support.proxy import Proxy
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from indexer.partitions.owner import Owner
    from tests.support.redis_servers import Store

A = SourceId("a", 0)
BLOCKS = 3_000
BATCHES = 20
KEYS = [PartitionKeys("kvi", tag) for tag in tags(16)]


def owner_of(replica: Replica) -> Owner:
    """Of source a."""
    found: Owner = replica.part.owners[replica.part._parts.partition_of(A)]
    return found


def test_a_copy_that_is_laid_is_not_laid_twice_at_once(store: Store) -> None:
    """Who hands a partition over lays what is lost, and so may the epoch already: what changed meanwhile stays in."""

    async def body() -> None:
        first = await Replica(store.url).start()
        for nth in range(BATCHES):
            begin = nth * BLOCKS + 1
            first.say("a", stored(range(begin, begin + BLOCKS), prompt(BLOCKS, begin)))
            await first.until(lambda: not first.node.ingest.is_busy(first.sink().source))
        await first.written()
        owner = owner_of(first)
        (owned,) = owner.owned.values()
        writing = owner._writing
        assert writing is not None
        assert owned.where is not None
        where = owned.where
        laid = owner._keys.segment(A, where.generation, where.copy + 1, 0)

        owned.lose()
        writing.touch(owned)
        await first.until(lambda: store.look.exists(laid))
        assert owned.late is not None
        first.say("a", removed(1))
        async with asyncio.timeout(20.0):
            while not await writing.flush():  # noqa: ASYNC110  as who hands over does
                await asyncio.sleep(0.01)
        await first.written()
        assert 0 == first.ask(prompt(1)).matched_tokens
        await first.die()

        second = await Replica(store.url).start()
        assert 0 == second.ask(prompt(1, 1)).matched_tokens
        assert BATCHES * BLOCKS - 1 == second.sink().source.pairs
        await second.stop()

    run(body)


def test_a_call_that_is_given_up_before_it_is_made_was_not_done(store: Store) -> None:
    """It waits to hear of the one before; what it would have written waits on."""

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            replica = await Replica(proxy.url, redis__lease_s=20.0).start()
            writing = owner_of(replica)._writing
            assert writing is not None
            calls, journal, told = writing._calls, writing._journal, []
            entry = Ticked(1, [], b"")

            def call(name: str) -> asyncio.Task[object]:
                work = calls.make(
                    lambda: journal.tick(entry), done, lambda: told.append(f"{name} done"), lambda: told.append(name)
                )
                return asyncio.get_running_loop().create_task(work)

            async with calls.turn:
                proxy.set("stall_requests")
                for name in ("first", "second"):
                    task = call(name)
                    await asyncio.sleep(0)
                    await replica.until(lambda: calls.open is not None)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                assert ["second"] == told
                proxy.set("pass")
            await replica.stop()

    if store.kind != "cluster":
        run(body)


def test_who_starts_while_another_is_silent_takes_nothing_at_once(store: Store) -> None:
    """It may be the store that was away: then the last holder has the first right."""

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            first = await Replica(proxy.url, name="r1").start()
            proxy.set("reset")
            await first.until(lambda: not any(store.look.exists(keys.owner) for keys in KEYS))
            second = Replica(store.url, name="r2")
            starting = asyncio.get_running_loop().create_task(second.start())
            await first.until(lambda: second.part.sharing.membership.is_known)
            proxy.set("pass")
            await starting  # all are owned, or followed
            assert not second.part.sharing.takeovers["lease_expired"]
            await first.stop()
            await second.stop()

    if store.kind != "cluster":
        run(body)


def test_who_steps_down_twice_goes_on_listening(store: Store) -> None:
    """Handed over, and then another's: what is kept meanwhile stays, and so does the connection."""

    async def body() -> None:
        replica = Replica(store.url)
        node = replica.node
        roster, fleet = node.roster, node.fleet
        roster.fleet = fleet
        sink = node.ingest.open_source(Descriptor(pod="a", endpoint="tcp://127.0.0.1:1"), 1)
        roster.put(sink)
        fleet.start(sink)
        roster.step_down(A)
        listener = fleet._listeners[A]
        roster.step_down(A)
        assert listener is fleet._listeners[A]
        fleet.stop(A)
        roster.step_down(A)
        assert {} == fleet.listeners()
        await replica.start()
        await replica.stop()

    run(body)


def test_what_a_load_left_that_came_to_nothing_is_followed(store: Store) -> None:
    """A partition was almost loaded, and somebody else took it: nothing of it is this replica's own."""

    async def body() -> None:
        first = await Replica(store.url, name="r1").start()
        second = Replica(store.url, (), name="r2")
        sink = second.node.ingest.open_source(Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="flag"), 1)
        second.node.roster.put(sink)
        await second.start()
        await second.until(lambda: second.sink().followed)
        assert second.sink().source.changes is None
        await second.stop()
        await first.stop()

    run(body)


def test_a_stop_gives_up_what_was_only_just_taken(store: Store) -> None:
    """Nobody has to wait for the end of its lease."""

    async def body() -> None:
        replica = await Replica(store.url, redis__lease_s=60.0).start()
        owner = owner_of(replica)
        owner.role = "waiting"  # as between taking it and loading it, or writing it anew
        await replica.stop()
        assert not store.look.exists(owner._keys.owner)

    run(body)
