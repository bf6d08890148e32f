"""[I/O] Histories of sources in the store: written behind what happens, by whoever decided it, and read by any replica.

Nothing waits for them: an entry that happened while the store is away keeps its time and is written when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from indexer.history import of_process
from indexer.log_lines import about
from indexer.partitions.news import in_use
from indexer.slices import Slices
from indexer.store.failures import StoreFailure
from indexer.store.history import append, newest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.history import Mark, Noted, Told
    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys

log = logging.getLogger("kvindexer.store")

OUTBOX_MAX: Final = 4_096
"""Entries that wait for the store, over all partitions; beyond, the oldest of the partition with most of them go."""
BATCH: Final = 32
"""Entries in one call: under a millisecond of the server's time."""
CALLS_AT_ONCE: Final = 8
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 5.0


class Histories:
    """One a process, also where it only reads. `keys` of all partitions."""

    def __init__(self, parts: Parts, keys: Mapping[int, PartitionKeys]) -> None:
        self._parts = parts
        self._keys = keys
        self._waiting: dict[int, deque[tuple[SourceId, Noted]]] = {}
        """By partition, so that one whose server does not answer keeps no other from being written."""
        self._count = 0
        self._posted = asyncio.Event()
        self._wrong: set[SourceId] = set()
        self.dropped = 0
        """Entries that found no room while the store was away."""
        parts.history.post = self._post

    @property
    def waiting(self) -> int:
        """Entries that are not in the store yet."""
        return self._count

    # -- writing ------------------------------------------------------------------------------------------------------

    def _post(self, source: SourceId, noted: Noted) -> None:
        if self._count >= OUTBOX_MAX:
            most = max(self._waiting.values(), key=len)
            most.popleft()
            self._count -= 1
            self.dropped += 1
        self._waiting.setdefault(self._parts.partition_of(source), deque()).append((source, noted))
        self._count += 1
        self._posted.set()

    async def run(self) -> None:
        """Write what is posted; until cancelled."""
        rest = RETRY_S
        while True:
            await self._posted.wait()
            self._posted.clear()
            if await self._write():
                rest = RETRY_S
                continue
            await self._parts.rest(rest)
            rest = min(2 * rest, RETRY_MAX_S)
            self._posted.set()

    async def flush(self, until: float) -> bool:
        """At the stop, when nothing happens any more: write the rest; True where all was. `run` is cancelled by now.

        A store that does not take it is not asked again: nobody waits longer for a stop because of this.
        """
        while self._parts.history.has_more:
            self._parts.history.turn()
            await asyncio.sleep(0)
        self._parts.history.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._parts.clock.now())):
                while self._count and await self._write():
                    pass
        return not self._count

    async def _write(self) -> bool:
        """One call for each partition of which something waits; False where one was not done."""
        numbers = [number for number, box in self._waiting.items() if box]
        whole = True
        for first in range(0, len(numbers), CALLS_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                calls = [
                    tasks.create_task(self._write_some(number), name=f"store: history {number}")
                    for number in numbers[first : first + CALLS_AT_ONCE]
                ]
            whole = whole and all(call.result() for call in calls)
        return whole

    async def _write_some(self, number: int) -> bool:
        box = self._waiting[number]
        batch = list(islice(box, BATCH))
        parts = self._parts
        try:
            wrong = await append(parts.client, self._keys[number], parts.nonces.process, batch, parts.options.retain_ms)
        except StoreFailure:
            return False
        last = batch[-1][1].number
        while box and box[0][1].number <= last:  # but for those that went meanwhile, to make room
            box.popleft()
            self._count -= 1
        if box:
            self._posted.set()
        for source in set(wrong) - self._wrong:
            self._wrong.add(source)
            log.error(
                "the store: %s",
                in_use(self._keys[number].history(source)),
                extra=about("store_key_taken", source=source),
            )
        return True

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, sources: Sequence[SourceId], before: Mark | None, limit: int) -> tuple[list[Told], bool]:
        """The newest of each source, so many at least where there are; False where something is missing.

        Where the store does not answer: what this process wrote itself.
        """
        told: list[Told] = []
        whole = True
        slices = Slices(self._parts.clock)
        try:
            for source in sources:
                found, is_whole = await self._read_one(source, before, limit)
                told += found
                whole = whole and is_whole
                await slices.turn()
        except StoreFailure:
            whole = False
            told.clear()
            for source in sources:
                told += self._parts.history.kept(source)
                await slices.turn()
        return told, whole

    async def _read_one(self, source: SourceId, before: Mark | None, limit: int) -> tuple[list[Told], bool]:
        """With what of it is not written yet, where it would stand.

        What is written while the store is asked may be in its answer or not, so it is looked at before.
        """
        parts, number = self._parts, self._parts.partition_of(source)
        history, process = parts.history, parts.nonces.process
        waited = [noted for each, noted in self._waiting.get(number, ()) if each == source]
        last = history.number
        page = await newest(parts.client, self._keys[number], source, before, limit, writer=process)
        unwritten = [each for each in waited + history.since(source, last) if each.number not in page.written]
        told = [of_process(source, noted) for noted in unwritten]
        return page.told + told + history.waiting(source), not page.unread
