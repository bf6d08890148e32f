"""Commands at any replica: in force everywhere when the answer comes; none is lost, none has an effect twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from indexer.model import Descriptor, SourceId
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

ONLY_LOOKUP: dict[str, Any] = {"server__roles": ("lookup",)}
B = SourceId("b", 0)
POD_B = Descriptor(pod="b", endpoint="tcp://127.0.0.1:2")


async def three(store: Store, *pods: str, **settings: Any) -> tuple[Replica, Replica, Replica]:  # noqa: ANN401
    """One owns everything, two follow."""
    owner = await Replica(store.url, pods, **settings).start()
    mirrors = [await Replica(store.url, (), name=name, **ONLY_LOOKUP, **settings).start() for name in ("r2", "r3")]
    return owner, mirrors[0], mirrors[1]


async def end(*replicas: Replica) -> None:
    """A clean stop of all."""
    for replica in replicas:
        await replica.stop()


def control(store: Store, replica: Replica, pod: str = "b") -> list[bytes]:
    """Verbs of all commands given in the pod's partition."""
    keys = replica.part._keys[replica.part._parts.partition_of(SourceId(pod, 0))]
    return [fields[b"v"] for _, fields in store.look.xrange(keys.control)]


@pytest.mark.parametrize("at", [0, 1])
def test_what_is_done_is_in_force_at_the_owner(store: Store, at: int) -> None:
    """When the call returns `done`, there and where it was given; at a third soon. Wherever it is given."""

    async def body() -> None:
        replicas = await three(store, "a")
        owner, here = replicas[0], replicas[at]

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
            await replicas[2].until(lambda: cordoned == replicas[2].sink("b").source.facts.cordoned)  # noqa: B023

        assert "done" == (await here.node.clear_source("b", None)).effect
        assert 0 == owner.ask(prompt(1), "b").matched_tokens == here.ask(prompt(1), "b").matched_tokens
        await replicas[2].until(lambda: 0 == replicas[2].ask(prompt(1), "b").matched_tokens)

        changed = Descriptor(pod="b", endpoint="tcp://127.0.0.1:3")
        assert "done" == (await here.node.replace_api_sources([changed])).effect
        assert changed == owner.sink("b").descriptor == here.sink("b").descriptor
        await replicas[2].until(lambda: changed == replicas[2].sink("b").descriptor)

        assert "done" == (await here.node.remove_source("b", None)).effect
        assert B not in owner.node.registry.sources
        assert B not in here.node.registry.sources
        await replicas[2].until(lambda: B not in replicas[2].node.registry.sources)
        await end(*replicas)

    run(body)


def test_an_owner_that_does_not_hear_is_told(store: Store) -> None:
    """The command is kept, and not called done before the owner has come to it."""

    async def body() -> None:
        owner, mirror, third = await three(store, "a")
        hears = asyncio.Event()
        read_well = owner.part._control._read

        async def read(after: Any) -> Any:  # noqa: ANN401
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
