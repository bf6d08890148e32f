"""What a watcher is told, step by step."""

from __future__ import annotations

import asyncio

from api.rpc.watching import STEPS_KEPT, Scenery, View
from indexer.model import Descriptor
from tests.support.fake_node import FakeNode


def _source(pod: str, tenant: str = "default") -> Descriptor:
    return Descriptor(pod=pod, endpoint="tcp://10.0.0.1:5557", model="m", origin="api", tenant=tenant)


async def _scenery(node: FakeNode, *pods: Descriptor) -> Scenery:
    for pod in pods:
        await node.add_source(pod)
    scenery = Scenery(node)
    await scenery.look()
    return scenery


def _names(told: list[tuple[str, object]]) -> list[tuple[str, str]]:
    return [(event, getattr(status, "pod", "")) for event, status in told]


def test_changes_that_cancel_each_other_are_none() -> None:
    """A source that is again as it was told has not changed."""

    async def run() -> None:
        node = FakeNode()
        scenery, view = await _scenery(node, _source("a")), View(None, None)
        view.begin(scenery)
        await node.cordon_source("a", None, cordoned=True)
        await scenery.look()
        await node.cordon_source("a", None, cordoned=False)
        await scenery.look()
        assert [] == view.changes(scenery)

    asyncio.run(run())


def test_who_is_far_behind_compares_everything() -> None:
    """More steps than are kept: nothing is missed, nothing told twice."""

    async def run() -> None:
        node = FakeNode()
        scenery, view = await _scenery(node, _source("a"), _source("b"), _source("c")), View(None, None)
        view.begin(scenery)
        for step in range(STEPS_KEPT + 1):
            await node.cordon_source("a", None, cordoned=step % 2 == 0)
            await scenery.look()
        await node.remove_source("b", None)
        await scenery.look()
        assert scenery.touched_since(1) is None
        assert [("changed", "a"), ("removed", "b")] == _names(view.changes(scenery))
        assert [] == view.changes(scenery)

    asyncio.run(run())


def test_tenants_do_not_see_each_other() -> None:
    """Neither at the beginning nor in what changes."""

    async def run() -> None:
        node = FakeNode()
        scenery, view = await _scenery(node, _source("a", "x"), _source("b", "y")), View("x", None)
        assert [("present", "a"), ("complete", "")] == _names(view.begin(scenery))
        await node.add_source(_source("c", "y"))
        await node.add_source(_source("d", "x"))
        await node.remove_source("b", None)
        await scenery.look()
        assert [("added", "d")] == _names(view.changes(scenery))

    asyncio.run(run())
