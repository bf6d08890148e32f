"""Which pods got more than their share of a prefix."""

from __future__ import annotations

from collections import Counter

from indexer.model import SourceId
from indexer.recommend.hot import LIMIT, WINDOW_S, HotPrefixes

A, B, C, D = (SourceId(name, 0) for name in "abcd")


def test_more_than_twice_its_share_is_crowded() -> None:
    """Of four pods each has a quarter; beyond half of a prefix's requests a pod is passed over."""
    hot = HotPrefixes(reached=print)
    for pod in (A, A, A, A, A, B, C):
        hot.note(1, pod, 0.0)

    assert {A} == hot.crowded(1, 4, 4, 0.0)
    assert frozenset() == hot.crowded(1, 4, 5, 0.0)
    assert frozenset() == hot.crowded(2, 4, 0, 0.0)
    assert frozenset() == hot.crowded(1, 2, 0, 0.0)


def test_what_was_longer_ago_does_not_count() -> None:
    """Requests of the last 30 s alone; what is over is given back."""
    hot = HotPrefixes(reached=print)
    for at in range(5):
        hot.note(1, A, float(at))

    assert {A} == hot.crowded(1, 4, 4, WINDOW_S - 0.1)
    assert frozenset() == hot.crowded(1, 4, 4, WINDOW_S)
    assert frozenset() == hot.crowded(1, 4, 0, WINDOW_S + 4)
    assert 0 == len(hot)
    assert {} == hot._counts


def test_what_is_remembered_is_bounded() -> None:
    """Beyond, the oldest go, and it is counted."""
    reached: Counter[str] = Counter()
    hot = HotPrefixes(reached=lambda limit: reached.update([limit]), kept_max=3)
    for prefix in range(5):
        hot.note(prefix, A, 0.0)

    assert 3 == len(hot)
    assert {LIMIT: 2} == reached
    assert [2, 3, 4] == list(hot._counts)
