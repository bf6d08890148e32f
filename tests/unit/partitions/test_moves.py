"""Which partition is handed over next: transcripts."""

from __future__ import annotations

from typing import Final

from indexer.partitions.moves import FAILED_REST_S, MOVE_EVERY_S, Held, Move, Moves
from indexer.sharding.members import Member
from indexer.sharding.rendezvous import Share

MINE: Final = Share("me", "b")
HERS: Final = Share("b", "me")


def live(*ready: int) -> dict[str, Member]:
    """Both; `b` could take these at once."""
    return {
        "me": Member(name="me", process="1"),
        "b": Member(name="b", process="2", ready=list(ready)),
    }


def test_what_is_where_it_should_be_stays() -> None:
    """And what nobody should own, too."""
    moves = Moves("me", 30.0)

    assert None is moves.next([Held(1, 0.0, MINE), Held(2, 0.0, Share(None, None)), Held(3, 0.0, None)], live(1, 2, 3),
                              100.0, stays=True)  # fmt: skip


def test_it_goes_to_whoever_is_ready() -> None:
    """Not before, and not to a replica that is not there."""
    moves = Moves("me", 30.0)
    held = [Held(1, 0.0, HERS), Held(2, 0.0, Share("c", "me"))]

    assert [None, Move(1, "b")] == [moves.next(held, live(*ready), 100.0, stays=True) for ready in ((2,), (1, 2))]


def test_one_a_second() -> None:
    """However many should be elsewhere."""
    moves = Moves("me", 0.0)
    held = [Held(1, 0.0, HERS), Held(2, 0.0, HERS)]

    times = (100.0, 100.1, 100.0 + MOVE_EVERY_S)
    assert [Move(1, "b"), None, Move(1, "b")] == [moves.next(held, live(1, 2), now, stays=True) for now in times]


def test_who_stops_does_not_wait() -> None:
    """All that somebody is ready for goes, one right after the other."""
    moves = Moves("me", 30.0)
    held = [Held(1, 80.0, HERS), Held(2, 80.0, HERS)]

    assert Move(1, "b") == moves.next(held, live(1, 2), 100.0, stays=False, stops=True)
    assert Move(2, "b") == moves.next(held[1:], live(1, 2), 100.0, stays=False, stops=True)


def test_what_came_lately_stays_for_a_while() -> None:
    """Unless this replica is to be given up: then it need not."""
    moves = Moves("me", 30.0)
    held = [Held(1, 80.0, HERS)]

    assert None is moves.next(held, live(1), 100.0, stays=True)
    assert Move(1, "b") == moves.next(held, live(1), 100.0, stays=False)
    assert Move(1, "b") == moves.next(held, live(1), 110.0, stays=True)


def test_what_could_not_be_handed_over_rests() -> None:
    """Others do not wait for it; and it is tried again."""
    moves = Moves("me", 0.0)
    held = [Held(1, 0.0, HERS), Held(2, 0.0, HERS)]

    assert Move(1, "b") == moves.next(held, live(1, 2), 100.0, stays=False)
    moves.failed(1, 105.0)
    assert Move(2, "b") == moves.next(held, live(1, 2), 105.0, stays=False)
    assert None is moves.next(held[:1], live(1, 2), 104.0 + FAILED_REST_S, stays=False)
    assert Move(1, "b") == moves.next(held, live(1, 2), 105.0 + FAILED_REST_S, stays=False)
