"""Data-parallel ranks as people write them. Pure."""

from __future__ import annotations

import re
from typing import Final

RANK_MAX: Final = 65_535
RANKS_MAX: Final = 1_024
"""Of one engine."""

_RANKS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_COUNT: Final = re.compile(r"[0-9]{1,4}")


def ranks_of(text: str) -> tuple[int, ...] | None:
    """As flags say them: `3` is the one of that number, `0-7` these. None where it says none."""
    match = _RANKS.fullmatch(text)
    if match is None:
        return None
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if not (first <= last <= RANK_MAX and last - first < RANKS_MAX):
        return None
    return tuple(range(first, last + 1))


def counted_ranks_of(text: str) -> tuple[int, ...] | None:
    """As pods say them: `8` is how many there are, from 0 on, and `4-7` these. None where it says none."""
    if "-" in text:
        return ranks_of(text)
    count = int(text) if _COUNT.fullmatch(text) else 0
    return tuple(range(count)) if 1 <= count <= RANKS_MAX else None
