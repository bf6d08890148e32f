"""MessagePack as Redis's Lua reads it: its reader is older than the type for bytes, so bytes go as text. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_SHORT: Final = [bytes((0xA0 | length,)) for length in range(32)]
_LONG: Final = struct.Struct(">BI")
_TEXT: Final = 0xDB
_ARRAY: Final = 0xDD
STEP: Final = 2_000
"""Texts packed in one step: half a millisecond."""


def text(value: bytes) -> bytes:
    """A string of Lua's."""
    return (_SHORT[len(value)] if len(value) < len(_SHORT) else _LONG.pack(_TEXT, len(value))) + value


def texts(values: Sequence[bytes]) -> bytes:
    """An array of strings."""
    short = len(_SHORT)
    return _LONG.pack(_ARRAY, len(values)) + b"".join(
        [_SHORT[len(value)] + value if len(value) < short else text(value) for value in values]
    )


def texts_in_steps(values: Sequence[bytes]) -> Generator[None, None, bytes]:
    """The same of many, some at a time."""
    packed: list[bytes] = []
    for start in range(0, len(values), STEP):
        packed.append(texts(values[start : start + STEP])[_LONG.size :])
        yield
    return _LONG.pack(_ARRAY, len(values)) + b"".join(packed)


def array(packed: Sequence[bytes]) -> bytes:
    """An array of what is packed already."""
    return _LONG.pack(_ARRAY, len(packed)) + b"".join(packed)
