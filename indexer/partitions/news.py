"""What happens to partitions, for the operator's log: what happens to many at once is one line. Logs only."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

log = logging.getLogger("kvindexer.store")

GATHER_S: Final = 0.5
NAMED_MAX: Final = 8


class News:
    """One a process."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, str], list[int]] = {}
        self._stirred = asyncio.Event()

    def tell(self, partition: int, what: str, level: int = logging.WARNING) -> None:
        """Something that happened to a partition; what was planned is no warning."""
        self._told.setdefault((level, what), []).append(partition)
        self._stirred.set()

    async def run(self) -> None:
        """Write lines, until cancelled."""
        while True:
            await self._stirred.wait()
            await asyncio.sleep(GATHER_S)
            self._stirred.clear()
            told, self._told = self._told, {}
            for (level, what), partitions in told.items():
                log.log(level, "%s: %s", _named(sorted(set(partitions))), what)


def in_use(key: bytes) -> str:
    """What is said of a key that holds something of somebody else."""
    name = key.decode(errors="replace")
    return f"the key {name} is in use for something else: remove it, or take another namespace"


def _named(partitions: list[int]) -> str:
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    shown = ", ".join(map(str, partitions[:NAMED_MAX]))
    more = f" and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
    return f"partitions {shown}{more}"
