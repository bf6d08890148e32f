"""Frames of a live message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.collect.messages import parse_message
from indexer.model import RawBatch

LAST = (2**64 - 2).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([b"", bytes(8), b"p"], RawBatch(b"", 0, b"p")),
        ([b"kv@a@m", LAST, b""], RawBatch(b"kv@a@m", 2**64 - 2, b"")),
        ([b"", b"\xff" * 8, b"p"], None),
        ([b"", bytes(7), b"p"], None),
        ([b"", bytes(9), b"p"], None),
        ([b"", bytes(8)], None),
        ([b"", bytes(8), b"p", b""], None),
        ([], None),
    ],
)
def test_messages(frames: list[bytes], message: RawBatch | None) -> None:
    """Topic, eight bytes of number, payload; the number that marks the end of a replay is no batch's."""
    assert message == parse_message(frames)


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_any_frames_are_accepted(frames: list[bytes]) -> None:
    """Never an exception."""
    message = parse_message(frames)

    assert message is None or frames == [message.topic, message.sequence.to_bytes(8, "big"), message.payload]
