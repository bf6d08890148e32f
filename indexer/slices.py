"""Long work on the event loop, cut into pieces that no lookup notices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Generator

    from indexer.ports import Clock

T = TypeVar("T")

SLICE_S: Final = 0.001


class Slices:
    """`turn` is awaited between two steps; each must be short by itself. Facts may change from one to the next."""

    __slots__ = ("_began", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """What the steps return at their end."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("T", end.value)
            await self.turn()

    async def turn(self) -> None:
        """Let others run if this piece has taken long enough."""
        if self._clock.now() - self._began >= SLICE_S:
            await asyncio.sleep(0)
            self._began = self._clock.now()
