"""How much room each has, beside the others."""

from __future__ import annotations

import numpy as np

from indexer.recommend.blend import headrooms


def test_headroom_spans_the_candidates() -> None:
    """The least busy has 1, the most busy 0, however busy all of them are."""
    assert [1.0, 0.5, 0.0] == _headrooms([0, 10, 20])
    assert [1.0, 0.5, 0.0] == _headrooms([1000, 1010, 1020])


def test_small_differences_count_less() -> None:
    """A request more is a quarter of the headroom, not all of it."""
    assert [1.0, 0.75] == _headrooms([0, 1])
    assert [1.0, 0.5] == _headrooms([0, 1], floor=2)
    assert [1.0, 1.0] == _headrooms([7, 7])


def test_of_whom_nothing_is_known_stands_at_the_mean() -> None:
    """It is neither drawn to nor kept from; where nothing is known of anybody the load says nothing."""
    assert [1.0, 0.5, 0.0] == _headrooms([0, None, 8])
    assert [0.0, 0.0] == _headrooms([None, None])
    assert [] == _headrooms([])


def _headrooms(requests: list[float | None], **floor: float) -> list[float]:
    return headrooms(np.array(requests, np.float64), **floor).tolist()
