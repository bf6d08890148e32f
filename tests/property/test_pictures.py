"""Random histories of pictures, and of operators who meddle: the registry comes to what was told last.

Without a store, and with one that two replicas share, of which either may come to watch. Sources of other origins are
not touched, and generations only grow, over removals and returns, too.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from indexer.discovery import keeper
from indexer.errors import IndexerError
from indexer.model import Descriptor, SourceId
from tests.support.pictures import NAMES, anything, standing_after
from tests.support.redis_servers import own_server
from tests.support.replicas import Replica, run
from tests.support.telling import Teller
from tests.support.told_node import alone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from indexer.discovery.found import Found
    from indexer.node import Node

FIXED = Descriptor(pod="f", endpoint="tcp://127.0.0.1:9", aliases=("u",), origin="api")
PICTURES = 6
SEEDS_ALONE, SEEDS_ON_A_STORE = 40, 4


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others changed is looked for all the time."""
    monkeypatch.setattr(keeper, "LOOK_S", 0.05)
    monkeypatch.setattr(keeper, "GATHER_S", 0.0)


def is_so(node: Node, told: Mapping[SourceId, Found]) -> bool:
    """Whether what stands there is what was told; of lives, what was told last of each."""
    sources = node.registry.sources
    expected = standing_after(told, (FIXED,))
    return (
        sources[FIXED.id].descriptor == FIXED
        and sources.keys() == {FIXED.id, *expected}
        and all(
            (sources[key].descriptor, sources[key].facts.ready) == (each.descriptor, each.ready)
            and each.life in {"", sources[key].life}
            for key, each in expected.items()
        )
    )


def generations_grow(node: Node, before: dict[SourceId, int]) -> None:
    """Of every source that is known, also of one that was gone."""
    for key, source in node.registry.sources.items():
        assert source.facts.generation >= before.get(key, 0), key
        before[key] = source.facts.generation


async def meddle(node: Node, chance: random.Random) -> None:
    """An operator does something to a source, whatever its origin; one stays."""
    pod = chance.choice([key.pod for key in node.registry.sources])
    try:
        match chance.choice(("cordon", "uncordon", "clear", "remove", "add")):
            case "clear":
                await node.clear_source(pod, None)
            case "remove" if pod != FIXED.pod:
                await node.remove_source(pod, None)
            case "add":
                await node.add_source(Descriptor(pod=chance.choice(NAMES), endpoint="tcp://127.0.0.1:8"))
            case what if what != "remove":
                await node.cordon_source(pod, None, cordoned=what == "cordon")
            case _:
                pass
    except IndexerError:
        pass  # a name that is taken, or a source that is gone


async def tidy(node: Node) -> None:
    """What operators added goes again."""
    for key, source in list(node.registry.sources.items()):
        if source.descriptor.origin == "api" and key != FIXED.id:
            await node.remove_source(key.pod, None)


@pytest.mark.parametrize("seed", range(SEEDS_ALONE))
def test_alone(seed: int) -> None:
    """Pictures follow each other faster than they can be carried out, now and then."""
    chance = random.Random(seed)

    async def body() -> None:
        teller, generations = Teller(), dict[SourceId, int]()
        async with alone(teller, limits__max_clears_per_minute=100_000) as of:
            await of.node.add_source(FIXED)
            for _ in range(PICTURES):
                told = teller.tell(*(anything(chance) for _ in range(chance.randrange(8))))
                for _ in range(chance.randrange(4)):
                    await meddle(of.node, chance)
                    await asyncio.sleep(chance.choice((0.0, 0.002)))
                    generations_grow(of.node, generations)
                if chance.random() < 0.5:
                    await tidy(of.node)
                    await of.until(lambda told=told: is_so(of.node, told))  # type: ignore[misc]
                    generations_grow(of.node, generations)
            await tidy(of.node)
            await of.until(lambda: is_so(of.node, told))

    asyncio.run(body())


@pytest.mark.parametrize("seed", range(SEEDS_ON_A_STORE))
def test_two_replicas_on_a_store(seed: int, tmp_path: Path) -> None:
    """Both are told the same; one watches, and then maybe the other."""
    chance = random.Random(seed)

    async def body() -> None:
        with own_server(tmp_path) as server:
            tellers = [Teller(), Teller()]
            replicas = [
                Replica(server.url, (), name=name, discoverers=(teller,), limits__max_clears_per_minute=100_000)
                for name, teller in zip(("r1", "r2"), tellers, strict=True)
            ]
            for of in replicas:
                await of.start()
            try:
                await _story(replicas, tellers, chance)
            finally:
                for of in replicas:
                    await of.stop()

    run(body)


async def _story(replicas: list[Replica], tellers: list[Teller], chance: random.Random) -> None:
    await replicas[0].node.add_source(FIXED)
    for of in replicas:
        await of.until(lambda of=of: FIXED.id in of.node.registry.sources)  # type: ignore[misc]
    generations: list[dict[SourceId, int]] = [{}, {}]
    for step in range(PICTURES):
        those = [anything(chance) for _ in range(chance.randrange(8))]
        (told, _) = [teller.tell(*those) for teller in tellers]
        for _ in range(chance.randrange(3)):
            await meddle(chance.choice(replicas).node, chance)
        if step == PICTURES // 2:
            await replicas[0].node.drain_replica(chance.choice(("r1", "r2")))
        await tidy(replicas[0].node)
        for of, seen in zip(replicas, generations, strict=True):
            await of.until(lambda of=of, told=told: is_so(of.node, told))  # type: ignore[misc]
            generations_grow(of.node, seen)
