"""[I/O] Loading a partition: what stands in the store, and from where on its journal tells the rest.

Order makes it whole: the position in the journal is noted first, then states and maps are read, and whoever follows the
journal goes on from that position. What changed meanwhile is read twice at worst, and entries are absolute. Presence
that is read is to be OR-ed and never summed: a scan may return a field twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from indexer.errors import first_of
from indexer.store.entries import START, Position
from indexer.store.failures import WRONG_TYPE, DamagedValue, StoreFailure
from indexer.store.layout import source_id
from indexer.store.loading import SourceState, parse_state, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from indexer.model import SourceId
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

Outcome = Literal["whole", "unfinished", "restless", "damaged"]
"""`unfinished`: it has no whole copy; its owner will make one and say so in the journal. `restless`: each time it was
read the copy changed or something was missing; to be tried again later, or to be asserted anew by its owner.
`damaged`: something of it is not in this layout's form; of others that tells nothing."""


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`count` fields a step (a thousand decode in about a millisecond), steps under way at once, tries of a source."""

    count: int = 1_000
    in_flight: int = 4
    tries: int = 3


class Shelf(Protocol):
    """Where a loader puts what it reads. All calls come on the loop, between two awaits."""

    def begin(self, source: SourceId, descriptor: bytes, state: SourceState) -> None:
        """A source is about to be read, or read anew: what was given of it before is void."""
        ...

    def take(self, source: SourceId, fields: Mapping[bytes, bytes]) -> None:
        """Fields of its map, as in segments.py; some perhaps again, and some that changed meanwhile."""
        ...


class Survey(msgspec.Struct, frozen=True):
    """A partition before its maps are read: where its journal and control stream ended before the registry was read."""

    position: Position
    control: bytes
    registry: dict[bytes, bytes]
    """Source as `layout.source_name` → registration."""


class Read(msgspec.Struct, frozen=True):
    """What came of reading a source, and its state before; None where the store has none."""

    outcome: Outcome
    state: SourceState | None


class Loaded(msgspec.Struct, frozen=True):
    """Follow from `position`. Only sources that are `whole` may answer."""

    position: Position
    outcomes: dict[SourceId, Outcome]


async def survey(client: Client, keys: PartitionKeys) -> Survey:
    """What is to be read of a partition. Raises StoreFailure; DamagedValue where the journal's head is none."""
    last = await client.last_entries(keys.control, 1)
    head = await client.string(keys.head)
    position = START if head is None else Position.parse(head)
    control = last[0][0] if last else str(START).encode()
    return Survey(position, control, await client.fields(keys.sources))


async def load(
    client: Client, keys: PartitionKeys, shelf: Shelf, options: LoadOptions, reader: SourceReader | None = None
) -> Loaded:
    """Read a partition. Who loads several at once shares a `reader`, made with the same options.

    What is registered under no source's name is left out. Raises StoreFailure; DamagedValue as `survey`.
    """
    found = await survey(client, keys)
    reader = reader or SourceReader(client, options)
    sources = dict(_named(found.registry))
    try:
        async with asyncio.TaskGroup() as tasks:
            reads = {
                source: tasks.create_task(_read(reader, keys, source, descriptor, shelf), name="load source")
                for source, descriptor in sources.items()
            }
    except BaseExceptionGroup as failures:
        raise first_of(failures) from None
    return Loaded(found.position, {source: task.result() for source, task in reads.items()})


def _named(registry: Mapping[bytes, bytes]) -> Iterator[tuple[SourceId, bytes]]:
    for name, descriptor in registry.items():
        with contextlib.suppress(DamagedValue):
            yield source_id(name), descriptor


async def _read(
    reader: SourceReader, keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf
) -> Outcome:
    try:
        return (await reader.read(keys, source, descriptor, shelf)).outcome
    except DamagedValue:
        return "damaged"
    except StoreFailure as failure:
        if failure.detail != WRONG_TYPE:
            raise
        return "damaged"


class SourceReader:
    """Reads maps of sources, `options.in_flight` steps under way at once over all who share the reader."""

    def __init__(self, client: Client, options: LoadOptions) -> None:
        self._client = client
        self._options = options
        self._turns = asyncio.Semaphore(options.in_flight)
        self._at_once = asyncio.Semaphore(options.in_flight)
        self._taking = asyncio.Lock()

    async def read(self, keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf) -> Read:
        """Read one source. Raises StoreFailure, DamagedValue, and what the shelf raises."""
        async with self._at_once:  # a task for each segment of these, not of all sources
            return await self._read(keys, source, descriptor, shelf)

    async def state(self, keys: PartitionKeys, source: SourceId) -> SourceState | None:
        """How a source stands in the store. Raises StoreFailure, DamagedValue."""
        async with self._turns:
            return parse_state(await self._client.fields(keys.source(source)))

    async def _read(self, keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf) -> Read:
        before = None
        for _ in range(self._options.tries):
            before = await self.state(keys, source)
            if before is None or not before.complete:
                return Read("unfinished", before)
            shelf.begin(source, descriptor, before)
            read = await self._map(keys, source, before, shelf)
            after = await self.state(keys, source)
            match verdict(before, after, read):
                case "whole":
                    return Read("whole", before)
                case "unfinished":
                    return Read("unfinished", after)
                case "again":
                    pass
        return Read("restless", before)

    async def _map(self, keys: PartitionKeys, source: SourceId, state: SourceState, shelf: Shelf) -> int:
        """Read all segments; how many different fields there were."""
        segments = keys.copy(source, state.generation, state.copy, state.segments)
        try:
            async with asyncio.TaskGroup() as tasks:
                reads = [tasks.create_task(self._segment(source, key, shelf), name="load segment") for key in segments]
        except BaseExceptionGroup as failures:
            raise first_of(failures) from None
        return sum(read.result() for read in reads)

    async def _segment(self, source: SourceId, key: bytes, shelf: Shelf) -> int:
        seen: set[bytes] = set()
        cursor = 0
        async with self._turns:
            while True:
                cursor, fields = await self._client.scan(key, cursor, self._options.count)
                seen.update(fields)
                async with self._taking:  # replies may come together: one step a turn of the loop
                    shelf.take(source, fields)
                    await asyncio.sleep(0)
                if not cursor:
                    return len(seen)
