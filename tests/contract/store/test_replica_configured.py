"""Replicas that are configured differently, for a while or for good: nothing is taken out that one of them names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from indexer.model import Descriptor, SourceId
from indexer.partitions.configuring import digest_of, put_configured
from indexer.store.commands import Command, give
from indexer.store.registered import Registered, pack_registered, unpack_registered
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

A, B, C = (SourceId(pod, 0) for pod in "abc")


async def owns_all(replica: Replica) -> None:
    """Until it does."""
    await replica.until(lambda: all(owner.role == "owner" for owner in replica.part.owners.values()))


@pytest.mark.parametrize("ends", ["dies", "stops"])
def test_who_names_nothing_takes_nothing(store: Store, ends: Literal["dies", "stops"]) -> None:
    """One with sources and one without: whichever takes over, what is held goes on."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b")).start()
        for pod in "ab":
            first.say(pod, stored([1, 2], prompt(2)))
        generations = {pod: first.sink(pod).source.facts.generation for pod in "ab"}
        await first.written()
        bare = await Replica(store.url, (), name="r2").start()
        await (first.die() if ends == "dies" else first.stop())

        await owns_all(bare)
        for pod in "ab":
            assert 2 * BLOCK == bare.ask(prompt(2), pod).matched_tokens
            bare.say(pod, stored([3], prompt(1, 50), parent=2))
        await bare.written()
        again = await Replica(store.url, ("a", "b")).start()
        await bare.stop()

        await owns_all(again)
        for pod in "ab":
            assert 3 * BLOCK == again.ask([*prompt(2), *prompt(1, 50)], pod).matched_tokens
        assert generations == {pod: again.sink(pod).source.facts.generation for pod in "ab"}
        await again.stop()

    run(body)


def test_what_another_replica_names_is_collected(store: Store) -> None:
    """At once, whoever owns it; and one that it names otherwise is registered anew, once."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b")).start()
        second = Replica(store.url, ("c",), name="r2")
        changed = Descriptor(pod="b", endpoint="tcp://127.0.0.1:9", origin="flag")
        second.part._parts.configured[B] = changed
        await second.start()

        for each in (first, second):
            await each.until(lambda each=each: {A, B, C} == each.node.registry.sources.keys())
            await each.until(lambda each=each: changed == each.sink("b").descriptor)
        await first.until(lambda: C in first.collector.resumed or C in second.collector.resumed)
        await first.die()
        await owns_all(second)
        generation = second.sink("b").source.facts.generation
        third = await Replica(store.url, ("a",)).start()
        await second.stop()

        await owns_all(third)  # its first opening, and it names only one of them
        assert {A, B, C} == third.node.registry.sources.keys()
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
        first = await Replica(store.url, ("a", "b")).start()
        for pod in "ab":
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        second = await Replica(store.url, ("a", "b"), name="r2").start()
        await first.stop()
        await owns_all(second)
        first = await Replica(store.url, ("a", "c")).start()
        for each in (first, second):
            await each.until(lambda each=each: {A, B, C} == each.node.registry.sources.keys())
            await each.until(lambda each=each: BLOCK == each.ask(prompt(1), "b").matched_tokens)
        await second.stop()
        await owns_all(first)
        assert {A, B, C} == first.node.registry.sources.keys()
        second = await Replica(store.url, ("a", "c"), name="r2").start()

        for each in (first, second):
            await each.until(lambda each=each: {A, C} == each.node.registry.sources.keys())
            await each.until(lambda each=each: B not in each.collector.resumed)
            await each.until(lambda each=each: BLOCK == each.ask(prompt(1), "a").matched_tokens)
        await first.stop()
        await second.stop()

    run(body)


def test_equal_configurations_have_equal_digests() -> None:
    """Whatever the order, and by flags or by the file."""
    a, b = (Descriptor(pod=pod, endpoint="tcp://127.0.0.1:1", origin="flag") for pod in "ab")
    from_file = Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="config")
    assert digest_of([a, b]) == digest_of([b, from_file])
    assert 4 == len({digest_of(each) for each in ([], [a], [b], [a, b])})
