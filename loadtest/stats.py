"""Sums over samples. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0..1) of all samples do not exceed. Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, int(rank) - 1)]


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones."""
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def wait_exceeded(stretches: Sequence[float], total: float, share: float) -> float:
    """The wait that a share of arrivals exceeds, where an arrival in a stretch waits for the stretch's end.

    Arrivals are spread evenly over `total`. `stretches` are the lengths of the longest loop iterations; shorter ones
    may be left out as long as they are shorter than the result. In an iteration of length L the share of arrivals
    that wait longer than w is (L - w) / total. Unlike a percentile over iterations or over samples taken by a timer,
    this counts every moment once.
    """
    exceeding = share * total
    ordered = sorted(stretches, reverse=True)
    summed = 0.0
    for count, length in enumerate(ordered, start=1):
        summed += length
        wait = (summed - exceeding) / count
        if count == len(ordered) or wait >= ordered[count]:
            return max(0.0, wait)
    return 0.0
