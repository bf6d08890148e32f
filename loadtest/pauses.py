"""What moments at which something was seen say of takeovers and of moves. Pure; moments in ns on one clock."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Takeover:
    """From the kill to an answer elsewhere that has what was published after it: for one source, seconds."""

    first_s: float
    last_s: float


def takeover(killed_at: int, seen: Sequence[Mapping[str, int]]) -> Takeover:
    """Of the sources that the killed one owned. `seen`: by source, one mapping a surviving replica.

    The first answer counts: who asks another replica is served by then. Raises ValueError where none was owned.
    """
    sources = {source for each in seen for source in each}
    firsts = [min(each[source] for each in seen if source in each) - killed_at for source in sources]
    if not firsts:
        raise ValueError("it owned no source")
    return Takeover(min(firsts) / 1e9, max(firsts) / 1e9)


def longest_pause_s(moments: Sequence[int], began_at: int, ended_at: int) -> float:
    """The longest time without one, from `began_at` to `ended_at`. `moments` in their order, all in between."""
    edges = [began_at, *moments, ended_at]
    return max(later - earlier for earlier, later in pairwise(edges)) / 1e9


def per_million(seconds: float, blocks: int) -> float:
    """CPU seconds a million blocks."""
    return seconds * 1e6 / blocks
