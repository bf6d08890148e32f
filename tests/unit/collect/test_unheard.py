"""A connection that stands behind a pulse that was lost."""

from __future__ import annotations

from dataclasses import replace

from indexer.collect.options import CollectOptions
from indexer.collect.unheard import Unheard

OPTIONS = replace(
    CollectOptions(),
    heartbeat_interval_s=1.0,
    heartbeat_timeout_s=3.0,
    keepalive_idle_s=5.0,
    keepalive_interval_s=1.0,
    min_engine_restart_s=5.0,
)


def lost_pulse(at: float) -> Unheard:
    """Noticed then: the newest answer may be four seconds old."""
    unheard = Unheard(OPTIONS)
    unheard.look(at - 0.5, silent=False, beats=True)
    unheard.look(at, silent=True, beats=False)
    return unheard


def test_a_connection_that_is_lost_alone_is_away_from_then_on() -> None:
    """Nothing spoke against it before."""
    unheard = Unheard(OPTIONS)
    unheard.look(9.5, silent=False, beats=True)

    assert 10.0 == unheard.lost(10.0)
    assert unheard.unproven_since is None


def test_what_is_lost_right_behind_the_pulse_may_have_been_so_before() -> None:
    """A cut may be over just when the pulse was given up: then the end of a process is told that is long gone."""
    assert 6.0 == lost_pulse(10.0).lost(10.001)
    assert 6.0 == lost_pulse(10.0).lost(10.3)


def test_a_pulse_that_was_made_anew_and_was_not_heard_since() -> None:
    """After a pause of our own: all that is known is when it beat last. Heard again, nothing speaks against then."""

    def paused() -> Unheard:
        unheard = Unheard(OPTIONS)
        unheard.look(10.0, silent=False, beats=True)
        unheard.look(30.0, silent=False, beats=False)
        unheard.look(30.25, silent=False, beats=False)
        return unheard

    assert 6.0 == paused().lost(33.0)
    unheard = paused()
    unheard.look(30.5, silent=False, beats=True)
    assert 33.0 == unheard.lost(33.0)


def test_another_connection_has_another_past() -> None:
    """Nothing of the one before counts for it."""
    for silent in (True, False):
        unheard = lost_pulse(10.0) if silent else Unheard(OPTIONS)
        unheard.look(10.0, silent=False, beats=True)
        unheard.look(11.0, silent=silent, beats=False)
        unheard.lost(12.0)
        unheard.look(12.5, silent=False, beats=False)

        assert 20.0 == unheard.lost(20.0)


def test_what_keepalive_finds_dead_was_so_since_the_last_sign_of_life() -> None:
    """Whether the pulse is back meanwhile or not."""
    assert 6.0 == lost_pulse(10.0).lost(21.0)

    unheard = lost_pulse(10.0)
    unheard.look(18.0, silent=False, beats=True)
    assert 6.0 == unheard.lost(19.0)


def test_behind_a_pulse_that_is_back_it_proves_nothing_before_keepalive_had_its_time() -> None:
    """Or before a message comes."""
    unheard = lost_pulse(10.0)
    assert unheard.unproven_since is None  # silence is told as it is

    unheard.look(18.0, silent=False, beats=True)
    unheard.look(24.9, silent=False, beats=True)
    assert 6.0 == unheard.unproven_since
    unheard.look(25.0, silent=False, beats=True)
    assert unheard.unproven_since is None
    assert 30.0 == unheard.lost(30.0)

    unheard = lost_pulse(10.0)
    unheard.look(18.0, silent=False, beats=True)
    unheard.heard()
    assert unheard.unproven_since is None
    assert 19.0 == unheard.lost(19.0)


def test_what_was_on_its_way_before_the_pulse_is_back_proves_nothing() -> None:
    """It was sent before the cut."""
    unheard = lost_pulse(10.0)
    unheard.heard()
    unheard.look(18.0, silent=False, beats=True)

    assert 6.0 == unheard.unproven_since


def test_who_is_back_faster_than_an_engine_can_be_is_the_same() -> None:
    """So is a pulse that is lost again."""
    unheard = lost_pulse(10.0)
    unheard.look(10.5, silent=False, beats=True)
    assert unheard.unproven_since is None
    assert 16.0 == unheard.lost(16.0)

    unheard = lost_pulse(10.0)
    unheard.look(10.5, silent=False, beats=True)
    unheard.look(12.0, silent=True, beats=False)
    assert 6.0 == unheard.lost(16.0)
