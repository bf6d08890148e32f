"""Sources that appear by topic on a bound socket: registered by the node, and gone again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from indexer.index.source import SourceIndex
from indexer.ingest import SourceSink
from indexer.model import Descriptor, SourceId
from indexer.node import LOST_EVERY_S, Node
from indexer.settings.sections import Events, Limits, Settings, Staleness
from tests.support.collecting import until
from tests.support.core import ManualClock


@contextmanager
def node(sources: int = 8) -> Iterator[Node]:
    """A node with some room, which nobody runs but for its end."""
    of = Node(Settings(limits=Limits(sources=sources), staleness=Staleness(retain_s=60.0)), ManualClock())
    stop = asyncio.Event()
    try:
        yield of
    finally:
        stop.set()
        asyncio.run(of.run(stop))


def source(of: Node, pod: str) -> SourceIndex:
    """What is known of it."""
    return of.registry.sources[SourceId(pod, 0)]


def test_the_same_topic_gets_the_same_source() -> None:
    """However often it is proposed."""
    with node() as of:
        first = of.source_for_topic("pod", "llama", 0)

        assert first is of.source_for_topic("pod", "llama", 0)
        assert first is not of.source_for_topic("pod", "llama", 1)


@pytest.mark.parametrize("later", ["llama-v2", None])
def test_another_model_is_another_registration(later: str | None) -> None:
    """The engine serves another model now: nothing of before is its own. What was cordoned is the pod."""
    with node(sources=1) as of:
        first = of.source_for_topic("pod", "llama", 0)
        asyncio.run(of.cordon_source("pod", None, cordoned=True))
        second = of.source_for_topic("pod", later, 0)

        assert first is not None
        assert second is not None
        assert (False, True) == (first.open, second.open)
        assert later == source(of, "pod").descriptor.model
        assert source(of, "pod").facts.cordoned
        assert not of.telemetry.limits_reached


def test_a_registration_wins_over_a_topic_with_another_model() -> None:
    """As it stands, it is handed out."""
    with node() as of:
        asyncio.run(of.add_source(Descriptor(pod="pod", endpoint="tcp://127.0.0.1:1", model="m")))
        sink = of.source_for_topic("pod", "llama", 0)

        assert sink is not None
        assert ("api", "m") == (sink.descriptor.origin, sink.descriptor.model)


def test_no_room_is_counted_once_for_each_refusal() -> None:
    """Nothing else is counted as that limit."""
    with node(sources=1) as of:
        of.source_for_topic("a", None, 0)

        assert of.source_for_topic("b", None, 0) is None
        assert {"limits.sources": 1} == of.telemetry.limits_reached


def test_a_name_that_is_another_pods_is_no_limit() -> None:
    """Refused, but there is room."""
    with node() as of:
        asyncio.run(of.add_source(Descriptor(pod="pod", endpoint="tcp://127.0.0.1:1", aliases=("taken",))))

        assert of.source_for_topic("taken", None, 0) is None
        assert not of.telemetry.limits_reached


@pytest.mark.parametrize("seen", [False, True])
def test_a_topic_source_that_is_gone_leaves(seen: bool) -> None:
    """After `retain_s`, also when its connection was never seen up. Registered ones stay."""
    of = Node(Settings(staleness=Staleness(retain_s=60.0)), ManualClock())
    clock = of.clock
    assert isinstance(clock, ManualClock)
    asyncio.run(of.add_source(Descriptor(pod="registered", endpoint="tcp://127.0.0.1:1")))
    sink = of.source_for_topic("passing", None, 0)
    assert isinstance(sink, SourceSink)
    if seen:
        sink.alive(connected=True)
        sink.alive(connected=False)

    async def main() -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(of.run(stop), name="node")
            clock.at += 60.0 - 2 * LOST_EVERY_S
            await asyncio.sleep(0.05)  # house is kept several times
            assert SourceId("passing", 0) in of.registry.sources
            clock.at += 3 * LOST_EVERY_S
            await until(lambda: not sink.open, "it left")
            stop.set()

    asyncio.run(main())
    assert {SourceId("registered", 0)} == set(of.registry.sources)


def test_what_no_source_gets_is_in_the_metrics() -> None:
    """Messages on a bound socket that name nobody, or whom the node does not take."""
    events = Events(source_bind=("tcp://127.0.0.1:0",))
    of = Node(Settings(events=events), ManualClock())
    (counts,) = of.fleet.bound_counts
    counts.malformed, counts.unnamed, counts.refused = 1, 2, 3

    async def scrape() -> bytes:
        stop = asyncio.Event()
        stop.set()
        text = await of.metrics_text()
        await of.run(stop)
        return text

    text = asyncio.run(scrape()).decode()
    for reason, count in (("frames_malformed", 1), ("topic_unnamed", 2), ("source_refused", 3)):
        assert f'kvindexer_events_skipped_total{{reason="{reason}"}} {count}.0' in text
