"""Who gets how much of what is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.admission import LOCAL, Shares, peer_of


def _fill(shares: Shares, *callers: str) -> list[int]:
    """What each holds when all take turns until nobody gets more."""
    granted = True
    while granted:
        granted = False
        for caller in callers:
            granted |= shares.take(caller)
    return [shares.held(caller) for caller in callers]


def test_one_alone_gets_most_and_leaves_the_rest() -> None:
    """Four fifths."""
    assert [820] == _fill(Shares("limits.x", 1_024), "a")


def test_two_get_the_same() -> None:
    """And a ninth is left."""
    assert [456, 455] == _fill(Shares("limits.x", 1_024), "a", "b")


def test_who_comes_later_is_not_refused_for_who_came_first() -> None:
    """A new caller finds room however long the first one has been there."""
    shares = Shares("limits.x", 100)
    _fill(shares, "greedy")

    assert shares.take("new")


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_small_limit_can_be_used_up(most: int) -> None:
    """By callers that hold one each; one more is refused."""
    shares = Shares("limits.x", most)

    assert [True] * most + [False] == [shares.take(str(n)) for n in range(most + 1)]


def test_nobody_gets_more_than_is_for_each() -> None:
    """However much is free."""
    assert [3] == _fill(Shares("limits.x", 1_000, each=3), "a")


def test_what_is_refused_is_counted_under_its_name() -> None:
    """Once each time, and costs nothing."""
    reached: list[str] = []
    shares = Shares("limits.x", 1, reached=reached.append)

    assert [True, False, False] == [shares.take("a"), shares.take("b"), shares.take("b")]
    assert ["limits.x"] * 2 == reached
    assert (1, 0) == (shares.total, shares.held("b"))


def test_a_place_is_given_back() -> None:
    """Also where the block fails; a refused one has nothing to give."""
    shares = Shares("limits.x", 1)

    def fail() -> None:
        with shares.place("a") as granted, shares.place("b") as other:
            assert (True, False) == (granted, other)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert 0 == shares.total
    assert shares.take("b")


@given(st.integers(1, 50), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.booleans()), max_size=80))
def test_it_never_holds_more_than_there_is(most: int, steps: list[tuple[str, int, bool]]) -> None:
    """And one that holds nothing is refused only where the amount does not fit."""
    shares = Shares("limits.x", most)
    taken: list[tuple[str, int]] = []
    for caller, amount, gives in steps:
        if gives and taken:
            shares.give_back(*taken.pop())
        elif shares.take(caller, amount):
            taken.append((caller, amount))
        elif not shares.held(caller):
            assert amount > most - shares.total
        assert sum(amount for _, amount in taken) == shares.total <= most
    for each in taken:
        shares.give_back(*each)
    assert {} == shares._held


@pytest.mark.parametrize(
    ("host", "caller"),
    [
        (None, LOCAL),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("2001:db8::9", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a-name", "a-name"),
    ],
)
def test_a_machine_is_one_caller(host: str | None, caller: str) -> None:
    """By whichever of its addresses it comes."""
    assert caller == peer_of(host)
