"""Data-parallel ranks as people write them: `3`, one of that number, or `0-7`. Pure."""

from __future__ import annotations

import re
from typing import Final

RANK_MAX: Final = 65_535
RANKS_MAX: Final = 1_024
"""Of one engine."""

_RANKS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def ranks_of(text: str) -> tuple[int, ...] | None:
    """None where it says none."""
    match = _RANKS.fullmatch(text)
    if match is None:
        return None
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if not (first <= last <= RANK_MAX and last - first < RANKS_MAX):
        return None
    return tuple(range(first, last + 1))
