"""Sums over windows: what is in a window counts, what has left it does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.reports.sums import WINDOWS, Sums


def test_a_number_leaves_one_window_after_the_other() -> None:
    """At the border of a slot."""
    sums = Sums(2)
    sums.add(0, [(0, 1), (1, 5)])

    def told(second: int) -> list[list[int]]:
        return [sums.over(window.name, second) for window in WINDOWS]

    assert [[1, 5]] * 4 == told(0) == told(59)
    assert [[0, 0], [1, 5], [1, 5], [1, 5]] == told(60)
    assert [[0, 0], [0, 0], [1, 5], [1, 5]] == told(600)
    assert [[0, 0], [0, 0], [0, 0], [1, 5]] == told(3_600)
    assert [[0, 0]] * 4 == told(86_400)


def test_a_long_silence_leaves_nothing() -> None:
    """However many slots were passed over."""
    sums = Sums(1)
    sums.add(10, [(0, 1)])

    sums.add(10_000_000, [(0, 2)])

    assert [[2]] * 4 == [sums.over(window.name, 10_000_000) for window in WINDOWS]


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(1, 9)), max_size=40), st.integers(0, 700))
def test_sums_are_those_of_the_slots_that_are_in_the_window(steps: list[tuple[int, int]], rest: int) -> None:
    """Against adding up everything."""
    sums, second, added = Sums(1), 0, list[tuple[int, int]]()
    for step, number in steps:
        second += step
        sums.add(second, [(0, number)])
        added.append((second, number))
    second += rest
    for name, slot_s, slots in WINDOWS:
        first = second // slot_s - slots
        assert [sum(number for at, number in added if at // slot_s > first)] == sums.over(name, second)
