"""Whole lists of sources, and what protects the index from a discovery that has gone wrong."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from indexer.errors import LimitReachedError, SourceConflictError, TooManyRemovalsError
from indexer.model import Descriptor, RawBatch
from indexer.node import Node
from indexer.settings.sections import Limits, Settings
from schemas.rest import SourcesReplaced
from tests.support.core import ManualClock
from tests.support.core_events import payload, prompt, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 5
MANY = 1_000


class Fleet:
    """A node, its clock, and lists of sources registered by callers."""

    def __init__(self, limits: Limits) -> None:
        self.clock = ManualClock()
        self.node = Node(Settings(limits=limits), self.clock)

    def put(
        self, pods: int, *, first: int = 0, ranks: int = 1, port: int = 1, max_removals: int | None = None
    ) -> SourcesReplaced:
        wanted = [
            Descriptor(pod=f"pod-{number}", dp_rank=rank, endpoint=f"tcp://127.0.0.1:{port}", origin="api")
            for number in range(first, first + pods)
            for rank in range(ranks)
        ]
        return asyncio.run(self.node.replace_api_sources(wanted, max_removals=max_removals))

    def speak(self) -> None:
        """Every source holds one block."""
        for sink in self.node.roster._sinks.values():
            sink.apply(RawBatch(b"", 0, payload(stored([1], prompt(1)))))

    @property
    def pods(self) -> set[str]:
        return {key.pod for key in self.node.registry.sources}


@contextmanager
def fleet(*, sources: int = 4 * MANY) -> Iterator[Fleet]:
    """Nobody runs its node but for its end."""
    of = Fleet(Limits(max_clears_per_minute=LIMIT, sources=sources))
    stop = asyncio.Event()
    try:
        yield of
    finally:
        stop.set()
        asyncio.run(of.node.run(stop))


def _changed(added: int, kept: int, removed: int) -> SourcesReplaced:
    return SourcesReplaced(added=added, kept=kept, removed=removed)


def test_a_large_fleet_is_registered_at_once_and_again_without_effect() -> None:
    """The same list is a no-op, whatever the engines have said, and so is a list that only grows."""
    with fleet() as of:
        assert _changed(MANY, 0, 0) == of.put(MANY)
        of.speak()
        generations = {key: source.facts.generation for key, source in of.node.registry.sources.items()}
        for _ in range(LIMIT + 1):
            assert _changed(0, MANY, 0) == of.put(MANY)
        assert _changed(1, MANY, 0) == of.put(MANY + 1)
        assert generations.items() <= {k: s.facts.generation for k, s in of.node.registry.sources.items()}.items()


def test_a_list_that_would_empty_the_index_changes_nothing() -> None:
    """However long one waits; a caller that means it says how many."""
    with fleet() as of:
        of.put(20)
        of.speak()
        for waited_s in (0, 3_600):
            of.clock.at += waited_s
            for losing, wanted in [(20, {"pods": 0}), (9, {"pods": 20, "first": 9})]:
                with pytest.raises(TooManyRemovalsError) as caught:
                    of.put(**wanted)
                assert (losing, losing, LIMIT) == (caught.value.sources, caught.value.pods, caught.value.limit)
        assert 20 == len(of.pods)
        assert {"limits.max_clears_per_minute": 4} == of.node.telemetry.limits_reached

        assert _changed(20, 0, 20) == of.put(20, first=20, max_removals=20)
        assert {f"pod-{n}" for n in range(20, 40)} == of.pods


@pytest.mark.parametrize("speaking", [False, True])
def test_a_caller_may_say_how_many_go_at_most(speaking: bool) -> None:
    """Each rank is one, and so is each that comes back changed, whether or not anything is known of its blocks."""
    with fleet() as of:
        of.put(2, ranks=2)
        if speaking:
            of.speak()
        for sources, allowed, wanted in [
            (4, 0, {"pods": 0}),
            (4, 3, {"pods": 0}),
            (2, 1, {"pods": 1, "ranks": 2}),
            (4, 3, {"pods": 2, "ranks": 2, "port": 2}),
        ]:
            with pytest.raises(TooManyRemovalsError) as caught:
                of.put(**wanted, max_removals=allowed)
            assert (sources, allowed, None) == (caught.value.sources, caught.value.limit, caught.value.pods)
        assert _changed(2, 4, 0) == of.put(3, ranks=2, max_removals=0)
        assert _changed(0, 4, 2) == of.put(2, ranks=2, max_removals=2)
        assert not of.node.telemetry.limits_reached


def test_few_go_without_asking() -> None:
    """So many a minute; then it is told when the next may go."""
    with fleet() as of:
        of.put(20)
        of.speak()
        assert _changed(0, 17, 3) == of.put(17)
        of.clock.at += 20.0
        assert _changed(0, 15, 2) == of.put(15)
        with pytest.raises(LimitReachedError) as caught:
            of.put(14)
        assert 40.0 == pytest.approx(caught.value.retry_s)
        of.clock.at += 40.0
        assert _changed(0, 12, 3) == of.put(12)


def test_what_holds_nothing_may_always_go() -> None:
    """Engines that never came up: the index loses nothing."""
    with fleet() as of:
        of.put(50)
        assert _changed(50, 0, 50) == of.put(50, first=50)
        assert _changed(0, 0, 50) == of.put(0)


def test_a_pod_counts_once_however_many_ranks_it_has() -> None:
    """A command that names one pod is one command."""
    with fleet() as of:
        of.put(2, ranks=10 * LIMIT)
        of.speak()
        assert 10 * LIMIT == asyncio.run(of.node.clear_source("pod-0", None)).sources
        of.speak()
        assert 10 * LIMIT == asyncio.run(of.node.remove_source("pod-0", None)).sources
        for _ in range(LIMIT - 2):
            asyncio.run(of.node.clear_source("pod-1", 0))
        with pytest.raises(LimitReachedError):
            asyncio.run(of.node.clear_source("pod-1", 0))


def test_a_list_with_a_source_twice_is_refused() -> None:
    """Nothing of it is done."""
    with fleet() as of:
        of.put(1)
        twice = [Descriptor(pod="x", endpoint=f"tcp://127.0.0.1:{port}", origin="api") for port in (1, 2)]
        with pytest.raises(SourceConflictError):
            asyncio.run(of.node.replace_api_sources(twice))
        assert {"pod-0"} == of.pods


def test_a_registration_that_differs_is_refused_with_the_way_to_change_it() -> None:
    """409: what stands goes on as it is."""
    with fleet() as of:
        of.put(1)
        with pytest.raises(SourceConflictError) as caught:
            asyncio.run(of.node.add_source(Descriptor(pod="pod-0", endpoint="tcp://127.0.0.1:2")))

        assert ("endpoint", "PUT the whole list with the change, or DELETE it and add it again") == (
            caught.value.field,
            caught.value.hint,
        )


def test_a_changed_registration_keeps_an_operators_cordon() -> None:
    """Discovery does not know why a pod must rest."""
    with fleet() as of:
        of.put(2)
        asyncio.run(of.node.cordon_source("pod-1", None, cordoned=True))

        assert SourcesReplaced(added=2, kept=0, removed=0) == of.put(2, port=2)

        cordoned = {key.pod: source.facts.cordoned for key, source in of.node.registry.sources.items()}
        assert {"pod-0": False, "pod-1": True} == cordoned


def test_a_list_beyond_the_limit_on_sources_is_counted() -> None:
    """As a single registration is."""
    with fleet(sources=1) as of:
        with pytest.raises(LimitReachedError):
            of.put(2)

        assert 1 == of.node.telemetry.limits_reached["limits.sources"]
