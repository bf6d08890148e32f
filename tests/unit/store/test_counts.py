"""What was counted of a source, as bytes: it comes back as it was, and never as more than it may be."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from indexer.index.counts import COUNT_MAX, ENDED_WAITING, Counts, TierCounts, counts_of
from indexer.model import Tier
from indexer.store.counts import NAMES_MAX, pack_counts, unpack_counts
from indexer.store.failures import DamagedValue
from tests.support.core import Core
from tests.support.core_events import CLEARED, prompt, removed, stored

WALL_US = 1_700_000_000_000_000


def test_counts_come_back_with_their_age() -> None:
    """Times of events are told by the wall, since another process has another clock."""
    tiers = (TierCounts(3, 30, 2, 20, 95.0), *(TierCounts(),) * (len(Tier) - 1))
    data = pack_counts(Counts(Counter(stored=3, batches=9), tiers), WALL_US, now=100.0)
    there = unpack_counts(data, WALL_US + 4_000_000, now=7.0)

    assert 4.0 == there.age_s
    assert Counter(stored=3, batches=9) == there.counts.counters
    assert (TierCounts(3, 30, 2, 20, 7.0 - 9.0), *tiers[1:]) == there.counts.tiers


def test_a_clock_that_is_behind_makes_nothing_of_the_future() -> None:
    """Ages are never negative."""
    data = pack_counts(Counts(tiers=(TierCounts(1, 1, 0, 0, 50.0),) * len(Tier)), WALL_US, now=50.0)
    there = unpack_counts(data, WALL_US - 60_000_000, now=50.0)

    assert 0.0 == there.age_s
    assert {50.0} == {tier.last_at for tier in there.counts.tiers}


@pytest.mark.parametrize(
    "value",
    [
        [],
        [WALL_US, {"a": -1}, []],
        [WALL_US, {"a": 1 << 63}, []],
        [WALL_US, {"a" * 65: 1}, []],
        [WALL_US, {str(number): 1 for number in range(NAMES_MAX + 1)}, []],
        [WALL_US, {}, [[1, 1, 1, 1]]],
        [WALL_US, {}, [[1, 1, 1, 1, None]] * (len(Tier) + 1)],
        [WALL_US, {}, [], "more"],
        "counts",
    ],
)
def test_what_is_not_ours_is_refused(value: object) -> None:
    """Whoever wrote it."""
    with pytest.raises(DamagedValue):
        unpack_counts(msgspec.msgpack.encode(value), WALL_US, 0.0)


def test_what_was_counted_before_is_added() -> None:
    """And a process's own counts, which metrics are made of, stay what they are."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    at = core.clock.now()
    source = engine.source
    source.earlier = Counts(Counter(batches=40, gaps=2), (TierCounts(5, 50, 4, 40, at - 9), *Counts().tiers[1:]))
    counts = counts_of(source)

    assert (41, 2, 1) == (counts.counters["batches"], counts.counters["gaps"], counts.counters["stored"])
    assert TierCounts(6, 51, 4, 40, at) == counts.tiers[0]
    assert TierCounts() == counts.tiers[1]
    assert (1, 0) == (source.counters["batches"], source.counters["gaps"])


def test_counts_that_cannot_grow_stay_at_their_most() -> None:
    """Whoever takes a source over from process to process reads what the last one wrote, however much that was."""
    core = Core()
    engine = core.engine()
    orphan = stored([2], prompt(1), parent=900)
    engine.say(stored([1], prompt(1)), removed(1), orphan, removed(2))
    source = engine.source
    names = counts_of(source).counters
    source.earlier = Counts(Counter(dict.fromkeys(names, COUNT_MAX)), (TierCounts(*(COUNT_MAX,) * 4, 1.0),) * len(Tier))
    for _ in range(2):
        counts = counts_of(source)
        source.earlier = unpack_counts(pack_counts(counts, WALL_US, core.clock.now()), WALL_US, core.clock.now()).counts

    assert ENDED_WAITING in names
    assert dict.fromkeys(names, COUNT_MAX) == source.earlier.counters
    assert {(COUNT_MAX,) * 4} == {tier[:4] for tier in source.earlier.tiers}


def test_blocks_that_waited_in_vain_are_counted() -> None:
    """Taken back before their parent came, or forgotten with all else; not those that were placed."""
    core = Core()
    engine = core.engine()
    orphans = [stored([number], prompt(1, 100 * number), parent=900 + number) for number in range(1, 5)]
    engine.say(*orphans)
    assert 0 == counts_of(engine.source).counters[ENDED_WAITING]

    engine.say(removed(1))
    assert 1 == counts_of(engine.source).counters[ENDED_WAITING]
    engine.say(stored([902], prompt(1)))  # the second one's
    core.tidy()
    assert 1 == counts_of(engine.source).counters[ENDED_WAITING]
    engine.say(CLEARED)
    assert 3 == counts_of(engine.source).counters[ENDED_WAITING]
    engine.say(CLEARED)
    assert 3 == counts_of(engine.source).counters[ENDED_WAITING]
