"""The envelope's time stamp and rank, without decoding its events."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.decode.envelope import peek_rank, peek_ts, stamp

encode = msgspec.msgpack.encode
EVENTS = [{"type": "BlockRemoved", "block_hashes": [1, 2**64 - 1], "medium": "GPU"}, ["AllBlocksCleared"]]


@pytest.mark.parametrize(
    ("envelope", "ts", "rank"),
    [
        ([1700000000.5, EVENTS, 0], 1700000000.5, 0),
        ([1700000000.5, EVENTS, 131], 1700000000.5, 131),
        ([1700000000.5, EVENTS, None], 1700000000.5, None),
        ([1700000000.5, EVENTS], 1700000000.5, None),
        ([1700000000.5, EVENTS, 3, "later field"], 1700000000.5, 3),
        ([1700000000123, EVENTS, 2], 1700000000123.0, 2),  # Mooncake: integer milliseconds
        ({"ts": 2.5, "events": EVENTS, "data_parallel_rank": 4}, 2.5, 4),
        ({"events": EVENTS, "ts": 3, "attn_dp_rank": 1}, 3.0, 1),  # SGLang's name
        ({"ts": 2.5, "events": EVENTS}, 2.5, None),
        ([float("nan"), EVENTS, 0], None, 0),
        ([float("inf"), EVENTS, 0], None, 0),
        ({"ts": float("nan")}, None, None),
        (["yesterday", EVENTS, "none"], None, None),
        ([True, EVENTS, True], None, None),
        ([1.5, EVENTS, -1], 1.5, None),
        ({"events": EVENTS}, None, None),
        ({1: 2}, None, None),
        ([], None, None),
        (5, None, None),
    ],
)
def test_forms_of_the_envelope(envelope: object, ts: float | None, rank: int | None) -> None:
    """Array and map, int and float stamps, missing and later fields; a value of another kind is none."""
    payload = encode(envelope)

    assert (ts, rank) == (peek_ts(payload), peek_rank(payload))


def test_the_cheap_form_needs_the_whole_number() -> None:
    """A payload cut inside its time stamp has none."""
    payload = encode([1.5, [], 0])

    assert [None] * 10 == [peek_ts(payload[:length]) for length in range(10)]


@pytest.mark.parametrize("opening", [b"\x91", b"\x92\x01\x91", b"\x81"])
def test_deep_nesting_is_no_envelope(opening: bytes) -> None:
    """Bytes made to exhaust the stack are refused like any others."""
    payload = opening * 50_000

    assert (None, None) == (peek_ts(payload), peek_rank(payload))


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x93\xcb" + tail))
def test_any_bytes_are_accepted(payload: bytes) -> None:
    """Never an exception, and always a finite stamp that the same bytes give again."""
    peek_rank(payload)
    ts = peek_ts(payload)

    assert stamp(payload) == stamp(bytes(payload))
    assert ts in {None, stamp(payload)}


def test_without_a_time_stamp_the_bytes_themselves_tell_batches_apart() -> None:
    """Two batches of one number are still told apart when the engine sends no usable time."""
    first, second = encode(["?", [], 0]), encode(["?", [], 1])

    assert stamp(first) != stamp(second)
    assert stamp(first) < 0
