"""Token ids as people keep them in files: JSON, loose numbers, or raw little-endian u32."""

from __future__ import annotations

import array
import re
import sys
from typing import Final

import msgspec

from api.cli.bounded_file import read_bounded
from api.cli.client import UNREADABLE, CommandFailed

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
U32_MAX: Final = 2**32 - 1

_DIGITS_MAX: Final = 10  # of u32; what is longer is out of range, whatever it is
_WORD: Final = re.compile(rb"[^\s,;\[\]]+")
_DIGITS: Final = re.compile(rb"-?[0-9]+")


def read_tokens(path: str, *, binary: bool) -> list[int]:
    """The ids in `path`, `-` for standard input. Raises `CommandFailed` with the rule that is broken."""
    raw = read_bounded(path, "--tokens", FILE_BYTES_MAX)
    return parse_binary(raw) if binary else parse_text(raw)


def parse_binary(raw: bytes) -> list[int]:
    """Raw little-endian u32. Raises `CommandFailed`."""
    if len(raw) % 4:
        raise CommandFailed(f"--tokens --binary: whole 4-byte numbers wanted, got {len(raw)} bytes", 2)
    ids = array.array("I", raw)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def parse_text(raw: bytes) -> list[int]:
    """A JSON list, or whole numbers with blanks, commas, semicolons or line ends between them. Raises `CommandFailed`.

    What is wrong is told by its place: it may be a prompt.
    """
    try:
        ids = msgspec.json.decode(raw, type=list[int])
    except UNREADABLE:
        ids = [_number(word[0], word.start(), raw) for word in _WORD.finditer(raw)]
    if not ids:
        raise CommandFailed("--tokens: no token id found", 2)
    for index, token_id in enumerate(ids):
        if not 0 <= token_id <= U32_MAX:
            raise CommandFailed(f"--tokens: token ids are 0..{U32_MAX}, the one at index {index} is not", 2)
    return ids


def _number(word: bytes, at: int, raw: bytes) -> int:
    if _DIGITS.fullmatch(word):
        return int(word) if len(word) <= _DIGITS_MAX else U32_MAX + 1
    line = raw.count(b"\n", 0, at) + 1
    column = at - raw.rfind(b"\n", 0, at)
    hint = " (the file is no text: if it is raw little-endian u32, add --binary)" if b"\0" in raw else ""
    raise CommandFailed(f"--tokens: line {line}, column {column}: a whole number wanted{hint}", 2)
