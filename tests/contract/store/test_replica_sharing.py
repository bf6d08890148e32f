"""Several replicas on one store: partitions are shared out, move calmly, and never have two owners."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from indexer.partitions.membership import SILENT_BEATS
from indexer.sharding.rendezvous import share_out
from indexer.store.layout import PartitionKeys, tags
from tests.support.core_events import prompt, stored
from tests.support.proxy import Proxy
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.ingest import SourceSink
    from indexer.model import SourceId
    from tests.support.redis_servers import Store

PODS: Final = [f"p{number}" for number in range(24)]
PARTITIONS: Final = 16
KEYS: Final = [PartitionKeys("kvi", tag) for tag in tags(PARTITIONS)]


def owned(replica: Replica) -> set[int]:
    """Partitions that a replica owns."""
    return {number for number, owner in replica.part.owners.items() if owner.role == "owner"}


def is_planned(replicas: Sequence[Replica]) -> bool:
    """Whether every partition is where the plan of these replicas has it."""
    names = [replica.part._parts.options.name for replica in replicas]
    plan = share_out(PARTITIONS, names)
    return all(
        owned(replica) == {number for number, share in enumerate(plan) if share.owner == name}
        for name, replica in zip(names, replicas, strict=True)
    )


async def started(store: Store, *names: str, **settings: Any) -> list[Replica]:  # noqa: ANN401  settings of any kind
    """Replicas of these names, one after the other."""
    return [await Replica(store.url, PODS, name=name, **settings).start() for name in names]


def test_three_share_the_partitions(store: Store) -> None:
    """Who comes later gets its share, a partition a second, and all of it is applied somewhere."""

    async def body() -> None:
        replicas = await started(store, "r1", "r2", "r3")
        await replicas[0].until(lambda: is_planned(replicas))
        applied = [pod for replica in replicas for pod in PODS if not replica.sink(pod).followed]
        assert sorted(PODS) == sorted(applied)
        for replica in replicas:
            await replica.stop()

    run(body)


def test_who_stops_leaves_all_to_the_others_at_once(store: Store) -> None:
    """In order: nobody waits for a lease."""

    async def body() -> None:
        first, second = await started(store, "r1", "r2")
        await first.until(lambda: is_planned([first, second]))
        went = owned(first)
        await first.stop()
        await second.until(lambda: is_planned([second]))
        assert second.part.sharing.takeovers["handed_over"] >= len(went)
        await second.stop()

    run(body)


def test_who_stops_is_replaced_before_it_lets_go(store: Store) -> None:
    """Also where nobody listened along: somebody does, of all that it applied, at the moment when it stops applying."""

    async def body() -> None:
        first, second = await started(store, "r1", "r2", redis__standby=0)
        await first.until(lambda: is_planned([first, second]))
        applied = {each.descriptor.id for each in sinks(first)}
        heard: dict[SourceId, bool] = {}
        step_down = first.collector.step_down

        def let_go(source: SourceId) -> None:
            heard[source] = source in second.collector.listened
            step_down(source)

        first.collector.step_down = let_go  # type: ignore[method-assign]  # the harness's own: what it is told is noted
        assert applied
        await first.stop()
        assert dict.fromkeys(applied, True) == heard
        await second.until(lambda: is_planned([second]))
        await second.stop()

    run(body)


def test_what_is_held_back_is_not_handed_over(store: Store) -> None:
    """Messages that wait for a replay only this replica has; where the engine is not there nothing is waited for."""

    async def body() -> None:
        (first,) = await started(store, "r1")
        for sink in sinks(first):
            sink.alive(connected=True)
            sink.syncing(active=True)
        (second,) = await started(store, "r2")
        name = second.part._parts.options.name
        planned = [number for number, share in enumerate(share_out(PARTITIONS, ["r1", name])) if share.owner == name]
        laden = {first.part._parts.partition_of(sink.descriptor.id) for sink in sinks(first)} & set(planned)
        await first.until(lambda: set(planned) - laden == owned(second) and laden <= second.part.sharing._ready)
        assert laden
        assert laden <= owned(first)
        for sink in sinks(first):
            sink.syncing(active=False)
        await first.until(lambda: is_planned([first, second]))
        await second.stop()
        await first.stop()

    run(body)


def test_who_takes_over_looks_in_time(store: Store) -> None:
    """With a long lease a partition of others is looked at seldom; what is reserved here is not, for a moment only."""

    async def body() -> None:
        first = await Replica(store.url, PODS, name="r1", redis__lease_s=60.0, redis__partitions=2).start()
        second = await Replica(store.url, PODS, name="r2", redis__lease_s=60.0, redis__partitions=2).start()
        await first.until(lambda: [1, 1] == [len(owned(each)) for each in (first, second)])
        taken = second.part.sharing.takeovers["handed_over"]
        await first.stop()
        await second.until(lambda: owned(second) == {0, 1})
        assert taken + 1 == second.part.sharing.takeovers["handed_over"]
        await second.stop()

    run(body)


def test_who_is_back_before_its_lease_ends_leaves_all_to_who_listened(store: Store) -> None:
    """A new process of a name heard nothing since the one before it died; who stood by did, and does not wait."""

    async def body() -> None:
        first, second = await started(store, "r1", "r2", redis__lease_s=40.0, redis__min_hold_s=3_600.0)
        await second.until(lambda: is_planned([first, second]))
        went, came = owned(first), second.part.sharing.takeovers["handed_over"]
        await second.until(lambda: went <= second.part.sharing._ready)
        await second.part.sharing.membership.beat()
        await first.die()
        again = await Replica(store.url, PODS, name="r1", redis__lease_s=40.0, redis__min_hold_s=3_600.0).start()
        await second.until(lambda: owned(second) == set(range(PARTITIONS)))
        assert went
        assert came + len(went) == second.part.sharing.takeovers["handed_over"]
        assert {} == dict(again.part.sharing.takeovers)
        await again.stop()
        await second.stop()

    run(body)


def test_who_dies_is_replaced_when_its_lease_ends(store: Store) -> None:
    """By whoever stood by."""

    async def body() -> None:
        replicas = await started(store, "r1", "r2", "r3")
        await replicas[0].until(lambda: is_planned(replicas))
        died, *left = replicas
        plan = share_out(PARTITIONS, ["r1", "r2", "r3"])
        heirs = {number: plan[number].standby for number in owned(died)}
        await died.die()
        await left[0].until(lambda: is_planned(left))
        for replica in left:
            name = replica.part._parts.options.name
            inherited = {number for number, heir in heirs.items() if heir == name}
            assert inherited <= owned(replica)
            assert len(inherited) == replica.part.sharing.takeovers["lease_expired"]
        for replica in left:
            await replica.stop()

    run(body)


@pytest.mark.slow
def test_who_comes_while_somebody_dies_does_not_take_the_standbys_place(store: Store) -> None:
    """Only the standby has what the dead one had received: it goes on with all of it, and the newcomer has its turn."""

    async def body() -> None:
        first, second = await started(store, "r1", "r2", redis__lease_s=4.0)
        await first.until(lambda: is_planned([first, second]))
        went = owned(first)
        await first.die()
        silent_s = SILENT_BEATS * 0.2
        members = second.part.sharing.membership.members
        await second.until(lambda: members.everyone(second.node.clock.now())["r1"][0] > silent_s)
        third = (await started(store, "r3", redis__lease_s=4.0))[0]
        await second.until(lambda: is_planned([second, third]))
        assert len(went) == second.part.sharing.takeovers["lease_expired"]
        assert not third.part.sharing.takeovers["lease_expired"]
        await second.stop()
        await third.stop()

    run(body)


def owners_of(replicas: Sequence[Replica]) -> list[set[int]]:
    """Partitions of each."""
    return [owned(replica) for replica in replicas]


def owning(replicas: Sequence[Replica]) -> list[tuple[int, Any]]:
    """All partitions that are owned, and their owners."""
    return [
        (number, owner)
        for replica in replicas
        for number, owner in replica.part.owners.items()
        if owner.role == "owner"
    ]


def generations(replicas: Sequence[Replica]) -> dict[str, int]:
    """Of all sources, as their owners have them."""
    return {
        pod: replica.sink(pod).source.facts.generation
        for replica in replicas
        for pod in PODS
        if not replica.sink(pod).followed
    }


def test_an_emptied_store_gives_nothing_to_anybody_else(store: Store) -> None:
    """Leases went before their time: whoever had a partition has it again, and its sources go on."""

    async def body() -> None:
        replicas = await started(store, "r1", "r2", "r3")
        await replicas[0].until(lambda: is_planned(replicas))
        for replica in replicas:
            for pod in PODS:
                if not replica.sink(pod).followed:
                    replica.say(pod, stored([1], prompt(1)))
        before, lives = owners_of(replicas), generations(replicas)
        epochs = {number: owner.position.epoch for number, owner in owning(replicas)}
        for replica in replicas:
            await replica.written()
        store.empty()
        await replicas[0].until(
            lambda: (
                before == owners_of(replicas)
                and all(owner.position.epoch > epochs[number] for number, owner in owning(replicas))
            )
        )
        for replica in replicas:
            await replica.written()
        assert (before, lives) == (owners_of(replicas), generations(replicas))
        assert not any(replica.part.sharing.takeovers["lease_expired"] for replica in replicas)
        for replica in replicas:
            await replica.stop()

    run(body)


@pytest.mark.slow
def test_after_an_outage_everybody_has_what_they_had(store: Store) -> None:
    """All leases ran out; nobody's source began anew."""

    async def body() -> None:
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(store.servers[0].port).running()) for _ in range(3)]
            replicas = [await Replica(proxy.url, PODS, name=f"r{place}").start() for place, proxy in enumerate(proxies)]
            await replicas[0].until(lambda: is_planned(replicas))
            before, lives = owners_of(replicas), generations(replicas)
            for proxy in proxies:
                proxy.set("reset")
            await replicas[0].until(lambda: not store.look.exists(*(keys.owner for keys in KEYS)))
            for replica in replicas:
                await replica.until(lambda r=replica: r.part.sharing.membership.is_cut)
            for proxy in reversed(proxies):
                proxy.set("pass")
            await replicas[0].until(lambda: store.look.exists(*(keys.owner for keys in KEYS)) == PARTITIONS)
            await replicas[0].until(lambda: before == owners_of(replicas))
            assert lives == generations(replicas)
            assert not any(replica.part.sharing.takeovers["lease_expired"] for replica in replicas)
            for replica in replicas:
                await replica.stop()

    if store.kind != "cluster":
        run(body)


@pytest.mark.slow
def test_who_is_cut_off_alone_loses_what_it_owned(store: Store) -> None:
    """The others go on with it; when it is back it follows, and gets its share again in order."""

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            cut = await Replica(proxy.url, PODS, name="r1").start()
            other = (await started(store, "r2"))[0]
            await cut.until(lambda: is_planned([cut, other]))
            proxy.set("reset")
            await other.until(lambda: len(owned(other)) == PARTITIONS)
            assert all(sink.source.facts.lease_until < cut.node.clock.now() for sink in sinks(cut))
            proxy.set("pass")
            await cut.until(lambda: not owned(cut) or is_planned([cut, other]))
            await cut.until(lambda: is_planned([cut, other]))
            assert other.part.sharing.handovers > 0
            await cut.stop()
            await other.stop()

    if store.kind != "cluster":
        run(body)


def test_what_has_something_else_in_its_owners_key_is_not_free(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody's time to take it begins before that is gone: whoever stands by is the first then."""

    async def body() -> None:
        replica = await Replica(store.url, PODS, name="r1").start()
        owner = replica.part.owners[0]
        store.look.set(KEYS[0].owner, b"something else")
        await replica.until(lambda: owner.holder == "?")
        claim, here = owner._acquiring._claim, owner._acquiring._here()
        assert None is claim.may_take_at(here)
        await replica.until(lambda: f"the key {KEYS[0].owner.decode()} is in use" in caplog.text)
        assert "replica  owns" not in caplog.text
        store.look.delete(KEYS[0].owner)
        await replica.until(lambda: 0 in owned(replica))
        await replica.stop()

    run(body)


def sinks(replica: Replica) -> list[SourceSink]:
    """Of the sources that a replica applies."""
    return [replica.sink(pod) for pod in PODS if not replica.sink(pod).followed]


def test_a_hand_over_that_cannot_be_finished_is_undone(store: Store) -> None:
    """The owner goes on, from where it stopped."""

    async def body() -> None:
        async with Proxy(store.servers[0].port).running() as proxy:
            replica = await Replica(proxy.url, PODS, name="r1", redis__lease_s=20.0).start()
            before, held = owned(replica), sinks(replica)
            proxy.set("stall_requests")
            owner = next(each for each in replica.part.owners.values() if each.owned)
            assert not await owner.hand_over("r2", "rebalanced")
            proxy.set("pass")
            await replica.until(lambda: len(replica.collector.resumed) == len(PODS))
            for sink in held:
                replica.say(sink.descriptor.pod, stored([1], prompt(1)))
            await replica.written()
            assert (before, held) == (owned(replica), sinks(replica))
            await replica.stop()

    if store.kind != "cluster":
        run(body)


def test_two_processes_of_one_name_are_told_of(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever loses to the other says that names must differ, not that a replica of its own name owns it."""

    async def body() -> None:
        first, second = await started(store, "r1", "r1")
        await first.until(lambda: "taken by another process that is called r1, too" in caplog.text)
        assert "replica r1 owns it now" not in caplog.text
        await second.stop()
        await first.stop()

    run(body)


@pytest.mark.slow
def test_the_log_tells_how_a_replica_went(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Drained and stopped is as it was meant; silent is not."""
    caplog.set_level("INFO", "kvindexer.store")

    def told() -> list[tuple[str, str]]:
        return [(each.levelname, each.getMessage()) for each in caplog.records]

    async def body() -> None:
        replicas = first, drained, stopped, killed = await started(store, "r1", "r2", "r3", "r4")
        await first.until(lambda: is_planned(replicas))
        await first.until(lambda: {text.rpartition(": ")[2] for _, text in told()} >= {"handed over"})
        await first.node.drain_replica("r2")
        await first.until(lambda: ("INFO", "replicas: r2 drains, partitions are shared out among 3") in told())
        await stopped.stop()
        await first.until(lambda: ("INFO", "replicas: r3 stops, partitions are shared out among 2") in told())
        await killed.die()
        await first.until(lambda: ("WARNING", "replicas: r4 is silent, partitions are shared out among 1") in told())
        handed = {level for level, text in told() if text.endswith("owned here now: handed over")}
        assert {"INFO"} == handed
        await first.node.undrain_replica("r2")
        await drained.stop()
        await first.stop()

    run(body)
