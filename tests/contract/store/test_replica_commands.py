"""Commands at any replica: in force everywhere when the answer comes; none is lost, none has an effect twice."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Literal

import pytest
from msgspec.structs import replace

from indexer.errors import LimitReachedError, SourceConflictError
from indexer.model import Descriptor, SourceId
from indexer.store.commands import Command, give
from indexer.store.entries import Ticked, decode_entry
from indexer.store.registered import Registered, pack_registered
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

ONLY_LOOKUP: dict[str, Any] = {"server__roles": ("lookup",)}
B = SourceId("b", 0)
POD_B = Descriptor(pod="b", endpoint="tcp://127.0.0.1:2")


async def three(store: Store, *pods: str, **settings: Any) -> tuple[Replica, Replica, Replica]:  # noqa: ANN401  any settings
    """One owns everything, two follow."""
    owner = await Replica(store.url, pods, **settings).start()
    mirrors = [await Replica(store.url, (), name=name, **ONLY_LOOKUP, **settings).start() for name in ("r2", "r3")]
    return owner, mirrors[0], mirrors[1]


async def end(*replicas: Replica) -> None:
    """A clean stop of all."""
    for replica in replicas:
        await replica.stop()


def _owned(replica: Replica) -> int:
    """Partitions that it owns."""
    return sum(owner.role == "owner" for owner in replica.part.owners.values())


def _is_cordoned(replica: Replica, cordoned: bool) -> bool:
    return cordoned is replica.sink("b").source.facts.cordoned


def control(store: Store, replica: Replica, pod: str = "b") -> list[bytes]:
    """Verbs of all commands given in the pod's partition."""
    keys = replica.part._keys[replica.part._parts.partition_of(SourceId(pod, 0))]
    return [fields[b"v"] for _, fields in store.look.xrange(keys.control)]


def test_each_command_is_one_line_that_says_who_gave_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """At the replica where it was given, as in memory mode."""
    caplog.set_level("INFO", "kvindexer.sources")

    async def body() -> None:
        here = await Replica(store.url, ()).start()
        by = "token ops"
        await here.node.add_source(POD_B, by=by)
        await here.node.cordon_source("b", None, cordoned=True, by=by)
        await here.node.cordon_source("b", None, cordoned=False, by=by)
        await here.node.clear_source("b", None, by=by)
        await here.node.remove_source("b", None, by=by)
        await here.node.replace_api_sources([POD_B], by=by)
        await here.stop()
        said = [record.getMessage() for record in caplog.records if by in record.getMessage()]
        assert [
            "source b: registered by token ops, events at tcp://127.0.0.1:2",
            *(f"source b: {what} by token ops" for what in ("cordoned", "uncordoned", "cleared", "removed")),
            "list of sources by token ops: 1 added or changed (b), 0 removed",
        ] == said

    run(body)


@pytest.mark.parametrize("at", ["owner", "standby", "lookup"])
def test_what_is_done_is_in_force_at_the_owner(store: Store, at: str) -> None:
    """When the call returns `done`, there and where it was given; at others soon. Wherever it is given."""

    async def body() -> None:
        two = [await Replica(store.url, ("a",), name=name, redis__partitions=2).start() for name in ("r1", "r2")]
        await two[0].until(lambda: [1, 1] == [_owned(each) for each in two])  # nothing moves any more
        lookups = [
            await Replica(store.url, (), name=name, redis__partitions=2, **ONLY_LOOKUP).start() for name in ("r3", "r4")
        ]
        number = two[0].part._parts.partition_of(B)
        (owner,) = [each for each in two if each.part.owners[number].role == "owner"]
        (standby,) = [each for each in two if each is not owner]
        replicas = [owner, standby, *lookups]
        here = {"owner": owner, "standby": standby, "lookup": lookups[0]}[at]
        others = [each for each in replicas if each not in {owner, here}]

        added = await here.node.add_source(POD_B)
        assert ("created", "done") == (added.result, added.effect)
        assert POD_B == owner.sink("b").descriptor == here.sink("b").descriptor
        await owner.until(lambda: B in owner.collector.resumed)
        owner.say("b", stored([1], prompt(1)))
        for each in replicas:
            await each.until(lambda each=each: B in each.node.registry.sources)
            await each.until(lambda each=each: BLOCK == each.ask(prompt(1), "b").matched_tokens)

        for cordoned in (True, False):
            assert "done" == (await here.node.cordon_source("b", None, cordoned=cordoned)).effect
            assert cordoned == owner.sink("b").source.facts.cordoned == here.sink("b").source.facts.cordoned
            for each in others:
                await each.until(partial(_is_cordoned, each, cordoned))

        assert "done" == (await here.node.clear_source("b", None)).effect
        assert 0 == owner.ask(prompt(1), "b").matched_tokens == here.ask(prompt(1), "b").matched_tokens
        for each in others:
            await each.until(lambda each=each: 0 == each.ask(prompt(1), "b").matched_tokens)

        changed = Descriptor(pod="b", endpoint="tcp://127.0.0.1:3")
        assert "done" == (await here.node.replace_api_sources([changed])).effect
        assert changed == owner.sink("b").descriptor == here.sink("b").descriptor
        for each in others:
            await each.until(lambda each=each: changed == each.sink("b").descriptor)

        assert "done" == (await here.node.remove_source("b", None)).effect
        assert B not in owner.node.registry.sources
        assert B not in here.node.registry.sources
        for each in others:
            await each.until(lambda each=each: B not in each.node.registry.sources)
        await end(*replicas)

    run(body)


def test_an_owner_that_does_not_hear_is_told(store: Store) -> None:
    """The command is kept, and not called done before the owner has come to it."""

    async def body() -> None:
        owner, mirror, third = await three(store, "a")
        hears = asyncio.Event()
        read_well = owner.part._control._read

        async def read(after: Any) -> Any:  # noqa: ANN401  passed on as it is
            await hears.wait()
            return await read_well(after)

        owner.part._control._read = read
        first = await mirror.node.add_source(Descriptor(pod="c", endpoint="tcp://127.0.0.1:9"))  # may still be heard
        added = await mirror.node.add_source(POD_B)
        assert first.result == added.result == "created"
        assert "accepted" == added.effect
        assert B not in owner.node.registry.sources
        hears.set()
        await owner.until(lambda: B in owner.node.registry.sources)
        assert "done" == (await mirror.node.cordon_source("b", None, cordoned=True)).effect
        await end(owner, mirror, third)

    run(body)


def test_who_gives_a_command_does_not_wait_for_the_next_tick(store: Store) -> None:
    """The owner ticks when it has obeyed one."""

    async def body() -> None:
        owner = Replica(store.url, ("a",))
        rarely = replace(owner.part._parts.options, tick_s=60.0)
        object.__setattr__(owner.part._parts, "options", rarely)
        await owner.start()
        mirror = await Replica(store.url, (), name="r2", **ONLY_LOOKUP).start()
        for cordoned in (True, False):
            assert "done" == (await mirror.node.cordon_source("a", None, cordoned=cordoned)).effect
        await end(owner, mirror)

    run(body)


def journal(store: Store, replica: Replica, pod: str = "b") -> list[object]:
    """What the journal tells, ticks left out."""
    keys = replica.part._keys[replica.part._parts.partition_of(SourceId(pod, 0))]
    told = [fields.get(b"e") for _, fields in store.look.xrange(keys.log)]
    return [entry for entry in map(decode_entry, filter(None, told)) if not isinstance(entry, Ticked)]


def test_a_registrar_that_posts_again_and_again(store: Store) -> None:
    """At any replica, whether or not the source is cordoned meanwhile: nothing is written, nothing begins anew."""

    async def body() -> None:
        replicas = await three(store, "a")
        owner = replicas[0]
        assert "created" == (await replicas[1].node.add_source(POD_B)).result
        await owner.until(lambda: B in owner.collector.resumed)
        owner.say("b", stored([1], prompt(1)))
        await owner.written()
        await replicas[2].until(lambda: B in replicas[2].node.registry.sources)
        await replicas[2].node.cordon_source("b", None, cordoned=True)
        generation = owner.sink("b").source.facts.generation
        before = control(store, owner), journal(store, owner)

        for _ in range(3):
            for replica in replicas:
                await replica.until(lambda replica=replica: B in replica.node.registry.sources)
                again = await replica.node.add_source(POD_B)
                assert ("same", "done") == (again.result, again.effect)
                kept = await replica.node.replace_api_sources([POD_B])
                assert (0, 1, 0, "done") == (kept.added, kept.kept, kept.removed, kept.effect)

        assert before == (control(store, owner), journal(store, owner))
        assert [generation] * 3 == [each.sink("b").source.facts.generation for each in replicas]
        assert all(each.sink("b").source.facts.cordoned for each in replicas)
        await end(*replicas)

    run(body)


@pytest.mark.parametrize("origin", ["api", "flag"])
def test_a_registration_that_this_replica_does_not_know_yet(store: Store, origin: Literal["api", "flag"]) -> None:
    """It reads commands late: an equal one, though it be cordoned, changes nothing; one that differs is refused."""

    async def body() -> None:
        owner, behind, third = await three(store, "a")
        partition = behind.part._parts.partition_of(B)
        owner.part._parts.configured[B] = replace(POD_B, origin=origin)  # else it would take out what a flag named
        async with behind.part.followers._partitions[partition].turn:  # nothing of it is entered now
            packed = pack_registered(Registered(replace(POD_B, origin=origin), cordoned=True))
            order = Command(verb="put", source=B, nonce="n", descriptor=packed)
            await give(owner.part._parts.client, owner.part._keys[partition], order, 3_600_000)
            await owner.until(lambda: B in owner.node.registry.sources)
            before = control(store, owner)

            again = await behind.node.add_source(POD_B)
            assert ("same", "accepted") == (again.result, again.effect)
            with pytest.raises(SourceConflictError):
                await behind.node.add_source(replace(POD_B, model="other"))
            await behind.node.replace_api_sources([POD_B])
            assert before == control(store, owner)
        await behind.until(lambda: B in behind.node.registry.sources)
        assert behind.sink("b").source.facts.cordoned
        await end(owner, behind, third)

    run(body)


def test_two_replicas_get_it_at_once(store: Store) -> None:
    """One of them registers it, whatever the order; both answer when it is in force."""

    async def body() -> None:
        replicas = await three(store, "a")
        for number in range(20):
            descriptor = Descriptor(pod=f"pod-{number}", endpoint="tcp://127.0.0.1:2")
            async with asyncio.TaskGroup() as tasks:
                calls = [tasks.create_task(each.node.add_source(descriptor)) for each in replicas]
            results = [call.result() for call in calls]
            assert ["created", "same", "same"] == sorted(each.result for each in results)
            assert ["done"] * 3 == [each.effect for each in results]
        given = {key: store.look.xlen(keys.control) for key, keys in replicas[0].part._keys.items()}
        assert 21 == sum(given.values())  # and the one that is configured
        await end(*replicas)

    run(body)


def test_a_cordon_leaves_a_registration_that_is_not_known_yet(store: Store) -> None:
    """It was changed elsewhere a moment ago: only the cordon is added to it."""

    async def body() -> None:
        owner, behind, third = await three(store, "a")
        assert "done" == (await behind.node.add_source(POD_B)).effect
        changed = replace(POD_B, endpoint="tcp://127.0.0.1:7", origin="api")
        partition = behind.part._parts.partition_of(B)
        async with behind.part.followers._partitions[partition].turn:  # nothing of it is entered now
            assert "done" == (await owner.node.replace_api_sources([changed])).effect
            generation = owner.sink("b").source.facts.generation
            assert "accepted" == (await behind.node.cordon_source("b", None, cordoned=True)).effect
        for each in (owner, behind, third):
            await each.until(lambda each=each: each.sink("b").source.facts.cordoned)
            assert (changed, generation) == (each.sink("b").descriptor, each.sink("b").source.facts.generation)
        await end(owner, behind, third)

    run(body)


def test_the_limit_of_clears_holds_for_all_together(store: Store) -> None:
    """Wherever they are given; each counts once, also where it was given, and a pod once, however many ranks it has."""

    async def body() -> None:
        replicas = await three(store, "a", limits__max_clears_per_minute=4)
        owner = replicas[0]
        ranks = [replace(POD_B, dp_rank=rank) for rank in range(3)]
        for descriptor in ranks:
            await owner.node.add_source(descriptor)
        for each in replicas:
            await each.until(lambda each=each: {key.pod for key in each.node.registry.sources} == {"a", "b"})

        def cleared() -> list[int]:
            return [len(each.node.roster.clears._cleared) for each in replicas]

        await replicas[1].node.clear_source("b", None)
        await replicas[1].until(lambda: [1, 1, 1] == cleared())
        await owner.node.clear_source("b", 1)
        await owner.until(lambda: [2, 2, 2] == cleared())
        await replicas[2].until(lambda: not replicas[2].sink("b").source.facts.loading)
        await replicas[2].node.replace_api_sources([], max_removals=3)  # what the caller allows itself
        await owner.until(lambda: all(len(each.node.registry.sources) == 1 for each in replicas))
        for descriptor in ranks:
            await owner.node.add_source(descriptor)
            owner.sink("b")
        await owner.until(lambda: B in owner.collector.resumed)
        owner.say("b", stored([1], prompt(1)))
        await replicas[2].until(lambda: B in replicas[2].node.registry.sources)
        await replicas[2].until(lambda: any(replicas[2].sink("b").source.holdings[1:]))
        await replicas[2].node.remove_source("b", None)
        await owner.until(lambda: [3, 3, 3] == cleared())
        await replicas[1].node.clear_source("a", None)
        await owner.until(lambda: [4, 4, 4] == cleared())

        for each in replicas:
            with pytest.raises(LimitReachedError):
                await each.node.clear_source("a", None)
        assert {"limits.max_clears_per_minute": 1} == owner.node.telemetry.limits_reached
        await end(*replicas)

    run(body)


def test_a_command_while_nobody_owns(store: Store) -> None:
    """It is kept, in force where it was given, and whoever owns next begins with it: nothing of before counts (P4)."""

    async def body() -> None:
        owner, mirror, third = await three(store, "a", "b", "c", "d")
        for pod in "abcd":
            owner.say(pod, stored([1], prompt(1)))
        await owner.written()
        for pod in "abcd":
            await mirror.until(lambda pod=pod: BLOCK == mirror.ask(prompt(1), pod).matched_tokens)
        await owner.die()
        for keys in owner.part._keys.values():
            store.look.delete(keys.owner)

        new = Descriptor(pod="e", endpoint="tcp://127.0.0.1:5")
        async with asyncio.TaskGroup() as tasks:
            clear = tasks.create_task(mirror.node.clear_source("b", None))
            cordon = tasks.create_task(mirror.node.cordon_source("c", None, cordoned=True))
            add = tasks.create_task(mirror.node.add_source(new))
            assert 0 == (await clear_shows(mirror))
        assert ["accepted"] * 3 == [call.result().effect for call in (clear, cordon, add)]
        assert "created" == add.result().result

        second = await Replica(store.url, ("a", "b", "c", "d"), name="r9").start()
        await second.until(lambda: {*"abcde"} == {key.pod for key in second.collector.resumed})
        assert 0 == second.ask(prompt(1), "b").matched_tokens
        for pod in "ab":  # else what was said before would come back by replay
            resume = second.collector.resumed[SourceId(pod, 0)]
            assert resume is not None
            assert (0, owner.sink(pod).source.facts.stamp) == (resume.sequence, resume.stamp)
        assert second.collector.resumed[SourceId("e", 0)] is None
        second.say("b", stored([2], prompt(1, 50)))
        assert (BLOCK, "lower") == (second.ask(prompt(1, 50), "b").matched_tokens, second.ask(prompt(1, 50), "b").bound)
        assert BLOCK == second.ask(prompt(1), "a").matched_tokens
        assert second.sink("c").source.facts.cordoned
        assert "done" == (await mirror.node.clear_source("d", None)).effect
        for each in (second, mirror):
            assert 0 == each.ask(prompt(1), "d").matched_tokens
        await mirror.until(lambda: BLOCK == mirror.ask(prompt(1), "a").matched_tokens)
        assert 0 == mirror.ask(prompt(1), "b").matched_tokens
        await end(second, mirror, third)

    run(body)


async def clear_shows(mirror: Replica) -> int:
    """What is left of the blocks of a source that is cleared, once that is in force here."""
    await mirror.until(lambda: 0 == mirror.ask(prompt(1), "b").matched_tokens)
    return mirror.ask(prompt(1), "b").matched_tokens


def test_commands_while_partitions_move(store: Store) -> None:
    """A replica is drained, and its sources are cleared on the way: wherever that is, nothing of before counts (P4)."""

    async def body() -> None:
        pods = "abcdefgh"
        two = [await Replica(store.url, (*pods,), name=name, redis__partitions=4).start() for name in ("r1", "r2")]
        mirror = await Replica(store.url, (), name="r3", redis__partitions=4, **ONLY_LOOKUP).start()
        await mirror.until(lambda: [2, 2] == [_owned(each) for each in two])
        for pod in pods:
            number = mirror.part._parts.partition_of(SourceId(pod, 0))
            (owner,) = [each for each in two if each.part.owners[number].role == "owner"]
            owner.say(pod, stored([1], prompt(1)))
        for each, pod in product([*two, mirror], pods):
            await each.until(lambda each=each, pod=pod: BLOCK == each.ask(prompt(1), pod).matched_tokens)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(mirror.part.draining.drain("r1"))
            for each, pod in zip(cycle([mirror, *two]), pods):
                tasks.create_task(_clear(each, pod))
        await mirror.until(lambda: [0, 4] == [_owned(each) for each in two])

        for each, pod in product([*two, mirror], pods):
            await each.until(lambda each=each, pod=pod: 0 == each.ask(prompt(1), pod).matched_tokens)
        for pod in pods:
            two[1].say(pod, stored([2], prompt(1, 50)))
        for each, pod in product([*two, mirror], pods):
            await each.until(lambda each=each, pod=pod: BLOCK == each.ask(prompt(1, 50), pod).matched_tokens)
            assert 0 == each.ask(prompt(1), pod).matched_tokens
        await end(*two, mirror)

    run(body)


async def _clear(replica: Replica, pod: str) -> None:
    """And nothing of before is seen there from the answer on, if it says so."""
    cleared = await replica.node.clear_source(pod, None)
    if cleared.effect == "done":
        assert 0 == replica.ask(prompt(1), pod).matched_tokens
