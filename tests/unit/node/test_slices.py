"""Long looks over all sources let others run in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from indexer.model import RawBatch
from indexer.node import Node
from indexer.settings.sections import Limits, Settings
from indexer.slices import SLICE_S
from tests.support.core import ManualClock
from tests.support.core_events import payload, prompt, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SOURCES = 64


class HurriedClock(ManualClock):
    """Half a slice passes between any two looks at it."""

    def now(self) -> float:
        self.at += SLICE_S / 2
        return super().now()


LOOKS: dict[str, Callable[[Node], Coroutine[Any, Any, object]]] = {
    "sources": lambda node: node.source_views(),
    "metrics": lambda node: node.metrics_text(),
    "block": lambda node: node.find_block("pod-0", None, 1),
}


@pytest.mark.parametrize("look", LOOKS)
def test_others_run_meanwhile(look: str) -> None:
    """Neither lists nor metrics nor searches hold the loop for longer than a slice."""

    async def turns() -> int:
        node = Node(Settings(limits=Limits(sources=SOURCES)), HurriedClock())
        for number in range(SOURCES):
            sink = node.source_for_topic(f"pod-{number}", None, 0)
            assert sink is not None
            sink.apply(RawBatch(b"", 0, payload(stored([1], prompt(1)))))
        stop = asyncio.Event()
        counted = 0
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(LOOKS[look](node))
            while not looking.done():
                counted += 1
                await asyncio.sleep(0)
        assert looking.result()
        stop.set()
        await node.run(stop)
        return counted

    assert asyncio.run(turns()) > SOURCES // 8


def test_what_leaves_meanwhile_is_not_shown() -> None:
    """And does no harm."""

    async def shown() -> list[str]:
        node = Node(Settings(), HurriedClock())
        for number in range(SOURCES):
            node.source_for_topic(f"pod-{number:02}", None, 0)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(node.source_views())
            await asyncio.sleep(0)
            for number in range(SOURCES // 2, SOURCES, 2):
                await node.remove_source(f"pod-{number:02}", None)
        stop.set()
        await node.run(stop)
        return [view.pod for view in looking.result()]

    left = [number for number in range(SOURCES) if number < SOURCES // 2 or number % 2]
    assert [f"pod-{number:02}" for number in left] == asyncio.run(shown())
