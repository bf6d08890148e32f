"""MessagePack as Redis's Lua reads it: its reader is older than the type for bytes, so bytes go as text. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT: Final = [bytes((0xA0 | length,)) for length in range(32)]
_LONG: Final = struct.Struct(">BI")
_TEXT: Final = 0xDB
_ARRAY: Final = 0xDD


def text(value: bytes) -> bytes:
    """A string of Lua's."""
    return (_SHORT[len(value)] if len(value) < len(_SHORT) else _LONG.pack(_TEXT, len(value))) + value


def texts(values: Sequence[bytes]) -> bytes:
    """An array of strings."""
    short = len(_SHORT)
    return _LONG.pack(_ARRAY, len(values)) + b"".join(
        [_SHORT[len(value)] + value if len(value) < short else text(value) for value in values]
    )


def array(packed: Sequence[bytes]) -> bytes:
    """An array of what is packed already."""
    return _LONG.pack(_ARRAY, len(packed)) + b"".join(packed)
