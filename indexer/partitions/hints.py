"""[I/O] What callers told one replica of routed prompts, told to the others: written every few milliseconds.

Best effort throughout: hints that find no room, or no store, are gone, and counted. A partition's are read from their
oldest on once its sources are known here, so that a replica that starts, or takes a partition over, learns of engines
of which hints are all that is known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from indexer.partitions.streams import POLL_S, entries_of, next_entries
from indexer.receipts.routed import Hint
from indexer.slices import Slices
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.hints import ENTRY_BYTES, PackedHint, append, read_entry
from indexer.store.layout import source_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from collections.abc import Set as AbstractSet

    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.client import StreamEntry
    from indexer.store.hints import HintsRead
    from indexer.store.layout import PartitionKeys

TICK_S: Final = 0.02
"""What is told within it goes in one entry a partition."""
PENDING_BYTES: Final = 4 * 1024**2
"""Of hints that wait to be written, over all partitions, with all they take. Beyond, what comes is dropped."""
CALLS_AT_ONCE: Final = 8
HINT_BYTES: Final = ENTRY_BYTES // 4
"""Of hashes in one: an entry has room for it, however long its source's name."""
READ_MAX: Final = 64
REST_S: Final = 0.5
BEGINNING: Final = b"0-0"


class Hints:
    """One a process. `is_loaded`: whether the sources of a partition are known here, by its number."""

    def __init__(self, parts: Parts, keys: Mapping[int, PartitionKeys], is_loaded: Callable[[int], bool]) -> None:
        self._parts = parts
        self._keys = keys
        self._is_loaded = is_loaded
        self.hear: Callable[[Hint], Generator[None, None, bool]] = _hear_nothing
        """Told each hint of another replica; whether it is of use."""
        self.count: Callable[[str, int], None] = _count_nothing
        """Told what came of hints: `sent`, `dropped`, `taken`, `unknown` (of another generation), `late`, `damaged`."""
        self.routed: Callable[[SourceId], None] = lambda _: None
        """Told of each request that another replica heard of just now, as far as hints tell: where it went."""
        self._waiting: dict[int, deque[PackedHint]] = {}
        self._waiting_bytes = 0
        self._told = asyncio.Event()
        self._after: dict[int, bytes] = {}
        self._caught_up: set[int] = set()
        """Partitions of which all is read that was there before."""
        self._writer = parts.nonces.process.encode()

    # -- telling ------------------------------------------------------------------------------------------------------

    def tell(self, hint: Hint) -> None:
        """To be written soon."""
        name, ttl_ms = source_name(hint.source), max(1, round(hint.ttl_s * 1000))
        packed = [
            PackedHint(name, hint.generation, ttl_ms, hint.hashes[first : first + HINT_BYTES])
            for first in range(0, len(hint.hashes), HINT_BYTES)
        ]
        held_bytes = sum(each.held_bytes for each in packed)
        if self._waiting_bytes + held_bytes > PENDING_BYTES:
            self.count("dropped", 1)
            return
        self._waiting.setdefault(self._parts.partition_of(hint.source), deque()).extend(packed)
        self._waiting_bytes += held_bytes
        self._told.set()

    async def write(self) -> None:
        """Write what is told; until cancelled."""
        while True:
            await self._told.wait()
            self._told.clear()
            await asyncio.sleep(TICK_S)
            numbers = [number for number, box in self._waiting.items() if box]
            for first in range(0, len(numbers), CALLS_AT_ONCE):
                async with asyncio.TaskGroup() as tasks:
                    for number in numbers[first : first + CALLS_AT_ONCE]:
                        tasks.create_task(self._write_some(number), name=f"store: hints {number}")
            if any(self._waiting.values()):
                self._told.set()

    async def _write_some(self, number: int) -> None:
        """One entry. What a store does not take is gone: nobody waits for it."""
        box, taken, room = self._waiting[number], list[PackedHint](), ENTRY_BYTES
        while box and room >= box[0].packed_bytes:
            room -= box[0].packed_bytes
            self._waiting_bytes -= box[0].held_bytes
            taken.append(box.popleft())
        try:
            options = self._parts.options
            await append(self._parts.client, self._keys[number], self._writer.decode(), taken, options.retain_ms)
        except StoreFailure:
            self.count("dropped", len(taken))
        else:
            self.count("sent", len(taken))

    # -- hearing ------------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Hear what others told; until cancelled."""
        while True:
            self._after = {
                number: self._after.get(number, BEGINNING) for number in self._keys if self._is_loaded(number)
            }
            if not self._after:
                await asyncio.sleep(POLL_S)
                continue
            self._caught_up &= self._after.keys()
            fresh = self._after.keys() - self._caught_up
            try:
                await (self._catch_up(fresh) if fresh else self._follow())
            except StoreFailure:
                await self._parts.rest(REST_S)

    async def _catch_up(self, fresh: AbstractSet[int]) -> None:
        """Read what was told before this replica listened. It is as old as it says, and may be our own."""
        for number in fresh:
            key = self._keys[number].hints
            entries = await entries_of(self._parts.client, key, self._after[number], READ_MAX) or ()
            for entry in entries:
                self._after[number] = entry[0]
                await self._take(entry, first=True)
            if len(entries) < READ_MAX:
                self._caught_up.add(number)

    async def _follow(self) -> None:
        after = {self._keys[number].hints: position for number, position in self._after.items()}
        found = await next_entries(self._parts.client, after, READ_MAX)
        for number in self._after:
            for entry in found.get(self._keys[number].hints) or ():
                self._after[number] = entry[0]
                await self._take(entry, first=False)

    async def _take(self, entry: StreamEntry, *, first: bool) -> None:
        """`first`: it was there before this replica listened."""
        try:
            read = read_entry(entry)
            if first or read.writer != self._writer:
                if not first:
                    self._note_requests(read)
                await self._hear_all(read, self._age_s(read) if first else 0.0)
        except DamagedValue:
            self.count("damaged", 1)

    def _note_requests(self, read: HintsRead) -> None:
        """Of a long prompt all pieces but the last are full."""
        for each in read.hints:
            if len(each.hashes) < HINT_BYTES:
                self.routed(each.id)

    def _age_s(self, read: HintsRead) -> float:
        return max(0.0, self._parts.clock.wall_us() / 1e6 - read.at_ms / 1000)

    async def _hear_all(self, read: HintsRead, age_s: float) -> None:
        slices = Slices(self._parts.clock)
        for each in read.hints:
            left_s = each.ttl_ms / 1000 - age_s
            if left_s <= 0:
                self.count("late", 1)
                continue
            is_of_use = await slices.run(self.hear(Hint(each.id, each.generation, left_s, each.hashes)))
            self.count("taken" if is_of_use else "unknown", 1)


def _hear_nothing(_: Hint) -> Generator[None, None, bool]:
    """Nobody listens."""
    yield
    return False


def _count_nothing(_: str, _count: int) -> None:
    """Nobody counts."""
