"""Block hashes told in JSON as this service writes them, 16 digits each: read without a string for each. Pure.

    body      {"model":"m","block_hashes":["9f3c…","0b1d…", …],"block_size":16}
    rest      the same with one marker in the place of all hashes, for the strict decoder

The marker is drawn once a process, so nobody can have put it there: where the decoder finds it alone in `block_hashes`,
what was taken out were the question's hashes. Anywhere else, and where any hash is written otherwise, the whole body is
the strict decoder's.
"""

from __future__ import annotations

import binascii
import re
import secrets
from array import array
from typing import Final

import numpy as np

MARKER: Final = secrets.token_hex(16)
HASHES_MIN: Final = 8
"""Fewer are decoded as quickly."""
_KEY: Final = re.compile(rb'"block_hashes"\s{0,8}:\s{0,8}\[')
_DIGITS: Final = 16
_QUOTED: Final = _DIGITS + 2
_QUOTE: Final = ord('"')
_ROWS: Final = {
    size: np.dtype([("open", "u1"), ("digits", f"V{_DIGITS}"), ("close", "u1"), ("between", f"<u{size}")])
    for size in (1, 2)
}
"""By the length of what stands between two hashes: one of them as an array sees it."""
_WIDTHS: Final = {b'"': (_QUOTED + 1, b","), b" ": (_QUOTED + 2, b", ")}
"""By the byte behind the first comma: from one hash to the next, and what stands between them."""


def hashes_taken_out(body: bytes) -> tuple[bytes, array[int]] | None:
    """The body with the marker in the place of its hashes, and these; None where they are not so written."""
    key = _KEY.search(body)
    if key is None:
        return None
    begin = key.end()
    end = body.find(b"]", begin)
    width, between = _WIDTHS.get(body[begin + _QUOTED + 1 : begin + _QUOTED + 2], (0, b""))
    count, odd = divmod(end - begin + len(between), width or 1)
    if not width or odd or count < HASHES_MIN:
        return None
    rows = np.frombuffer(body[begin:end] + between, _ROWS[len(between)])
    expected = {"open": _QUOTE, "close": _QUOTE, "between": int.from_bytes(between, "little")}
    if any((rows[name] != value).any() for name, value in expected.items()):
        return None
    try:
        image = binascii.unhexlify(rows["digits"].tobytes())
    except binascii.Error:
        return None
    return b'%b"%b"%b' % (body[:begin], MARKER.encode(), body[end:]), hashes_of(image, ">u8")


def hashes_of(image: bytes, form: str) -> array[int]:
    """Hashes as numbers, from their bytes in that form."""
    return array("Q", np.frombuffer(image, form).astype(np.uint64).tobytes())
