"""What is packed for Lua is MessagePack: another reader finds the same in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.store.packing import array, text, texts


def read(data: bytes) -> object:
    """By the library, which wants text to be text."""
    return msgspec.msgpack.decode(data)


@given(st.lists(st.text(max_size=80).map(str.encode), max_size=40))
def test_arrays_of_strings(values: list[bytes]) -> None:
    """In order."""
    assert [value.decode() for value in values] == read(texts(values)) == read(array([text(v) for v in values]))


@pytest.mark.parametrize("length", [0, 31, 32, 70_000])
def test_strings_of_any_length(length: int) -> None:
    """Short and long have other headers."""
    assert ["x" * length] == read(texts([b"x" * length]))
