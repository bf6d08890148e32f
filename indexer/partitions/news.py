"""What happens to partitions, for the operator's log: what happens to many at once is one line. Logs only."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from indexer.log_lines import about

if TYPE_CHECKING:
    from indexer.log_lines import Event

log = logging.getLogger("kvindexer.store")

GATHER_S: Final = 0.5
NAMED_MAX: Final = 8


class News:
    """One a process."""

    def __init__(self) -> None:
        self._told: dict[tuple[Event, int, str], list[int]] = {}
        self._stirred = asyncio.Event()

    def tell(self, event: Event, partition: int, what: str, level: int = logging.WARNING) -> None:
        """Something that happened to a partition; what was planned is no warning."""
        self._told.setdefault((event, level, what), []).append(partition)
        self._stirred.set()

    async def run(self) -> None:
        """Write lines, until cancelled."""
        while True:
            await self._stirred.wait()
            await asyncio.sleep(GATHER_S)
            self._stirred.clear()
            told, self._told = self._told, {}
            for (event, level, what), partitions in told.items():
                numbers = sorted(set(partitions))
                extra = about(event, partition=numbers[0]) if len(numbers) == 1 else about(event)
                log.log(level, "%s: %s", _named(numbers), what, extra=extra)


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
