"""Request ids: the caller's, or a new one."""

import pytest

from api.rest.request_ids import RequestIds


@pytest.mark.parametrize("header", [b"a", b"7c1f3f0e-1d2c-4a52-9a5b-0f2f4b1a3c9d", b"a.b_c:d/e+f=g@h~i", b"x" * 128])
def test_repeats_a_usable_id(header: bytes) -> None:
    """As it came."""
    assert header.decode() == RequestIds().of(header)


@pytest.mark.parametrize("header", [None, b"", b"x" * 129, b"a b", b"a\n", b'"', b"\xff", "é".encode()])
def test_makes_one_otherwise(header: bytes | None) -> None:
    """Different each time and from process to process, and itself usable."""
    ids, others = RequestIds(), RequestIds()
    made = [ids.of(header), ids.of(header), others.of(header)]

    assert 3 == len(set(made))
    assert made[0] == ids.of(made[0].encode())
