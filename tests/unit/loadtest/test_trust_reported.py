"""What the consistency report must say, from what the judge knows."""

from __future__ import annotations

from loadtest.trust.judging import Figures, Told, Truth
from loadtest.trust.reported import difference


def test_a_report_that_is_off_is_told_by_how_much() -> None:
    """In any of its sums."""
    figures = Figures()
    told = Told(pod="pod", reusable_tokens=32, state="suspect", bound="estimate", generation="1", sequence=5)
    for now in (32, 48, 16):
        figures.note(told, Truth(now, now), settled=True)
    said = {
        "samples": 3,
        "exact": 1,
        "predicted_tokens": 96,
        "real_tokens": 96,
        "false_hit_tokens": 16,
        "lost_hit_tokens": 16,
        "unjoined": 0,
    }

    assert 0 == difference(figures, said)
    assert [1] * len(said) == [difference(figures, {**said, name: value + 1}) for name, value in said.items()]
