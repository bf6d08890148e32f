"""Sums over samples: what a table's figures mean."""

import pytest

from loadtest.stats import median, percentile, wait_exceeded


def test_a_percentile_is_a_sample() -> None:
    """The smallest one that the share of samples does not exceed."""
    samples = [float(n) for n in range(100, 0, -1)]

    assert [50.0, 99.0, 100.0] == [percentile(samples, share) for share in (0.5, 0.99, 1.0)]
    assert 7.0 == percentile([7.0], 0.999)


def test_no_samples_have_no_percentile() -> None:
    """A run that saw nothing must not look like a quick one."""
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


def test_a_median_of_two_lies_between() -> None:
    """The middle, or the mean of the two in the middle."""
    assert 2.0 == median([3.0, 1.0, 2.0])
    assert 2.5 == median([1.0, 4.0, 2.0, 3.0])


def test_one_stall_is_met_by_a_share_of_arrivals() -> None:
    """In 1,000 ms with one stall of 21 ms, one arrival in a hundred comes in its first 10 ms and waits 11 or more."""
    assert pytest.approx(11.0) == wait_exceeded([21.0], total=1_000.0, share=0.01)


def test_equal_stalls_share_the_arrivals() -> None:
    """Two stalls of 10 ms: 10 arrivals in 1,000 are met by the first 5 ms of either."""
    assert pytest.approx(5.0) == wait_exceeded([10.0, 10.0], total=1_000.0, share=0.01)


def test_a_short_iteration_beside_a_long_one_does_not_matter() -> None:
    """Nobody waits longer in it than the result."""
    assert wait_exceeded([21.0], total=1_000.0, share=0.01) == wait_exceeded([21.0, 4.0], total=1_000.0, share=0.01)


def test_without_stalls_nobody_waits() -> None:
    """Also where all that there is does not fill the share."""
    assert 0.0 == wait_exceeded([], total=1_000.0, share=0.001)
    assert 0.0 == wait_exceeded([0.5], total=1_000.0, share=0.001)
