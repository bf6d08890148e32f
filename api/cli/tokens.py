"""Token ids as people keep them in files: JSON, loose numbers, or raw little-endian u32."""

from __future__ import annotations

import array
import re
import sys
from typing import Final

import msgspec

from api.cli.client import CommandFailed

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
U32_MAX: Final = 2**32 - 1

_DIGITS_MAX: Final = 10  # of u32; what is longer is out of range, whatever it is
_FRACTION: Final = re.compile(rb"\d\.\d|\d[eE][+-]?\d")
_NUMBER: Final = re.compile(rb"(?<!\d)-?\d+")


def read_tokens(path: str, *, binary: bool) -> list[int]:
    """The ids in `path`, `-` for standard input. Raises `CommandFailed` with the rule that is broken."""
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:  # noqa: PTH123  as short as Path and bounded
                raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandFailed(f"--tokens: {path}: {(error.strerror or str(error)).lower()}", 2) from error
    if len(raw) > FILE_BYTES_MAX:
        raise CommandFailed(f"--tokens: at most {FILE_BYTES_MAX} bytes", 2)
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
    """A JSON list, or whole numbers with anything between them. Raises `CommandFailed`."""
    try:
        ids = msgspec.json.decode(raw, type=list[int])
    except msgspec.MsgspecError:
        if _FRACTION.search(raw):
            raise CommandFailed("--tokens: whole numbers wanted, got a fraction", 2) from None
        ids = [int(number) if len(number) <= _DIGITS_MAX else -1 for number in _NUMBER.findall(raw)]
    if not ids:
        raise CommandFailed("--tokens: no number found", 2)
    for index, token_id in enumerate(ids):
        if not 0 <= token_id <= U32_MAX:
            raise CommandFailed(f"--tokens: token {index} is not in 0..{U32_MAX}", 2)
    return ids
