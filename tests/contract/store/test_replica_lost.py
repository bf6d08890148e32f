"""The store loses what it had, in part or whole: it is written anew from memory, and nothing held is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from indexer.model import Descriptor, SourceId
from tests.support.core_events import BLOCK, prompt, removed, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.partitions.owner import Owner
    from tests.support.redis_servers import Store

A = SourceId("a", 0)


def owner_of(replica: Replica) -> Owner:
    """Of source a."""
    found: Owner = replica.part.owners[replica.part._parts.partition_of(A)]
    return found


def heals(
    store: Store,
    harm: Callable[[Replica], None],
    settled: Callable[[Replica], Any] = Replica.written,
    **settings: Any,  # noqa: ANN401  settings of any kind
) -> None:
    """After harm to the store, a restart knows what was known, under the same generation, and goes on."""

    async def body() -> None:
        first = await Replica(store.url, **settings).start()
        first.say("a", stored(range(1, 9), prompt(8)))
        first.say("a", stored([1], prompt(1)), stored([30], prompt(1, 900), parent=99))
        await first.written()
        generation = first.sink().source.facts.generation
        harm(first)
        first.say("a", removed(8))
        owner = owner_of(first)
        await first.until(lambda: owner.role == "owner" and owner.lease_until > first.node.clock.now())
        await settled(first)
        await first.written()
        assert 7 * BLOCK == first.ask(prompt(8)).matched_tokens
        assert generation == first.sink().source.facts.generation
        await first.die()

        second = await Replica(store.url).start()

        assert generation == second.sink().source.facts.generation
        assert 7 * BLOCK == second.ask(prompt(8)).matched_tokens
        assert 1 == second.sink().source.map.waiting
        second.say("a", removed(1))
        assert 7 * BLOCK == second.ask(prompt(8)).matched_tokens  # it had two copies
        second.say("a", removed(1))
        assert 0 == second.ask(prompt(8)).matched_tokens
        await second.stop()

    run(body)


def test_everything(store: Store) -> None:
    """FLUSHALL."""
    heals(store, lambda _: store.empty())


def test_the_state_of_a_source(store: Store) -> None:
    """One key."""
    heals(store, lambda replica: store.look.delete(owner_of(replica)._keys.source(A)))


def test_a_segment(store: Store) -> None:
    """Noticed when the time to live of the source's keys is renewed."""

    def harm(replica: Replica) -> None:
        (owned,) = owner_of(replica).owned.values()
        assert owned.where is not None
        for key in owner_of(replica)._keys.copy(A, owned.where.generation, owned.where.copy, owned.where.segments):
            store.look.delete(key)
        lost.append(owned)

    lost: list[Any] = []
    heals(
        store,
        harm,
        settled=lambda replica: replica.until(lambda: lost[0].where.copy != 0),
        staleness__retain_s=6.0,
        staleness__score_ttl_s=5.0,
        staleness__stale_after_s=4.0,
    )


def test_the_journal(store: Store) -> None:
    """With its head."""

    def harm(replica: Replica) -> None:
        keys = owner_of(replica)._keys
        store.look.delete(keys.head)
        store.look.delete(keys.log)

    heals(store, harm)


def test_the_owner(store: Store) -> None:
    """The lease ended while the store was away."""
    heals(store, lambda replica: store.look.delete(owner_of(replica)._keys.owner))


def test_the_registry(store: Store) -> None:
    """And with it, all else but the owner's key."""

    def harm(replica: Replica) -> None:
        keys = owner_of(replica)._keys
        for key in (keys.sources, keys.head, keys.source(A)):
            store.look.delete(key)

    heals(store, harm)


def test_too_much_waits(store: Store) -> None:
    """Beyond `redis.pending_bytes` what waits is dropped, and the map is written anew as a whole."""

    async def body() -> None:
        first = await Replica(store.url, redis__pending_bytes=1 << 20).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        for server in store.servers:
            server.freeze()
        for n in range(60):
            first.say("a", stored(range(1_000 * n + 2, 1_000 * n + 1_002), prompt(1_000, BLOCK * (1_000 * n + 1))))
        (owned,) = owner_of(first).owned.values()
        assert "lost" == owned.wish
        assert first.part._parts.unwritten.bytes <= 1 << 20
        assert BLOCK == first.ask(prompt(1)).matched_tokens
        for server in store.servers:
            server.thaw()
        await first.written()
        assert 0 == first.part._parts.unwritten.bytes
        await first.die()

        second = await Replica(store.url).start()

        assert 60_001 == second.sink().source.pairs
        await second.stop()

    run(body)


def test_something_else_at_a_key(store: Store) -> None:
    """Other sources of the partition go on without; when it is gone, so does this one."""

    async def body() -> None:
        pods = tuple(f"p{n}" for n in range(40))
        first = await Replica(store.url, pods).start()
        number = first.part._parts.partition_of(SourceId("p0", 0))
        other = next(p for p in pods[1:] if first.part._parts.partition_of(SourceId(p, 0)) == number)
        keys = first.part.owners[number]._keys
        for pod in ("p0", other):
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        store.look.delete(keys.source(SourceId("p0", 0)))
        store.look.set(keys.source(SourceId("p0", 0)), "theirs")
        first.say("p0", stored([2], prompt(1, 50)))
        first.say(other, stored([2], prompt(1, 50)))
        theirs = next(each for each in first.part.owners[number].owned.values() if each.id.pod == other)
        await first.until(lambda: theirs.written == 1)
        mine = next(each for each in first.part.owners[number].owned.values() if each.id.pod == "p0")
        assert 0 == mine.written
        assert b"theirs" == store.look.get(keys.source(SourceId("p0", 0)))

        store.look.delete(keys.source(SourceId("p0", 0)))
        await first.written()
        await first.die()

        second = await Replica(store.url, pods).start()
        assert BLOCK == second.ask(prompt(1, 50), "p0").matched_tokens
        await second.stop()

    run(body)


def test_a_generation_that_begins_while_a_copy_is_due(store: Store) -> None:
    """It begins empty, and nothing of the copy that was due is wanted any more."""

    async def body() -> None:
        first = await Replica(store.url).start()
        first.say("a", stored(range(1, 9), prompt(8)))
        await first.written()
        (owned,) = owner_of(first).owned.values()
        for wish in ("outgrown", "lost"):
            owned.wish = wish
            first.sink().restart("sequence_went_back")
            first.say("a", stored([20], prompt(1, 500)))
            assert owned.wish is None
            await first.written()
            assert owned.where is not None
            assert owned.where.generation == first.sink().source.facts.generation
        await first.die()

        second = await Replica(store.url).start()

        assert 0 == second.ask(prompt(8)).matched_tokens
        assert BLOCK == second.ask(prompt(1, 500)).matched_tokens
        await second.stop()

    run(body)


def test_commands_that_the_store_forgot(store: Store) -> None:
    """It is restored from before a removal, a cordon and a new address: they stand, at replicas that follow, too."""

    async def body() -> None:
        owner = await Replica(store.url, ("a", "b"), redis__partitions=1).start()
        follower = await Replica(store.url, (), name="r2", redis__partitions=1, server__roles=("lookup",)).start()
        for pod in "cd":
            await owner.node.add_source(Descriptor(pod=pod, endpoint="tcp://127.0.0.1:2"))
        for pod in "abcd":
            await owner.until(lambda pod=pod: SourceId(pod, 0) in owner.collector.resumed)  # type: ignore[misc]
            owner.say(pod, stored([1], prompt(1)))
        await owner.written()
        await follower.until(lambda: knows(follower, "abcd"))
        before = {key: (store.look.dump(key), max(0, store.look.pttl(key))) for key in store.all_keys()}
        await owner.node.remove_source("c", None)
        await owner.node.cordon_source("b", None, cordoned=True)
        changed = Descriptor(pod="d", endpoint="tcp://127.0.0.1:3")
        await owner.node.replace_api_sources([changed], max_removals=None)
        owner.say("a", stored([2], prompt(2)[BLOCK:], parent=1))
        await owner.written()
        generations = {pod: owner.sink(pod).source.facts.generation for pod in "ab"}

        await asyncio.to_thread(restore, store, before)
        owner.say("a", stored([3], prompt(3)[2 * BLOCK :], parent=2))

        for replica in (owner, follower):
            await replica.until(lambda replica=replica: stands(replica, changed))  # type: ignore[misc]
        fresh = await Replica(store.url, (), name="r3", redis__partitions=1, server__roles=("lookup",)).start()
        await fresh.until(lambda: stands(fresh, changed))
        assert generations == {pod: owner.sink(pod).source.facts.generation for pod in "ab"}
        for replica in (fresh, follower, owner):
            await replica.stop()

    run(body)


def knows(replica: Replica, pods: str) -> bool:
    """Whether it knows these sources, and a block of each."""
    known = {source.pod for source in replica.node.registry.sources}
    return known == set(pods) and all(replica.ask(prompt(1), pod).matched_tokens for pod in pods)


def stands(replica: Replica, changed: Descriptor) -> bool:
    """Whether the commands that were given are in force, and the newest batch."""
    known = replica.node.registry.sources
    return (
        {source.pod for source in known} == {"a", "b", "d"}
        and known[SourceId("b", 0)].facts.cordoned
        and known[changed.id].descriptor == changed
        and 3 * BLOCK == replica.ask(prompt(3)).matched_tokens
    )


def restore(store: Store, before: dict[bytes, tuple[bytes, int]]) -> None:
    """The store goes back to what it had."""
    with store.look.pipeline(transaction=store.kind != "cluster") as at_once:
        for key, (content, ttl) in before.items():
            at_once.restore(key, ttl, content, replace=True)
        at_once.execute()
