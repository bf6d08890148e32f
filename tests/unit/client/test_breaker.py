"""When a router leaves an index alone that does not answer, and when it tries again. Time is told by hand."""

from __future__ import annotations

from typing import Any

import pytest

import kvindexer_client
import kvindexer_ray
from kvindexer_client import REST_AFTER, REST_MAX_S, REST_S

MOST = 1.2
LEAST = 0.8


class HandClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    """At some moment."""
    return HandClock()


@pytest.fixture(params=[kvindexer_client.Breaker, kvindexer_ray.Breaker])
def kind(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  one of the two files to copy
    """Both files have one, and the same."""
    return request.param


def _fail(breaker: Any, times: int) -> None:  # noqa: ANN401
    for _ in range(times):
        asked_at = breaker.ask()
        assert asked_at is not None
        breaker.failed(asked_at)


def test_a_few_failures_in_a_row_begin_a_rest(clock: HandClock, kind: Any) -> None:  # noqa: ANN401
    """Not fewer; and a success in between starts the count anew."""
    breaker = kind(clock)
    _fail(breaker, REST_AFTER - 1)
    breaker.succeeded()
    _fail(breaker, REST_AFTER - 1)
    assert not breaker.rests()
    _fail(breaker, 1)

    assert breaker.rests()
    assert breaker.ask() is None
    clock.now += LEAST * REST_S - 0.01
    assert breaker.rests()


def test_after_a_rest_one_is_the_trial(clock: HandClock, kind: Any) -> None:  # noqa: ANN401
    """The others go on without, also where the trial never reports."""
    breaker = kind(clock)
    _fail(breaker, REST_AFTER)
    clock.now += MOST * REST_S
    assert breaker.ask() is not None
    assert [None] * 5 == [breaker.ask() for _ in range(5)]
    clock.now += MOST * REST_MAX_S
    assert breaker.ask() is not None


def test_a_trial_that_fails_doubles_the_rest_up_to_a_limit(clock: HandClock, kind: Any) -> None:  # noqa: ANN401
    """And one success ends it all."""
    breaker = kind(clock)
    _fail(breaker, REST_AFTER)
    rest_s = REST_S
    for _ in range(8):
        clock.now += MOST * rest_s
        _fail(breaker, 1)
        rest_s = min(2 * rest_s, REST_MAX_S)
        clock.now += LEAST * rest_s - 0.01
        assert breaker.rests()
        clock.now -= LEAST * rest_s - 0.01
    assert rest_s == REST_MAX_S
    clock.now += MOST * REST_MAX_S
    assert breaker.ask() is not None
    breaker.succeeded()

    assert not breaker.rests()
    assert all(breaker.ask() is not None for _ in range(5))


def test_many_that_were_under_way_count_once(clock: HandClock, kind: Any) -> None:  # noqa: ANN401
    """A hundred requests in flight when it dies must not mean the longest rest."""
    breaker = kind(clock)
    asked = [breaker.ask() for _ in range(100)]
    clock.now += 0.05
    for asked_at in asked:
        assert asked_at is not None
        breaker.failed(asked_at)

    clock.now += MOST * REST_S
    assert not breaker.rests()


def test_an_index_that_says_when_is_asked_then(clock: HandClock, kind: Any) -> None:  # noqa: ANN401
    """After one refusal, and not later than the longest rest."""
    for says_s, rests_s in ((2.0, 2.0), (3600.0, REST_MAX_S)):
        breaker = kind(clock)
        asked_at = breaker.ask()
        assert asked_at is not None
        breaker.failed(asked_at, says_s)
        clock.now += LEAST * rests_s - 0.01
        assert breaker.rests()
        clock.now += (MOST - LEAST) * rests_s + 0.01
        assert not breaker.rests()


def test_both_files_rest_alike() -> None:
    """The numbers stand in each of them."""
    names = ("REST_AFTER", "REST_S", "REST_MAX_S")
    assert [getattr(kvindexer_client, name) for name in names] == [getattr(kvindexer_ray, name) for name in names]
