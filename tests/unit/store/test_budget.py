"""The journal's budget of bytes: what is kept, what may be forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.store.budget import LOTS, JournalBudget, cost
from indexer.store.entries import START, Position


def written(budget: JournalBudget, sizes: list[int]) -> None:
    """Entries 1, 2, … of epoch 5."""
    for number, size in enumerate(sizes, start=1):
        budget.wrote(Position(5, number), size)


def test_within_the_budget_all_is_kept() -> None:
    """Also of earlier epochs."""
    budget = JournalBudget(1000, 200)
    written(budget, [100] * 4)

    assert START == budget.keep_from


def test_what_earlier_epochs_left_goes_first() -> None:
    """As a whole, as soon as there is too much."""
    budget = JournalBudget(1000, 900)
    written(budget, [100])

    assert Position(5, 1) == budget.keep_from


def test_a_large_entry_stays() -> None:
    """The newest always does, however large."""
    budget = JournalBudget(1000, 0)
    written(budget, [100, 100, 5000])

    assert Position(5, 3) == budget.keep_from


@given(st.integers(1, 5_000), st.integers(0, 5_000), st.lists(st.integers(0, 2_000), min_size=1, max_size=50))
def test_what_is_kept_fits_and_no_more_is_forgotten(limit: int, inherited: int, sizes: list[int]) -> None:
    """The entries kept fit the budget, unless it is one; with one more they would not."""
    budget = JournalBudget(limit, inherited)
    written(budget, sizes)
    costs = [cost(size) for size in sizes]
    first = max(budget.keep_from.number, 1)

    assert sum(costs[first - 1 :]) <= limit or len(costs) == first
    if first > 1:
        assert sum(costs[first - 2 :]) > limit
    if budget.keep_from == START:
        assert sum(costs) + inherited <= limit


def test_many_small_entries_take_little_room() -> None:
    """Ticks come for as long as the owner lives."""
    budget = JournalBudget(1 << 20, 0)
    written(budget, [60] * 50_000)
    kept = 50_000 - budget.keep_from.number + 1

    assert len(budget._lots) <= LOTS * 1.2
    assert (1 << 20) * 0.99 < kept * cost(60) <= 1 << 20
