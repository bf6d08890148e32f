"""Sums over windows of the last minute, ten minutes, hour and day, without keeping what was summed. Pure.

A window is a ring of slots that are added up: accurate to a slot, a sixth of a window or less. A row of numbers a slot,
some 25 KB a source with all four windows.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable


class Window(NamedTuple):
    """`slots` of `slot_s` seconds, and the one that is being filled."""

    name: str
    slot_s: int
    slots: int


WINDOWS: Final = (Window("1m", 10, 6), Window("10m", 60, 10), Window("1h", 300, 12), Window("24h", 3_600, 24))


class Sums:
    """`width` numbers over each window."""

    __slots__ = ("_rings", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._rings = {window.name: _Ring(window, width) for window in WINDOWS}

    def add(self, second: int, numbers: Iterable[tuple[int, int]]) -> None:
        """Add to places of the row; `second` of a clock that only goes forward."""
        told = [(place, number) for place, number in numbers if number]
        for ring in self._rings.values():
            ring.add(second, told)

    def over(self, name: str, second: int) -> list[int]:
        """The sums over that window."""
        return self._rings[name].total(second)


class _Ring:
    """The slot that is being filled, and `window.slots` - 1 before it."""

    __slots__ = ("_cells", "_last", "_slot_s", "_slots", "_width")

    def __init__(self, window: Window, width: int) -> None:
        self._slot_s, self._slots, self._width = window.slot_s, window.slots, width
        self._cells = array("q", bytes(8 * width * window.slots))
        self._last: int | None = None

    def add(self, second: int, numbers: list[tuple[int, int]]) -> None:
        begin = self._turn(second) * self._width
        cells = self._cells
        for place, number in numbers:
            cells[begin + place] += number

    def total(self, second: int) -> list[int]:
        self._turn(second)
        rows: list[int] = np.frombuffer(self._cells, np.int64).reshape(self._slots, self._width).sum(axis=0).tolist()
        return rows

    def _turn(self, second: int) -> int:
        """The place of that second's slot; slots that were passed over are empty."""
        slot = second // self._slot_s
        if self._last is not None and slot > self._last:
            nothing = array("q", bytes(8 * self._width))
            for passed in range(max(self._last, slot - self._slots) + 1, slot + 1):
                begin = passed % self._slots * self._width
                self._cells[begin : begin + self._width] = nothing
        self._last = slot if self._last is None else max(self._last, slot)
        return slot % self._slots
