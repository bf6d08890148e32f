"""Replicas that are configured differently, for a while or for good: nothing is taken out that one of them names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import Descriptor, SourceId
from indexer.partitions.configuring import digest_of, put_configured
from indexer.store.commands import Command, give
from indexer.store.registered import Registered, pack_registered, unpack_registered
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

A, B, C = (SourceId(pod, 0) for pod in "abc")


class Together:
    """Which replicas there are, and whether all are configured as one is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.live: dict[str, Replica] = {}

    def made(self, name: str, *pods: str, **settings: object) -> Replica:
        """A replica, in place of the one before it of that name. It is not started."""
        replica = self.live[name] = Replica(self._store.url, pods, name=name, **settings)
        object.__setattr__(replica.part._parts, "agrees", lambda: self._agree(replica))
        return replica

    async def started(self, name: str, *pods: str) -> Replica:
        """One that runs."""
        return await self.made(name, *pods).start()

    def _agree(self, replica: Replica) -> bool:
        return {_digest(replica)} == {_digest(each) for each in self.live.values()}


def _digest(replica: Replica) -> str:
    return digest_of(replica.part._parts.configured.values())


async def owns_all(replica: Replica) -> None:
    """Until it does."""
    await replica.until(lambda: all(owner.role == "owner" for owner in replica.part.owners.values()))


def test_who_names_nothing_takes_nothing(store: Store) -> None:
    """One with sources and one without: whichever takes over, what is held goes on."""

    async def body() -> None:
        together = Together(store)
        first = await together.started("r1", "a", "b")
        bare = await together.started("r2")
        for pod in "ab":
            first.say(pod, stored([1, 2], prompt(2)))
        generations = {pod: first.sink(pod).source.facts.generation for pod in "ab"}
        await first.written()
        await first.die()

        await owns_all(bare)
        again = await together.started("r1", "a", "b")
        for pod in "ab":
            assert 2 * BLOCK == bare.ask(prompt(2), pod).matched_tokens
            bare.say(pod, stored([3], prompt(1, 50), parent=2))
        await bare.written()
        await bare.stop()

        await owns_all(again)
        for pod in "ab":
            assert 3 * BLOCK == again.ask([*prompt(2), *prompt(1, 50)], pod).matched_tokens
        assert generations == {pod: again.sink(pod).source.facts.generation for pod in "ab"}
        await again.stop()

    run(body)


def test_what_a_follower_names_is_collected(store: Store) -> None:
    """At once, by the owner; and one that the follower names otherwise is registered anew, once."""

    async def body() -> None:
        together = Together(store)
        owner = await together.started("r1", "a", "b")
        second = together.made("r2", "c")
        changed = Descriptor(pod="b", endpoint="tcp://127.0.0.1:9", origin="flag")
        second.part._parts.configured[B] = changed
        await second.start()

        await owner.until(lambda: C in owner.collector.resumed)
        await owner.until(lambda: changed == owner.sink("b").descriptor)
        assert A in owner.node.registry.sources
        generation = owner.sink("b").source.facts.generation
        await owner.written()
        await owner.die()
        await owns_all(second)
        third = await together.started("r1", "a")
        await second.stop()

        await owns_all(third)  # its first opening, and it does not name this one
        assert changed == third.sink("b").descriptor
        assert generation == third.sink("b").source.facts.generation
        await third.stop()

    run(body)


def test_only_at_the_start_what_stands_is_changed(store: Store) -> None:
    """After that another replica may have been configured since, and only what is missing is put."""

    async def body() -> None:
        replica = await Replica(store.url, (), server__roles=("lookup",)).start()  # which puts nothing itself
        parts = replica.part._parts
        for source in (A, B):
            parts.configured[source] = Descriptor(pod=source.pod, endpoint="tcp://127.0.0.1:1", origin="flag")

        async def put(pod: str) -> tuple[bytes | None, int]:
            number = parts.partition_of(SourceId(pod, 0))
            keys = replica.part._keys[number]
            await put_configured(parts, keys, number, await parts.client.fields(keys.sources))
            return store.look.hget(keys.sources, f"{pod}#0"), store.look.xlen(keys.control)

        async def other(pod: str, port: int, *, cordoned: bool = False) -> bytes:
            number = parts.partition_of(SourceId(pod, 0))
            packed = pack_registered(
                Registered(Descriptor(pod=pod, endpoint=f"tcp://127.0.0.1:{port}", origin="config"), cordoned)
            )
            order = Command(verb="put", source=SourceId(pod, 0), nonce=f"{port}", descriptor=packed)
            await give(parts.client, replica.part._keys[number], order, 3_600_000)
            return packed

        before = await other("a", 9, cordoned=True)
        after, commands = await put("a")
        assert before != after
        assert (parts.configured[A], True) == _told(after)
        assert (after, commands) == await put("a")

        changed = await other("a", 8)
        assert (changed, commands + 1) == await put("a")
        equal = await other("b", 1)  # by the file, where this one has it by a flag
        assert (equal, 1) == await put("b")
        keys = replica.part._keys[parts.partition_of(A)]
        store.look.hdel(keys.sources, "a#0")
        assert (parts.configured[A], False) == _told((await put("a"))[0])
        await replica.stop()

    run(body)


def _told(packed: bytes | None) -> tuple[Descriptor, bool]:
    assert packed is not None
    registered = unpack_registered(packed)
    return registered.descriptor, registered.cordoned


def test_a_change_from_replica_to_replica(store: Store) -> None:
    """What comes with it is there at once; what goes with it goes once, when the last one has it."""

    async def body() -> None:
        together = Together(store)
        first = await together.started("r1", "a", "b")
        second = await together.started("r2", "a", "b")
        for pod in "ab":
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        await first.stop()
        await owns_all(second)
        first = await together.started("r1", "a", "c")
        await second.until(lambda: C in second.collector.resumed)
        assert BLOCK == second.ask(prompt(1), "b").matched_tokens
        await second.written()
        await second.stop()
        await owns_all(first)
        assert B in first.node.registry.sources
        second = await together.started("r2", "a", "c")

        await first.until(lambda: {A, C} == first.node.registry.sources.keys())
        await second.until(lambda: {A, C} == second.node.registry.sources.keys())
        assert BLOCK == first.ask(prompt(1), "a").matched_tokens
        assert B not in first.collector.resumed
        await first.stop()
        await second.stop()

    run(body)


def test_equal_configurations_have_equal_digests() -> None:
    """Whatever the order, and by flags or by the file."""
    a, b = (Descriptor(pod=pod, endpoint="tcp://127.0.0.1:1", origin="flag") for pod in "ab")
    from_file = Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="config")
    assert digest_of([a, b]) == digest_of([b, from_file])
    assert 4 == len({digest_of(each) for each in ([], [a], [b], [a, b])})
