"""From what is known of candidates to their totals, term by term."""

from __future__ import annotations

import pytest

from indexer.recommend.blend import BLEND, BlendWeights, blend
from indexer.recommend.ranking import Known, worths


def test_every_term_is_kept() -> None:
    """Each is weighted, and together they are the total."""
    (worth,) = worths([Known(score=0.5, expected=0.2, requests=3)])

    assert pytest.approx((0.9, 0.5, 0.3, 0.1, 0.0)) == worth


def test_without_loads_the_load_says_nothing() -> None:
    """Of nobody anything is known: the term is 0 for all."""
    assert [0.0, 0.0] == [each.load for each in worths([Known(), Known()])]


def test_a_silent_pod_gets_nothing_for_its_load() -> None:
    """What was read of it last is as old as its silence; what it holds still counts."""
    silent, other = worths([Known(score=0.5, requests=0, silent=True), Known(requests=10)])

    assert pytest.approx((0.5, 0.5, 0.3, 0.0, 0.3)) == silent
    assert 0.0 == other.total


@pytest.mark.parametrize(("usage", "penalty"), [(0.5, 0.0), (0.9, 0.0), (0.95, 0.15), (1.0, 0.3), (None, 0.0)])
def test_a_nearly_full_cache_costs_up_to_what_load_can_count(usage: float | None, penalty: float) -> None:
    """From nine tenths on."""
    (worth,) = worths([Known(requests=0, kv_usage=usage)])

    assert penalty == pytest.approx(worth.penalty)
    assert pytest.approx(0.3 - penalty) == worth.total


def test_a_crowded_pod_comes_behind_all_others() -> None:
    """Whatever it holds; among crowded ones the same order holds."""
    found = worths([Known(score=1.0, crowded=True), Known(score=0.5, crowded=True), Known()])

    assert [2, 0, 1] == sorted(range(3), key=lambda place: -found[place].total)


def test_the_plain_sum_is_the_same() -> None:
    """Simulations blend by the short function."""
    scores, loads = [0.1, 0.0, 0.9], [3.0, None, 11.0]
    known = [Known(score, 0.0, load) for score, load in zip(scores, loads, strict=True)]
    for weights in (BLEND, BlendWeights(2.0, 0.1, 0.7)):
        expected = blend(scores, loads, weights=weights, floor=2)

        assert pytest.approx(expected) == [each.total for each in worths(known, weights, 2)]
