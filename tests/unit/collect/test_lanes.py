"""Lanes: bounded in bytes, in order, alone and together."""

from __future__ import annotations

from indexer.collect.lanes import BATCH_OVERHEAD_BYTES, Lane, LaneBudget
from tests.support.collect_batches import batch, batches

COST = len(batch(1).payload) + BATCH_OVERHEAD_BYTES


def lane_for(count: int, budget: LaneBudget | None = None) -> Lane:
    """A lane with room for so many batches."""
    return Lane(count * COST, budget or LaneBudget(1_000 * COST))


def test_what_goes_in_comes_out_in_order() -> None:
    """First in, first out; what is put back comes first."""
    lane = lane_for(10)
    for each in batches(3, 5):
        assert lane.push(each)
    lane.put_back(batch(2))

    assert 2 == lane.first_sequence
    assert batches(2, 5) == [lane.pop() for _ in range(len(lane))]
    assert lane.first_sequence is None


def test_an_empty_lane_takes_one_message_of_any_size() -> None:
    """As long as the process may hold it."""
    large = batch(1, size_bytes=5 * COST)
    lane = lane_for(2)
    assert lane.push(large)
    assert not lane.push(batch(2))
    assert large == lane.pop()

    assert not lane_for(2, LaneBudget(2 * COST)).push(large)


def test_a_full_lane_takes_nothing_until_it_is_empty() -> None:
    """Also not when there is room again: later messages without their predecessors are of no use."""
    lane = lane_for(2)

    assert [True, True, False] == [lane.push(each) for each in batches(1, 3)]
    assert batch(1) == lane.pop()
    assert lane.overflowed
    assert not lane.push(batch(4))
    assert batch(2) == lane.pop()
    assert not lane.overflowed
    assert lane.push(batch(5))


def test_all_lanes_share_one_budget() -> None:
    """What one lane holds another cannot; what it gives back, another can."""
    budget = LaneBudget(3 * COST)
    greedy, late = lane_for(10, budget), lane_for(10, budget)
    for each in batches(1, 3):
        assert greedy.push(each)

    assert not late.push(batch(1))
    greedy.clear()
    late.clear()
    assert late.push(batch(1))
    assert COST == budget.used_bytes == late.used_bytes


def test_only_what_was_there_at_the_mark_is_dropped() -> None:
    """Batches taken out meanwhile count as gone; those that came later stay."""
    lane = lane_for(10)
    for each in batches(1, 3):
        lane.push(each)
    lane.mark()
    lane.push(batch(4))
    lane.pop()

    lane.drop_marked()
    assert 4 == lane.first_sequence
    lane.drop_marked()
    assert 1 == len(lane)

    lane.mark()
    lane.unmark()
    lane.drop_marked()
    assert 1 == len(lane)


def test_it_knows_what_came_before_the_present_connection() -> None:
    """Also where the oldest was looked at and put back; what is put back alone is of the present one."""
    lane = lane_for(10)
    for each in batches(0, 1):
        lane.push(each)
    lane.begin_connection(examined=True)
    lane.push(batch(2))
    lane.put_back(lane.pop())
    lane.pop()
    lane.put_back(lane.pop())
    lane.begin_connection(examined=False)
    assert (batches(1, 2), 1, 2) == lane.take_all()
    lane.put_back(batch(3))

    assert ([batch(3)], 0, 0) == lane.take_all()
