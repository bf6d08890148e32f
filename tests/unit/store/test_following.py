"""Following a journal as a transcript: what continues, and all that means loading anew."""

from __future__ import annotations

import pytest

from indexer.store.entries import START, Position, Ticked, encode_entry
from indexer.store.following import Follower, Next, Opened, Reload

TICK = Ticked(5, [])
ENTRY = {b"e": encode_entry(TICK)}


def test_entries_follow_one_another() -> None:
    """Within an epoch, and into the next whose first entry names where this follower is."""
    follower = Follower(Position(5, 2))

    assert [Next(Position(5, 3), TICK), Opened(Position(9, 1)), Next(Position(9, 2), TICK)] == [
        follower.observe(b"5-3", ENTRY),
        follower.observe(b"9-1", {b"a": b"5-3"}),
        follower.observe(b"9-2", ENTRY),
    ]
    assert Position(9, 2) == follower.position


def test_a_partition_that_had_no_journal_begins_with_its_first_owner() -> None:
    """Loaded when nothing was there."""
    follower = Follower(START)
    assert follower.observe_head(None) is None

    assert Opened(Position(9, 1)) == follower.observe(b"9-1", {b"a": b"0-0"})


@pytest.mark.parametrize(
    ("entry_id", "fields", "why"),
    [
        (b"5-4", ENTRY, "hole"),
        (b"5-2", ENTRY, "hole"),
        (b"9-2", ENTRY, "other_history"),
        (b"6-3", ENTRY, "other_history"),
        (b"9-1", {b"a": b"5-3"}, "other_history"),
        (b"9-1", {b"a": b"5-1"}, "other_history"),
        (b"9-1", {b"a": b"0-0"}, "other_history"),
        (b"9-2", {b"a": b"5-2"}, "other_history"),
        (b"9-1", {b"a": b"x"}, "damaged"),
        (b"5-3", {b"e": b"x"}, "damaged"),
        (b"5-3", {}, "damaged"),
    ],
)
def test_anything_else_means_loading_anew(entry_id: bytes, fields: dict[bytes, bytes], why: str) -> None:
    """And stays so: what would fit later does not heal it, and the position stands."""
    follower = Follower(Position(5, 2))

    steps = [follower.observe(entry_id, fields), follower.observe(b"5-3", ENTRY), follower.observe_head(b"5-2")]

    assert why == (steps[0].why if isinstance(steps[0], Reload) else None)
    assert [steps[0]] * 3 == steps
    assert Position(5, 2) == follower.position


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"5-2", None),
        (b"5-3", None),
        (b"9-1", None),
        (b"5-1", "ahead"),
        (b"4-9", "ahead"),
        (None, "gone"),
        (b"x", "damaged"),
    ],
)
def test_the_head_tells_whether_the_store_went_back(head: bytes | None, why: str | None) -> None:
    """Where nothing comes any more: restored from a snapshot, failed over with a loss, emptied."""
    lost = Follower(Position(5, 2)).observe_head(head)

    assert why == (None if lost is None else lost.why)
