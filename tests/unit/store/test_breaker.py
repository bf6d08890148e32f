"""The circuit breaker as a transcript: closed, open, probing."""

from __future__ import annotations

from indexer.store.breaker import Breaker, BreakerOptions

OPTIONS = BreakerOptions(failures=3, rest_s=1.0, rest_max_s=4.0)


def opened(breaker: Breaker, now: float = 0.0) -> Breaker:
    """After as many failures as it takes; rests in full (chance 1)."""
    for _ in range(OPTIONS.failures):
        assert breaker.allow(now)
        breaker.failed(now, 1.0)
    assert "open" == breaker.state
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    """An answer in between begins the count anew."""
    breaker = Breaker(OPTIONS)
    for _ in range(5):
        breaker.failed(0.0, 0.0)
        breaker.failed(0.0, 0.0)
        breaker.succeeded()

    assert breaker.allow(0.0)
    assert not opened(breaker).allow(0.0)


def test_after_its_rest_one_call_finds_out() -> None:
    """The others go on being refused until that one is back."""
    breaker = opened(Breaker(OPTIONS))

    assert [False, True, False] == [breaker.allow(now) for now in (0.99, 1.0, 1.0)]
    breaker.succeeded()
    assert [True, True] == [breaker.allow(now) for now in (1.0, 1.0)]


def test_a_probe_that_fails_doubles_the_rest() -> None:
    """Up to a limit; a success makes it short again."""
    breaker = opened(Breaker(OPTIONS))
    now = 1.0
    for rest in (2.0, 4.0, 4.0):
        assert breaker.allow(now)
        breaker.failed(now, 1.0)
        assert not breaker.allow(now + rest - 0.01)
        now += rest
    assert breaker.allow(now)
    breaker.succeeded()

    opened(breaker, now)
    assert breaker.allow(now + 1.0)


def test_chance_spreads_the_probes() -> None:
    """Over the second half of the rest."""
    for chance, first in ((0.0, 0.5), (0.5, 0.75), (0.99, 0.995)):
        breaker = Breaker(OPTIONS)
        for _ in range(OPTIONS.failures):
            breaker.failed(0.0, chance)

        assert [False, True] == [breaker.allow(now) for now in (first - 0.001, first)]


def test_calls_that_were_under_way_when_it_opened_say_nothing_new() -> None:
    """Their failures neither lengthen the rest nor close it."""
    breaker = opened(Breaker(OPTIONS))
    for _ in range(20):
        breaker.failed(0.5, 1.0)

    assert breaker.allow(1.0)
    breaker.failed(1.0, 1.0)
    assert [False, True] == [breaker.allow(now) for now in (2.99, 3.0)]


def test_a_probe_whose_caller_gave_up_makes_room_for_another() -> None:
    """Nothing is known, so the next may ask at once; a closed one stays closed."""
    breaker = opened(Breaker(OPTIONS))
    assert breaker.allow(1.0)
    breaker.gave_up(1.0)
    assert [True, False] == [breaker.allow(1.0), breaker.allow(1.0)]

    closed = Breaker(OPTIONS)
    closed.gave_up(0.0)
    assert closed.allow(0.0)
