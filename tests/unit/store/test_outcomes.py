"""Replies of scripts that no script of ours gives are errors, not answers."""

from __future__ import annotations

import pytest

from indexer.store.failures import StoreFailure
from indexer.store.outcomes import Began, Done, OtherCursor, began, done, whereabouts


@pytest.mark.parametrize("reply", [[b"YES"], [b""], [b"HELD", b"t", 5]])
def test_an_unknown_reply_is_told(reply: list[object]) -> None:
    """By its first word only."""
    with pytest.raises(StoreFailure, match="replied"):
        done(reply)


def test_again_is_told_apart() -> None:
    """Where it is in the store already."""
    assert [Done(), Done(again=True)] == [done([b"OK"]), done([b"OK", b"again"])]
    assert Began(None, again=True) == began([b"OK", b"again"])


def test_a_source_may_have_had_no_map() -> None:
    """A removed one has a generation and nothing else."""
    assert whereabouts(b"7", b"", b"") is None


@pytest.mark.parametrize("state", [(b"x", b"0", b"4"), (b"7", b"x", b"4"), (b"7", b"0", b"9999999999")])
def test_a_map_whose_place_was_damaged_is_nowhere(state: tuple[bytes, bytes, bytes]) -> None:
    """It expires by itself: nobody names billions of segments."""
    assert whereabouts(*state) is None


def test_a_damaged_cursor_is_another_one() -> None:
    """Which one does not matter."""
    assert OtherCursor(None, 0) == done([b"CURSOR", b"x", 1])
