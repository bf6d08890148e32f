"""Generations and copies of a source's map: made, and looked at behind the back of the code under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.entries import Reasserted, Turned
from indexer.store.journal import Journal, NewCopy
from indexer.store.layout import source_name
from indexer.store.outcomes import Began, Laid, Refusal, Whereabouts
from indexer.store.segments import by_segment
from tests.support.owning import POD, stored

if TYPE_CHECKING:
    from indexer.model import SourceId
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

COPY = Whereabouts(7, 1, 2)


def map_of(store: Store, keys: PartitionKeys, where: Whereabouts, source: SourceId = POD) -> dict[bytes, bytes]:
    """All fields of a copy."""
    parts = [store.look.hgetall(key) for key in keys.copy(source, where.generation, where.copy, where.segments)]
    return {field: value for part in parts for field, value in part.items()}


def fields(numbers: range) -> dict[bytes, bytes]:
    """What `stored` changes amount to."""
    return {change.field: change.value or b"" for change in stored(numbers)}


async def turned(journal: Journal, generation: int, segments: int = 1) -> Began | Refusal:
    """Ask for a generation."""
    return await journal.turn(POD, generation, segments, Turned(source_name(POD), generation))


async def lay(journal: Journal, keys: PartitionKeys, numbers: range, where: Whereabouts = COPY) -> list[Laid | Refusal]:
    """Lay these pairs into a copy."""
    segments = list(keys.copy(POD, where.generation, where.copy, where.segments))
    return [await journal.lay(POD, where, part) for part in by_segment(stored(numbers), segments)]


async def flip(journal: Journal, pairs: int, where: Whereabouts = COPY, cursor: int | None = 9) -> Began | Refusal:
    """Point the source at a copy."""
    copy = NewCopy(source=POD, where=where, cursor=cursor, facts=b"f", pairs=pairs)
    return await journal.flip(copy, Reasserted(source_name(POD), where.generation, where.copy))
