"""Whether a map was read whole: by two looks at its state and the number of fields read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from indexer.store.failures import DamagedValue
from indexer.store.loading import SourceState, parse_state, verdict

STATE = SourceState(generation=7, cursor=3, copy=1, segments=2, pairs=100, gone=10, complete=True)
FIELDS = {
    b"generation": b"7",
    b"cursor": b"18446744073709551615",
    b"facts": b"f",
    b"copy": b"1",
    b"segments": b"2",
    b"pairs": b"100",
    b"gone": b"10",
    b"complete": b"1",
}


def test_a_state_is_read() -> None:
    """With a cursor of 64 bits, or none yet; unknown fields are another version's."""
    state = replace(STATE, cursor=2**64 - 1, facts=b"f")

    assert state == parse_state({**FIELDS, b"new": b"?"})
    without = {name: value for name, value in FIELDS.items() if name != b"cursor"}
    assert replace(state, cursor=None) == parse_state(without)


def test_an_engine_that_has_published_nothing() -> None:
    """Its cursor is before the first batch."""
    assert replace(STATE, cursor=-1, facts=b"f") == parse_state({**FIELDS, b"cursor": b"-1"})


def test_what_is_not_begun_has_no_map() -> None:
    """Removed, or raised by a command: a generation and nothing else."""
    assert SourceState(generation=7) == parse_state({b"generation": b"7", b"command": b"c"})
    assert parse_state({}) is None


@pytest.mark.parametrize("name", [b"generation", b"cursor", b"copy", b"segments", b"pairs", b"gone"])
def test_damage_is_told(name: bytes) -> None:
    """Not guessed."""
    for damaged in (b"x", b"", b"-2", b"1" * 5_000):
        with pytest.raises(DamagedValue):
            parse_state({**FIELDS, name: damaged})


@pytest.mark.parametrize(
    "damaged",
    [{b"segments": b"0"}, {b"segments": b"9999999999"}, {b"generation": b"%d" % 2**63}, {b"pairs": b"%d" % 2**64}],
)
def test_what_cannot_be_is_damage(damaged: dict[bytes, bytes]) -> None:
    """A map of no or of billions of segments, numbers of more than 64 bits."""
    with pytest.raises(DamagedValue):
        parse_state({**FIELDS, **damaged})


@pytest.mark.parametrize(
    ("changes", "read", "expected"),
    [
        ({}, 100, "whole"),
        ({"pairs": 150}, 150, "whole"),
        ({"pairs": 150}, 100, "whole"),  # what was added while reading may have been missed
        ({"pairs": 60, "gone": 50}, 60, "whole"),
        ({"pairs": 100, "gone": 50}, 60, "whole"),  # forty left, forty others came
        ({}, 99, "again"),
        ({"pairs": 60, "gone": 50}, 59, "again"),
        ({"copy": 2}, 100, "again"),
        ({"generation": 8}, 100, "again"),
        ({"segments": 4}, 100, "again"),
        ({"complete": False}, 100, "unfinished"),
    ],
)
def test_what_was_read_is_judged(changes: dict[str, int], read: int, expected: str) -> None:
    """By what must have been seen."""
    assert expected == verdict(STATE, replace(STATE, **changes), read)


def test_a_state_that_went_is_unfinished() -> None:
    """Expired or flushed under the reader."""
    assert "unfinished" == verdict(STATE, None, 100)
