"""Several replicas on one store: partitions are shared out, move calmly, and never have two owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from indexer.sharding.rendezvous import share_out
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.redis_servers import Store

PODS: Final = [f"p{number}" for number in range(24)]
PARTITIONS: Final = 16


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
        assert {"handed_over": len(went)} == {
            cause: count for cause, count in second.part.sharing.takeovers.items() if cause != "first"
        } or second.part.sharing.takeovers["handed_over"] >= len(went)
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
