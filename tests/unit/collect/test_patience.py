"""How often a replay endpoint may be asked."""

from __future__ import annotations

from dataclasses import replace

from indexer.collect.options import CollectOptions
from indexer.collect.patience import Patience

OPTIONS = replace(CollectOptions(), replay_backoff_min_s=5.0, replay_backoff_max_s=18.0, replays_per_minute=2)


def test_waits_double_up_to_a_limit() -> None:
    """5, 10, then 18 seconds, however often it fails."""
    patience = Patience(OPTIONS)
    now = 0.0
    for wait_s in (5.0, 10.0, 18.0, 18.0):
        patience.failed(now)
        assert not patience.allows(now + wait_s - 0.1)
        assert patience.allows(now + wait_s)
        now += wait_s


def test_an_answer_starts_the_waits_anew() -> None:
    """It says whether there was something to recover from."""
    patience = Patience(OPTIONS)

    assert not patience.answered()
    patience.failed(0.0)
    patience.failed(5.0)
    assert patience.answered()
    patience.failed(20.0)
    assert patience.allows(25.0)


def test_recoveries_per_minute() -> None:
    """The oldest must be a minute old before another may begin."""
    patience = Patience(OPTIONS)
    patience.recovery_began(0.0)
    patience.recovery_began(30.0)

    assert not patience.allows(59.9)
    assert patience.allows(60.0)
    patience.recovery_began(60.0)
    assert not patience.allows(89.0)
