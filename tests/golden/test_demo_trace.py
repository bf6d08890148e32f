"""The packaged demo trace is what `make golden` would write."""

import gzip
from pathlib import Path

import pytest

from tests.golden.demo_trace import packaged


@pytest.mark.parametrize(("path", "content"), packaged().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_packaged_trace_is_the_head_of_the_recorded_one(path: Path, content: bytes) -> None:
    """Message by message and answer by answer, so what the demo shows is what the proof checks."""
    assert content == gzip.decompress(path.read_bytes())
