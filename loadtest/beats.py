"""How long an event loop keeps its callers waiting: the length of each of its iterations, by wall and by CPU time.

A callback that puts itself in line again at once runs once an iteration, so the time between two of its runs is how
long something that became ready just after the first had to wait. The CPU time of the same stretch leaves out what
the machine's other processes took; only the loop's own thread counts. Runs on the loop it measures; keeps it busy.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass
from typing import Any, Final

from loadtest.stats import wait_exceeded

NOTED_NS: Final = 50_000
"""Shorter iterations are not kept: there are many, and they say nothing about stalls."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a stretch of time looked like from the loop.

    `p999`: the wait that one arrival in a thousand exceeds. `worst_collection_ms`: CPU time of the longest run of the
    garbage collector, which is part of some iteration.
    """

    seconds: float
    worst_ms: float
    worst_cpu_ms: float
    worst_collection_ms: float
    p999_ms: float
    over_5_ms: int
    over_20_ms: int


class Beats:
    """Between `start` and `stop` the loop is watched."""

    def __init__(self) -> None:
        self._wall: list[int] = []
        self._cpu: list[int] = []
        self._running = False
        self._started = self._at = self._cpu_at = 0
        self._collection_at = self._collection_worst = 0

    def start(self) -> None:
        """Begin; called on the loop."""
        self._wall, self._cpu, self._running = [], [], True
        self._collection_worst = 0
        gc.callbacks.append(self._collecting)
        self._at = self._started = time.perf_counter_ns()
        self._cpu_at = time.thread_time_ns()
        asyncio.get_running_loop().call_soon(self._beat)

    def stop(self) -> Beat:
        """End, and say what was seen."""
        self._beat()
        self._running = False
        gc.callbacks.remove(self._collecting)
        seconds = (time.perf_counter_ns() - self._started) / 1e9
        wall_ms = [length / 1e6 for length in self._wall]
        return Beat(
            seconds=round(seconds, 2),
            worst_ms=round(max(wall_ms, default=0.0), 3),
            worst_cpu_ms=round(max(self._cpu, default=0) / 1e6, 3),
            worst_collection_ms=round(self._collection_worst / 1e6, 3),
            p999_ms=round(wait_exceeded(wall_ms, seconds * 1e3, 0.001), 3),
            over_5_ms=sum(length > 5 for length in wall_ms),
            over_20_ms=sum(length > 20 for length in wall_ms),
        )

    def _beat(self) -> None:
        if not self._running:
            return
        now, cpu = time.perf_counter_ns(), time.thread_time_ns()
        if now - self._at > NOTED_NS:
            self._wall.append(now - self._at)
            self._cpu.append(cpu - self._cpu_at)
        self._at, self._cpu_at = now, cpu
        asyncio.get_running_loop().call_soon(self._beat)

    def _collecting(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collection_at = time.thread_time_ns()
        else:
            self._collection_worst = max(self._collection_worst, time.thread_time_ns() - self._collection_at)
