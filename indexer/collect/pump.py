"""Shares the event loop between all sources that have something to read. I/O by proxy: calls whoever waits.

Readiness callbacks only put a source in line. One callback works through the line in turns, gives the loop back after a
slice of time and goes on in its next round, so lookups wait for one slice, however many sources are busy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from indexer.ports import Clock


class Drainable(Protocol):
    """Something that reads in quanta."""

    def drain(self) -> bool:
        """Do one quantum of work; True when more is waiting."""
        ...


class Pump:
    """The line. `start` belongs to the running loop; before it, and after `stop`, whoever comes just waits in line."""

    def __init__(self, clock: Clock, slice_s: float) -> None:
        self._clock = clock
        self._slice_s = slice_s
        self._line: deque[Drainable] = deque()
        self._waiting: set[Drainable] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    def start(self) -> None:
        """Begin to work in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        """Work no more."""
        self._loop = None
        self._line.clear()
        self._waiting.clear()

    def wake(self, reader: Drainable) -> None:
        """Put a source in line, once."""
        if reader not in self._waiting:
            self._waiting.add(reader)
            self._line.append(reader)
            self._schedule()

    def _schedule(self) -> None:
        if self._loop is not None and self._line and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        try:
            self._work()
        finally:
            self._schedule()  # also when one source raised: the others go on

    def _work(self) -> None:
        end_at = self._clock.now() + self._slice_s
        while self._line:
            reader = self._line.popleft()
            self._waiting.discard(reader)
            if reader.drain():
                self.wake(reader)
            if self._clock.now() >= end_at:
                return
