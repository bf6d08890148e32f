"""How much of a partition's journal is kept: a budget of bytes, as an id below which it may forget. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from indexer.store.entries import START, Position

ENTRY_BYTES: Final = 64
"""What an entry takes in a stream beside its content, at most (measured: 20 to 50)."""


class JournalBudget:
    """Told of each entry that is written; `keep_from` is the oldest to keep.

    `inherited` bytes are what earlier epochs left, of which nothing more is known: they go as a whole, once they and
    this epoch's entries exceed the budget. The newest entry always stays.
    """

    def __init__(self, budget: int, inherited: int) -> None:
        self._budget = budget
        self._inherited = inherited
        self._entries: deque[tuple[Position, int]] = deque()
        self._bytes = 0
        self.keep_from: Position = START

    def wrote(self, position: Position, entry_bytes: int) -> None:
        """An entry was written behind all others."""
        self._entries.append((position, entry_bytes + ENTRY_BYTES))
        self._bytes += entry_bytes + ENTRY_BYTES
        if self._inherited + self._bytes <= self._budget:
            return
        self._inherited = 0
        while self._bytes > self._budget and len(self._entries) > 1:
            self._bytes -= self._entries.popleft()[1]
        self.keep_from = self._entries[0][0]
