"""Faults of `python -m loadtest trust`, the short ones: real engines' streams, a real service, and the judge."""

from __future__ import annotations

from loadtest.trust import losses, restarts, silences


def test_lost_messages_are_replayed_and_nothing_certain_is_wrong() -> None:
    """Every answer is exact again after each loss, without a restart."""
    figures = losses.lossy(["clear"], 0.01, replay=True)

    assert 0 == figures.violations, figures.examples
    assert (1.0, 0, 0) == (figures.exact_share, figures.false_tokens, figures.lost_tokens)
    assert figures.healed_s


def test_engines_that_are_killed() -> None:
    """Who is there is asked at once; nothing of the process before is certain then."""
    figures = restarts.engines_killed(replay=True)

    assert 0 == figures.violations, figures.examples
    assert 1.0 == figures.exact_share
    assert 3 == len(figures.noticed_s)


def test_a_reset_in_silence_is_told_apart() -> None:
    """Nobody can know it, and the engine's next message tells."""
    figures = silences.silent_reset(replay=False)

    assert 0 == figures.violations, figures.examples
    assert figures.unknown > 0  # of what it holds since, while nothing tells
    assert 1.0 == figures.exact_share
    assert 2 == len(figures.noticed_s)
