"""The soak in short: memory under churn, with generous bounds, in a process of its own."""

import pytest

from loadtest.soak import ENDLESS_MAX_MIB, Curve, churn, endless

MIB = 2**20


def test_memory_is_flat_under_churn() -> None:
    """After the warm-up nothing grows: 300,000 blocks pass through 16,000 live ones."""
    curve = churn(blocks=300_000, sources=4, live_blocks=4_000)

    assert curve.growth < 0.5
    assert curve.samples[-1][1] < 3 * curve.samples[len(curve.samples) // 4][1]
    assert curve.left <= max(size for _, size in curve.samples)


def test_growth_and_what_is_kept_are_shares_of_the_index() -> None:
    """Counted from the end of the warm-up, and against the highest point."""
    steady = [(n, 60 * MIB) for n in range(20)]
    growing = [(n, (60 + 4 * n) * MIB) for n in range(20)]

    assert 0.0 == Curve(50 * MIB, steady, 50 * MIB, 50 * MIB, 1).growth
    assert Curve(50 * MIB, growing, 50 * MIB, 50 * MIB, 1).growth > 1
    assert 0.0 == Curve(50 * MIB, steady, 50 * MIB, 50 * MIB, 1).kept
    assert Curve(50 * MIB, steady, 60 * MIB, 60 * MIB, 1).kept == 0.6


@pytest.mark.parametrize("what", ["engine_clears", "operator_clears", "restarts", "registrations"])
def test_turns_without_end_grow_nothing(what: str) -> None:
    """A thousand of each, in a process of its own."""
    grown, _ = endless(what, 1_000)

    assert grown < ENDLESS_MAX_MIB * MIB
