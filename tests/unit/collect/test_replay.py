"""Frames of the replay socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.collect.replay import END_MARKER, MALFORMED, EndMarker, Malformed, parse_reply, request_frames
from indexer.model import RawBatch

SEVEN = (7).to_bytes(8, "big")
MARK = b"\xff" * 8


def test_a_request_is_a_delimiter_and_a_number() -> None:
    """Without the delimiter the engine drops it with a log line."""
    assert [b"", b"\0\0\0\0\0\0\x01\x02"] == request_frames(0x102)


@pytest.mark.parametrize(
    ("frames", "reply"),
    [
        ([b"", SEVEN, b"p"], RawBatch(b"", 7, b"p", late=True)),
        ([b"", b"kv@a@m", SEVEN, b"p"], RawBatch(b"kv@a@m", 7, b"p", late=True)),
        ([b"", b"", SEVEN, b""], RawBatch(b"", 7, b"", late=True)),
        ([b"", MARK, b""], END_MARKER),
        ([b"", b"", MARK, b""], END_MARKER),
        ([], MALFORMED),
        ([b""], MALFORMED),
        ([b"", b"p"], MALFORMED),
        ([b"", b"7", b"p"], MALFORMED),
        ([b"x", SEVEN, b"p"], MALFORMED),
        ([b"", b"t", SEVEN, b"p", b"more"], MALFORMED),
    ],
)
def test_replies(frames: list[bytes], reply: RawBatch | EndMarker | Malformed) -> None:
    """Two or three frames after the delimiter; the number is the second to last. All of them are of the past."""
    assert reply == parse_reply(frames)


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_any_frames_are_something(frames: list[bytes]) -> None:
    """Never an exception."""
    assert isinstance(parse_reply(frames), RawBatch | EndMarker | Malformed)
