"""What moments say of takeovers and of moves."""

from __future__ import annotations

import pytest

from loadtest.pauses import Takeover, longest_pause_s, per_million, takeover

S = 1_000_000_000


def test_a_source_is_there_when_the_first_replica_has_it() -> None:
    """The takeover is over with the last source; a replica that saw nothing of one does not count for it."""
    seen = [{"a": 12 * S, "b": 15 * S}, {"a": 13 * S, "b": 14 * S, "c": 11 * S}]

    assert Takeover(first_s=1.0, last_s=4.0) == takeover(10 * S, seen)


def test_no_source_no_takeover() -> None:
    """Said, as no figure would mean anything."""
    with pytest.raises(ValueError, match="owned no source"):
        takeover(10 * S, [{}, {}])


@pytest.mark.parametrize(
    ("moments", "longest_s"),
    [
        ([], 10.0),
        ([11 * S, 12 * S, 19 * S], 7.0),
        ([14 * S, 16 * S], 4.0),  # at either edge
        ([11 * S], 9.0),
    ],
)
def test_the_longest_pause(moments: list[int], longest_s: float) -> None:
    """Between two moments, or between one and the beginning or the end of the watch."""
    assert longest_s == longest_pause_s(moments, 10 * S, 20 * S)


def test_cpu_a_million_blocks() -> None:
    """2 s for half a million are 4."""
    assert 4.0 == per_million(2.0, 500_000)
