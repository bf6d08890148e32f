"""What a pod holds: the blocks used last, up to a number. Pure.

As engines do it: a prompt's blocks are used together, and of these the deepest go first, so that whatever is held of a
prompt is held from its beginning. Of a prompt longer than the cache its beginning stays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.simulate.segments import Path


class Cache:
    """LRU by block. `blocks`: how many fit; None: all."""

    __slots__ = ("_blocks", "_held", "used")

    def __init__(self, blocks: int | None) -> None:
        self._blocks = blocks
        self._held: OrderedDict[int, int] = OrderedDict()
        """By run, of which the first so many blocks are held; used longest ago first, and before what is above it."""
        self.used = 0

    def matched(self, path: Path) -> int:
        """How many blocks of that prompt are held, from the first one on."""
        matched = 0
        held = self._held
        for run, length in path:
            count = held.get(run, 0)
            if count < length:
                return matched + count
            matched += length
        return matched

    def use(self, path: Path) -> None:
        """It was asked for: all of it is held now, and what was used longest ago has gone for it."""
        held = self._held
        for run, length in reversed(path):
            self.used += length - held.get(run, 0)
            held[run] = length
            held.move_to_end(run)
        if self._blocks is not None and self.used > self._blocks:
            self._shrink(self.used - self._blocks)

    def _shrink(self, blocks: int) -> None:
        held = self._held
        self.used -= blocks
        while blocks:
            run, count = held.popitem(last=False)
            if count > blocks:
                held[run] = count - blocks
                held.move_to_end(run, last=False)
                return
            blocks -= count
