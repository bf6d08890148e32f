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
    """Two at once, then one every half minute; turns that nobody takes are not saved up beyond two."""
    patience = Patience(OPTIONS)
    assert [True, True, False] == [patience.take_turn(0.0) for _ in range(3)]

    assert not patience.take_turn(29.9)
    assert patience.take_turn(30.0)
    assert not patience.take_turn(30.0)
    assert [True, True, False] == [patience.take_turn(600.0) for _ in range(3)]
