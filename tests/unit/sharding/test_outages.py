"""How much of outages makes a lease that ran out no sign of a death: transcripts, with a lease of ten seconds."""

from __future__ import annotations

from indexer.sharding.outages import Outages


def told(*outages: tuple[float, float]) -> list[bool]:
    """What is said when each is over."""
    seen = Outages(10.0)
    return [seen.over(since, now) for since, now in outages]


def test_a_short_one_lets_no_lease_run_out() -> None:
    """It is renewed when a third of it is over, and there is time to try again."""
    assert [False] == told((100.0, 103.9))


def test_a_long_one_may() -> None:
    """However long."""
    assert [True, True] == told((100.0, 104.0), (200.0, 1_000.0))


def test_short_ones_in_a_row_may_together() -> None:
    """Each alone would not; what was tried again missed the moments between."""
    assert [False, True, True] == told((100.0, 103.0), (103.1, 106.1), (106.2, 109.2))


def test_what_is_long_past_does_not_count() -> None:
    """Leases were renewed since; of one that reaches back so far, its end does."""
    assert [False, False, False] == told((100.0, 103.0), (113.0, 116.0), (123.5, 124.0))
    assert [False, True] == told((100.0, 103.0), (108.0, 111.9))
