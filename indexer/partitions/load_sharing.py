"""[I/O] How busy engines are, told by the replica that reads their metrics to all that follow it.

    owner       once an interval, one write a partition: the loads that are young, and how old each is
    follower    looks now and then, with all partitions that have sources in one message to each server. Of a value that
                is another than at the look before it is known that it was written since: it counts as old as that look,
                so that no two clocks are compared. One that was there before the first look may be of any age, and is
                not used

Best effort: while the store is away loads age, and then receipts are all that is known.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from indexer.slices import Slices
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.layout import source_name
from indexer.store.loads import FIELD, PackedLoad, put_loads, read_loads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.loads.board import LoadBoard
    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys

CALLS_AT_ONCE: Final = 8
TTL_S: Final = 60.0
LOOKS: Final = 4
"""In an interval."""
LOOK_MIN_S, LOOK_MAX_S = 0.05, 0.5
ROWS_MAX: Final = 4_096
"""Sources of one partition that are told."""
ROWS_LIMIT: Final = "loads.told"


class LoadSharing:
    """One a process. `owned`: sources of a partition that is owned here, else None.

    `is_followed`: one that is read, and has sources: a look costs the store a call for each, and many look.
    """

    def __init__(
        self,
        parts: Parts,
        keys: Mapping[int, PartitionKeys],
        *,
        owned: Callable[[int], Sequence[SourceId] | None],
        is_followed: Callable[[int], bool],
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._is_followed = is_followed
        self._board: LoadBoard | None = None
        self._interval_s = 0.0
        self._reached: Callable[[str], None] = _ignore
        self._seen: dict[int, tuple[bytes | None, float]] = {}
        """By partition: what was there at the last look, and when that began."""

    def share(self, board: LoadBoard, interval_s: float | None, reached: Callable[[str], None]) -> None:
        """What is known here, and is to be; None: nothing is told, nor heard. Before `run`."""
        if interval_s is not None:
            self._board, self._interval_s, self._reached = board, interval_s, reached

    async def run(self) -> None:
        """Until cancelled."""
        board = self._board
        if board is None:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._go_on_telling(board), name="store: tell loads")
            tasks.create_task(self._go_on_looking(board), name="store: look at loads")

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _go_on_telling(self, board: LoadBoard) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            numbers = list(self._keys)
            for first in range(0, len(numbers), CALLS_AT_ONCE):
                async with asyncio.TaskGroup() as tasks:
                    for number in numbers[first : first + CALLS_AT_ONCE]:
                        loads = self._young(board, number)
                        if loads:
                            tasks.create_task(self._tell(number, loads), name=f"store: loads {number}")

    def _young(self, board: LoadBoard, number: int) -> list[PackedLoad]:
        now, sources = self._parts.clock.now(), self._owned(number) or ()
        if len(sources) > ROWS_MAX:
            self._reached(ROWS_LIMIT)
        return [
            PackedLoad(source_name(source), *reading.load, max(0, round((now - reading.at) * 1e3)))
            for source, reading in board.young(sources[:ROWS_MAX], now)
        ]

    async def _tell(self, number: int, loads: Sequence[PackedLoad]) -> None:
        ttl_ms = round(max(TTL_S, 3 * self._interval_s) * 1e3)
        with contextlib.suppress(StoreFailure):  # the next round tells
            await put_loads(self._parts.client, self._keys[number], self._parts.nonces.next(), loads, ttl_ms)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _go_on_looking(self, board: LoadBoard) -> None:
        while True:
            await asyncio.sleep(min(max(self._interval_s / LOOKS, LOOK_MIN_S), LOOK_MAX_S))
            with contextlib.suppress(StoreFailure):
                await self._look(board)

    async def _look(self, board: LoadBoard) -> None:
        numbers = [number for number in self._keys if self._owned(number) is None and self._is_followed(number)]
        self._seen = {number: self._seen[number] for number in numbers if number in self._seen}
        began, slices = self._parts.clock.now(), Slices(self._parts.clock)
        values = await self._parts.client.field_of_each([self._keys[number].loads for number in numbers], FIELD)
        for number, value in zip(numbers, values, strict=True):
            before = self._seen.get(number)
            self._seen[number] = value, began
            if before is not None and value is not None and value != before[0]:
                with contextlib.suppress(DamagedValue):  # of somebody else; it says nothing
                    self._hear(board, value, before[1])
            await slices.turn()

    def _hear(self, board: LoadBoard, value: bytes, written_after: float) -> None:
        known = self._parts.registry.sources
        for told in read_loads(value):
            if told.source in known:
                board.read(told.source, told.load, written_after - told.age_s)


def _ignore(_: str) -> None:
    """Nobody counts."""
