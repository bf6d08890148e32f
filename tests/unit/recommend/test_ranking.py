"""From what is known of candidates to their totals, term by term."""

from __future__ import annotations

import pytest

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from tests.support.candidates import Known, ranked


def test_every_term_is_kept() -> None:
    """Each is weighted, and together they are the total."""
    (worth,) = ranked([Known(score=0.5, expected=0.2, requests=3)])

    assert pytest.approx((0.9, 0.5, 0.3, 0.1, 0.0)) == worth


def test_without_loads_the_load_says_nothing() -> None:
    """Of nobody anything is known: the term is 0 for all."""
    assert [0.0, 0.0] == [each.load for each in ranked([Known(), Known()])]


def test_a_silent_pod_gets_nothing_for_its_load() -> None:
    """What was read of it last is as old as its silence; what it holds still counts."""
    silent, other = ranked([Known(score=0.5, requests=0, silent=True), Known(requests=10)])

    assert pytest.approx((0.5, 0.5, 0.3, 0.0, 0.3)) == silent
    assert 0.0 == other.total


@pytest.mark.parametrize(("usage", "penalty"), [(0.5, 0.0), (0.9, 0.0), (0.95, 0.15), (1.0, 0.3), (None, 0.0)])
def test_a_nearly_full_cache_costs_up_to_what_load_can_count(usage: float | None, penalty: float) -> None:
    """From nine tenths on."""
    (worth,) = ranked([Known(requests=0, kv_usage=usage)])

    assert penalty == pytest.approx(worth.penalty)
    assert pytest.approx(0.3 - penalty) == worth.total


def test_a_crowded_pod_comes_behind_all_others() -> None:
    """Whatever it holds; among crowded ones the same order holds."""
    found = ranked([Known(score=1.0, crowded=True), Known(score=0.5, crowded=True), Known()])

    assert [2, 0, 1] == sorted(range(3), key=lambda place: -found[place].total)


def test_prefix_outweighs_load_by_the_defaults() -> None:
    """Half of a prompt is worth more than all the headroom, a tenth is not."""
    assert [0.5, 0.3] == _totals(Known(0.5, requests=20), Known(requests=0))
    assert [0.1, 0.3] == _totals(Known(0.1, requests=20), Known(requests=0))
    assert [0.1, 0.0] == _totals(Known(0.1), Known())


def test_weights_and_floor_are_the_callers() -> None:
    """Both terms are weighted, and the floor sets what a request is worth."""
    totals = _totals(Known(0.5, requests=1), Known(requests=0), weights=BlendWeights(prefix=2, load=10), floor=10)

    assert pytest.approx([1.0 + 9.0, 10.0]) == totals


def _totals(*known: Known, weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> list[float]:
    return [each.total for each in ranked(known, weights, floor)]
