"""Percentiles of ages: never younger than they were, at most 6 % older, of the seconds that were seen."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from indexer.reports.windows import EDGES_MS, NOTHING, SECONDS, Ages, Percentiles


def nearest(samples: list[int], share: int) -> int:
    """The nearest-rank percentile."""
    return sorted(samples)[-(-len(samples) * share // 100) - 1]


def test_nothing_seen_is_nothing_told() -> None:
    """Also where only the absence of a number was seen."""
    ages = Ages()
    assert NOTHING == ages.over(60, 1_000)
    ages.sample(1_000, None)
    assert NOTHING == ages.over(60, 1_000)


def test_the_scale_fits_a_byte_and_reaches_an_hour() -> None:
    """Code 0 is kept for seconds that were not seen."""
    assert len(EDGES_MS) <= 255
    assert sorted(set(EDGES_MS)) == list(EDGES_MS)
    assert EDGES_MS[-1] >= 3_600_000
    assert all(above <= below * 1.061 + 1 for below, above in pairwise(EDGES_MS))


@pytest.mark.parametrize("age_ms", [0, 1, 2, 3, 50, 999, 5_000, 3_599_999])
def test_an_age_is_told_no_younger_than_it_was(age_ms: int) -> None:
    """And at most by a step older."""
    ages = Ages()
    ages.sample(7, age_ms)
    told = ages.over(60, 7).p50

    assert told is not None
    assert age_ms <= told <= max(age_ms + 1, age_ms * 1.061)


def test_older_than_the_scale_is_its_end() -> None:
    """An engine that was silent for a week."""
    ages = Ages()
    ages.sample(7, 604_800_000)
    assert EDGES_MS[-1] == ages.over(60, 7).p99


@pytest.mark.parametrize("seed", range(5))
def test_windows_are_those_of_all_samples_in_them(seed: int) -> None:
    """Against a plain list, over more than an hour, with seconds that were not seen and ages that were not known."""
    draw = random.Random(seed)
    ages, seen, second = Ages(), {}, draw.randrange(10_000)
    for _ in range(3 * SECONDS // 2):
        second += draw.choice((1, 1, 1, 1, 2, 7))
        seen[second] = draw.choice((None, draw.randrange(100), draw.randrange(10_000)))
        ages.sample(second, seen[second])
    for late in (0, 1, 45, 4_000):
        for window in (1, 60, 600, 3_600):
            now = second + late
            samples = [age for at, age in seen.items() if now - window < at and age is not None]
            told = ages.over(window, now)
            if not samples:
                assert NOTHING == told
                continue
            for share, shown in zip((50, 95, 99), told, strict=True):
                assert shown is not None
                assert (
                    nearest(samples, share)
                    <= shown
                    <= max(nearest(samples, share) + 1, nearest(samples, share) * 1.061)
                )


def test_a_saw_tooth_is_told_as_one() -> None:
    """An idle engine that is asked every five seconds."""
    ages = Ages()
    for second in range(600):
        ages.sample(second, second % 5 * 1_000)
    told = ages.over(600, 599)

    assert (
        Percentiles(
            *[EDGES_MS[next(i for i, edge in enumerate(EDGES_MS) if edge >= ms)] for ms in (2_000, 4_000, 4_000)]
        )
        == told
    )
