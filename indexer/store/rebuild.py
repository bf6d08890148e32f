"""[I/O] Loading a partition, then following its journal.

Order makes it whole: the position in the journal is noted first, then states and maps are read, then the journal is
followed from that position. What changed meanwhile is read twice at worst, and entries are absolute. Presence that is
read is to be OR-ed and never summed: a scan may return a field twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from indexer.store.entries import START, Position
from indexer.store.following import Reload
from indexer.store.layout import source_id
from indexer.store.loading import SourceState, parse_state, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from indexer.model import SourceId
    from indexer.store.client import Client, StreamEntry
    from indexer.store.following import Follower, Step
    from indexer.store.layout import PartitionKeys

Outcome = Literal["whole", "unfinished", "restless"]
"""`unfinished`: it has no whole copy; its owner will make one and say so in the journal. `restless`: each time it was
read the copy changed or something was missing; to be tried again later, or to be asserted anew by its owner."""


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


class Loaded(msgspec.Struct, frozen=True):
    """Follow from `position`. Only sources that are `whole` may answer."""

    position: Position
    outcomes: dict[SourceId, Outcome]


async def load(client: Client, keys: PartitionKeys, shelf: Shelf, options: LoadOptions) -> Loaded:
    """Read a partition. Raises StoreFailure; DamagedValue where a state is not in this layout's form."""
    head = await client.string(keys.head)
    position = START if head is None else Position.parse(head)
    loader = _Loader(client, keys, shelf, options)
    registry = await client.fields(keys.sources)
    sources = {source_id(name): descriptor for name, descriptor in registry.items()}
    try:
        async with asyncio.TaskGroup() as tasks:
            loads = {
                source: tasks.create_task(loader.source(source, descriptor), name="load source")
                for source, descriptor in sources.items()
            }
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return Loaded(position, {source: task.result() for source, task in loads.items()})


class _Loader:
    def __init__(self, client: Client, keys: PartitionKeys, shelf: Shelf, options: LoadOptions) -> None:
        self._client = client
        self._keys = keys
        self._shelf = shelf
        self._options = options
        self._turns = asyncio.Semaphore(options.in_flight)
        self._at_once = asyncio.Semaphore(options.in_flight)

    async def source(self, source: SourceId, descriptor: bytes) -> Outcome:
        async with self._at_once:  # a task for each segment of these, not of all sources
            return await self._source(source, descriptor)

    async def _source(self, source: SourceId, descriptor: bytes) -> Outcome:
        for _ in range(self._options.tries):
            before = await self._state(source)
            if before is None or not before.complete:
                return "unfinished"
            self._shelf.begin(source, descriptor, before)
            read = await self._map(source, before)
            match verdict(before, await self._state(source), read):
                case "whole":
                    return "whole"
                case "unfinished":
                    return "unfinished"
                case "again":
                    pass
        return "restless"

    async def _state(self, source: SourceId) -> SourceState | None:
        async with self._turns:
            return parse_state(await self._client.fields(self._keys.source(source)))

    async def _map(self, source: SourceId, state: SourceState) -> int:
        """Read all segments; how many different fields there were."""
        segments = self._keys.copy(source, state.generation, state.copy, state.segments)
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(self._segment(source, key), name="load segment") for key in segments]
        return sum(read.result() for read in reads)

    async def _segment(self, source: SourceId, key: bytes) -> int:
        seen: set[bytes] = set()
        cursor = 0
        async with self._turns:
            while True:
                cursor, fields = await self._client.scan(key, cursor, self._options.count)
                seen.update(fields)
                self._shelf.take(source, fields)
                if not cursor:
                    return len(seen)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that ended a group of tasks, out of its wrappings: the others follow from it or are like it."""
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def read_on(
    client: Client, followers: Mapping[bytes, Follower], *, count: int, block_s: float
) -> dict[bytes, list[Step]]:
    """What followers of journals, by key, make of the next entries of each; of those with nothing new, nothing.

    On one server this waits up to `block_s` for the first entry. A cluster has no common wait: it is asked once, and
    the caller sleeps between. Raises StoreFailure.
    """
    after = {key: str(follower.position).encode() for key, follower in followers.items()}
    entries: Mapping[bytes, Sequence[StreamEntry]]
    if client.is_cluster:
        entries = await _ask_each(client, after, count)
    else:
        entries = await client.await_entries(after, count, block_s)
    return {
        key: _steps(followers[key].observe(entry_id, fields) for entry_id, fields in found)
        for key, found in entries.items()
        if found
    }


async def _ask_each(client: Client, after: Mapping[bytes, bytes], count: int) -> Mapping[bytes, Sequence[StreamEntry]]:
    try:
        async with asyncio.TaskGroup() as tasks:
            asked = {
                key: tasks.create_task(client.entries_after(key, position, count), name="read journal")
                for key, position in after.items()
            }
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return {key: task.result() for key, task in asked.items()}


def _steps(steps: Iterable[Step]) -> list[Step]:
    """Up to the first that asks for loading anew."""
    taken: list[Step] = []
    for step in steps:
        taken.append(step)
        if isinstance(step, Reload):
            break
    return taken
