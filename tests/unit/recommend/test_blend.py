"""What a candidate is worth, beside the others."""

from __future__ import annotations

import pytest

from indexer.recommend.blend import BlendWeights, blend, headrooms


def test_headroom_spans_the_candidates() -> None:
    """The least busy has 1, the most busy 0, however busy all of them are."""
    assert [1.0, 0.5, 0.0] == headrooms([0, 10, 20])
    assert [1.0, 0.5, 0.0] == headrooms([1000, 1010, 1020])


def test_small_differences_count_less() -> None:
    """A request more is a quarter of the headroom, not all of it."""
    assert [1.0, 0.75] == headrooms([0, 1])
    assert [1.0, 0.5] == headrooms([0, 1], floor=2)
    assert [1.0, 1.0] == headrooms([7, 7])


def test_of_whom_nothing_is_known_stands_at_the_mean() -> None:
    """It is neither drawn to nor kept from; where nothing is known of anybody the load says nothing."""
    assert [1.0, 0.5, 0.0] == headrooms([0, None, 8])
    assert [0.0, 0.0] == headrooms([None, None])
    assert [] == headrooms([])


def test_prefix_outweighs_load_by_the_defaults() -> None:
    """Half of a prompt is worth more than all the headroom, a tenth is not."""
    assert [0.5, 0.3] == blend([0.5, 0.0], [20, 0])
    assert [0.1, 0.3] == blend([0.1, 0.0], [20, 0])
    assert [0.1, 0.0] == blend([0.1, 0.0], None)


def test_weights_and_floor_are_the_callers() -> None:
    """Both terms are weighted, and the floor sets what a request is worth."""
    totals = blend([0.5, 0.0], [1, 0], weights=BlendWeights(prefix=2, load=10), floor=10)

    assert pytest.approx([1.0 + 9.0, 10.0]) == totals
