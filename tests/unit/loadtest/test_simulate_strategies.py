"""Who gets a request."""

from __future__ import annotations

from collections import Counter

from indexer.recommend.blend import BLEND
from loadtest.simulate.strategies import (
    Seen,
    blended,
    least_load,
    longest_match,
    round_robin,
    session_hash,
    without_loads,
)

FEW, MANY = 4, 30


def seen(
    number: int = 0, *, loads: tuple[int, ...] = (0, 0, 0), matched: tuple[int, ...] = (0, 0, 0), session: int = 0
) -> Seen:
    """A prompt of ten blocks, one run; nothing is on its way."""
    return Seen(number / 10, number, session, 10, ((0, 10),), loads, matched, matched)


def test_round_robin_takes_turns() -> None:
    """By the number of the request."""
    assert [0, 1, 2, 0] == [round_robin(3).choose(seen(number)) for number in range(4)]


def test_a_session_stays_and_sessions_are_spread() -> None:
    """Whatever is known."""
    choose = session_hash(3).choose
    assert choose is not None
    assert choose(seen(1, session=7)) == choose(seen(2, session=7, loads=(9, 9, 9)))
    assert {0, 1, 2} == {choose(seen(session=number)) for number in range(MANY)}


def test_the_least_load_and_the_longest_match() -> None:
    """Each looks at nothing else."""
    told = seen(loads=(3, 1, 2), matched=(9, 0, 4))

    assert 1 == least_load().choose(told)
    assert 0 == longest_match().choose(told)


def test_equals_are_spread_where_nothing_matches_and_not_where_the_same_block_does() -> None:
    """The trap of the longest match: what all prompts begin with draws all to one pod."""
    choose = longest_match().choose
    assert choose is not None
    assert {0, 1, 2} == {choose(seen(number)) for number in range(MANY)}
    assert 1 == len({choose(seen(number, matched=(1, 1, 1))) for number in range(MANY)})


def test_the_blend_weighs_what_is_matched_against_load() -> None:
    """A tenth of the prompt is not worth four requests, half of it is."""
    choose = blended().choose
    assert choose is not None
    assert 1 == choose(seen(loads=(FEW, 0, 1), matched=(1, 0, 0)))
    assert 0 == choose(seen(loads=(FEW, 0, 1), matched=(5, 0, 0)))
    assert 1 == blended(BLEND._replace(load=0.6)).choose(seen(loads=(FEW, 0, 1), matched=(5, 0, 0)))
    assert 0 == blended(floor=40.0).choose(seen(loads=(FEW, 0, 1), matched=(1, 0, 0)))


def test_what_is_on_its_way_counts_for_less() -> None:
    """Than what is there, but for more than nothing."""
    choose = blended().choose
    assert choose is not None
    assert 1 == choose(seen()._replace(expected=(0, 5, 0)))
    assert 0 == choose(seen(matched=(5, 0, 0))._replace(expected=(5, 5, 0)))


def test_what_will_go_for_what_is_on_its_way_is_not_known() -> None:
    """A pod is worth what it has announced."""
    choose = blended().choose
    assert choose is not None
    assert 0 == choose(seen(matched=(5, 4, 0))._replace(expected=(0, 4, 0)))


def test_without_loads_a_hot_prefix_is_spread() -> None:
    """Of thirty requests in three seconds that one pod has a block of, it gets twice its share, and others the rest."""
    choose = without_loads(3).choose
    assert choose is not None
    got = Counter(choose(seen(number, matched=(1, 0, 0))) for number in range(MANY))

    assert 20 == got[0]
    assert MANY == got.total()
