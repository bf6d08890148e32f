"""Several replicas on one store: commands from any of them, followers that answer alike, one that takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from indexer.errors import SourceConflictError
from indexer.model import Descriptor, SourceId
from indexer.store.commands import Command, Verb, give
from indexer.store.registered import Registered, pack_registered
from tests.support.core_events import BLOCK, prompt, removed, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

ONLY_LOOKUP: dict[str, Any] = {"server__roles": ("lookup",)}


async def pair(store: Store, *pods: str) -> tuple[Replica, Replica]:
    """One that collects, and one that only follows."""
    return await Replica(store.url, pods).start(), await Replica(store.url, (), name="r2", **ONLY_LOOKUP).start()


async def follows(owner: Replica, mirror: Replica, pod: str = "a") -> None:
    """Until the mirror is where the owner is."""
    key = SourceId(pod, 0)
    await mirror.until(lambda: key in mirror.node.registry.sources)
    await mirror.until(
        lambda: (
            mirror.sink(pod).cursor == owner.sink(pod).cursor
            and mirror.sink(pod).source.facts.generation == owner.sink(pod).source.facts.generation
            and not mirror.sink(pod).source.facts.loading
        )
    )


def test_a_mirror_answers_as_its_owner(store: Store) -> None:
    """What is held, where, how far it can be trusted, at which sequence."""

    async def body() -> None:
        owner, mirror = await pair(store, "a")
        owner.say("a", stored(range(1, 9), prompt(8)))
        owner.say("a", removed(8), stored([3, 4], prompt(2, 8), parent=2, medium="cpu"))
        await follows(owner, mirror)
        await mirror.until(lambda: "live" == mirror.ask(prompt(8)).state)
        here, there = owner.ask(prompt(8)), mirror.ask(prompt(8))

        assert 7 * BLOCK == there.matched_tokens
        assert (here.tiers, here.prefix, here.score, here.bound) == (
            there.tiers,
            there.prefix,
            there.score,
            there.bound,
        )
        assert (here.generation, here.sequence) == (there.generation, there.sequence)
        await mirror.until(lambda: owner.sink().source.holdings == mirror.sink().source.holdings)
        owner.sink().doubt("process_unproven")
        await mirror.until(lambda: "suspect" == mirror.ask(prompt(8)).state)
        await owner.stop()
        await mirror.stop()

    run(body)


def test_commands_at_a_mirror_reach_the_owner(store: Store) -> None:
    """Add, cordon, clear, remove: in force at both when the call returns, or soon."""

    async def body() -> None:
        owner, mirror = await pair(store, "a")
        descriptor = Descriptor(pod="b", endpoint="tcp://127.0.0.1:2")

        added = await mirror.node.add_source(descriptor)
        assert ("created", "done") == (added.result, added.effect)
        assert "same" == (await mirror.node.add_source(descriptor)).result
        await owner.until(lambda: SourceId("b", 0) in owner.collector.resumed)
        owner.say("b", stored([1], prompt(1)))
        await follows(owner, mirror, "b")

        await mirror.node.cordon_source("b", None, cordoned=True)
        await owner.until(lambda: owner.sink("b").source.facts.cordoned)
        await mirror.node.cordon_source("b", None, cordoned=False)

        cleared = await mirror.node.clear_source("b", None)
        assert ("done", 1) == (cleared.effect, cleared.sources)
        assert 0 == mirror.ask(prompt(1), "b").matched_tokens
        generation = mirror.sink("b").source.facts.generation
        await owner.until(lambda: generation == owner.sink("b").source.facts.generation)
        assert 0 == owner.ask(prompt(1), "b").matched_tokens
        owner.say("b", stored([2], prompt(1, 50)))
        await follows(owner, mirror, "b")
        await mirror.until(lambda: BLOCK == mirror.ask(prompt(1, 50), "b").matched_tokens)
        assert "lower" == mirror.ask(prompt(1, 50), "b").bound

        await mirror.node.remove_source("b", None)
        assert SourceId("b", 0) not in mirror.node.registry.sources
        await owner.until(lambda: SourceId("b", 0) not in owner.node.registry.sources)
        await owner.until(lambda: SourceId("b", 0) not in owner.collector.resumed)
        with pytest.raises(SourceConflictError):
            await mirror.node.remove_source("a", None)  # a flag's
        await owner.stop()
        await mirror.stop()

    run(body)


def test_a_whole_list_of_sources(store: Store) -> None:
    """Sources come, stay, change and go; one that changes begins anew."""

    async def body() -> None:
        owner, mirror = await pair(store, "a")
        sources = [Descriptor(pod=pod, endpoint=f"tcp://127.0.0.1:{port}") for pod, port in (("b", 2), ("c", 3))]
        assert 2 == (await mirror.node.replace_api_sources(sources)).added
        await owner.until(lambda: SourceId("c", 0) in owner.collector.resumed)
        owner.say("b", stored([1], prompt(1)))
        owner.say("c", stored([1], prompt(1)))
        changed = Descriptor(pod="c", endpoint="tcp://127.0.0.1:4")

        replaced = await owner.node.replace_api_sources([sources[0], changed])

        assert (1, 1, 0) == (replaced.added, replaced.kept, replaced.removed)
        await owner.until(lambda: changed == owner.sink("c").descriptor)
        assert BLOCK == owner.ask(prompt(1), "b").matched_tokens
        assert 0 == owner.ask(prompt(1), "c").matched_tokens
        assert 2 == (await mirror.node.replace_api_sources([])).removed
        await owner.until(lambda: ["a"] == [key.pod for key in owner.node.registry.sources])
        await owner.stop()
        await mirror.stop()

    run(body)


def test_a_second_collector_follows_and_takes_over(store: Store) -> None:
    """When the first one's lease is over; it goes on where that one stood, under the same generation."""

    async def body() -> None:
        first = await Replica(store.url, ("a",)).start()
        second = await Replica(store.url, ("a",), name="r2").start()
        first.say("a", stored([1, 2], prompt(2)))
        await follows(first, second)
        assert {} == second.collector.resumed
        generation = first.sink().source.facts.generation
        await first.written()
        await first.die()

        await second.until(lambda: SourceId("a", 0) in second.collector.resumed)

        assert generation == second.sink().source.facts.generation
        assert 2 * BLOCK == second.ask(prompt(2)).matched_tokens
        second.say("a", removed(2))
        assert BLOCK == second.ask(prompt(2)).matched_tokens
        await second.written()
        await second.stop()

    run(body)


def test_who_was_fenced_reads_again(store: Store) -> None:
    """Another replica wrote meanwhile: what this one knew is void, and it follows."""

    async def body() -> None:
        first = await Replica(store.url, ("a",)).start()
        first.say("a", stored([1, 2], prompt(2)))
        await first.written()
        for owner in first.part.owners.values():
            store.look.delete(owner._keys.owner)
        second = Replica(store.url, ("a",), name="r2")
        await second.start()
        await second.until(
            lambda: all(
                owner.role == "owner" or first.part.owners[number].role == "owner"
                for number, owner in second.part.owners.items()
            )
        )
        number = first.part._parts.partition_of(SourceId("a", 0))
        owns = second if second.part.owners[number].role == "owner" else first
        follower = first if owns is second else second
        await owns.until(lambda: SourceId("a", 0) in owns.collector.resumed)
        owns.say("a", stored([3], prompt(1, 8), parent=2))
        await follows(owns, follower)

        assert SourceId("a", 0) not in follower.collector.resumed
        await follower.until(lambda: 3 * BLOCK == follower.ask(prompt(3)).matched_tokens)
        await second.stop()
        await first.stop()

    run(body)


@pytest.mark.parametrize("verb", ["remove", "clear", "put"])
def test_a_command_that_an_engine_overtakes(store: Store, verb: Verb) -> None:
    """The engine begins anew before the owner reads the command: its generation is later, and the command counts."""

    async def body() -> None:
        owner, mirror = await pair(store, "a")
        await owner.node.add_source(Descriptor(pod="b", endpoint="tcp://127.0.0.1:2"))
        owner.say("b", stored([1], prompt(1)))
        await owner.written()
        key, parts = SourceId("b", 0), owner.part._parts
        changed = Descriptor(pod="b", endpoint="tcp://127.0.0.1:3")
        packed = pack_registered(Registered(changed)) if verb == "put" else b""
        keys = owner.part._keys[parts.partition_of(key)]

        sink = owner.sink("b")
        before = sink.source.facts.generation
        await give(parts.client, keys, Command(verb=verb, source=key, nonce="n", descriptor=packed), 3_600_000)
        is_first = sink.open and sink.source.facts.generation == before
        sink.restart("sequence_went_back")
        if is_first:  # else the owner was faster
            owner.say("b", stored([2], prompt(1, 50)))

        if verb == "remove":
            await owner.until(lambda: key not in owner.node.registry.sources)
            await mirror.until(lambda: key not in mirror.node.registry.sources)
        else:
            await owner.until(lambda: 0 == owner.ask(prompt(1, 50), "b").matched_tokens)
            await owner.written()
            await follows(owner, mirror, "b")
            assert (changed if verb == "put" else sink.descriptor) == mirror.sink("b").descriptor
            await mirror.until(lambda: 0 == mirror.ask(prompt(1, 50), "b").matched_tokens)
        await owner.stop()
        await mirror.stop()

    run(body)
