"""[I/O] Laying a source's map into a new copy, which nobody reads before it is whole."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from indexer.store.maps import encode_all
from indexer.store.outcomes import Laid
from indexer.store.segments import sort_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.index.mirror import Mirror
    from indexer.partitions.owned import OwnedSource
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Refusal, Whereabouts
    from indexer.store.segments import SegmentChanges, Sorted

LAID_AT_ONCE: Final = 500
"""Fields of a segment in one call: half a millisecond of the server's time."""
CHUNK: Final = 1_000
"""Changes sorted in one piece: under a millisecond."""

Counts = dict[bytes, int]
"""Fields of each segment, as the store told last."""


class Layer:
    """Lays parts of one copy; what it raises or returns beside None ends the attempt."""

    def __init__(self, journal: Journal, keys: PartitionKeys, owned: OwnedSource, where: Whereabouts) -> None:
        self._journal = journal
        self._source = owned.id
        self._where = where
        self._segments = list(keys.copy(owned.id, where.generation, where.copy, where.segments))
        self.counts: Counts = {}

    async def whole(self, owned: OwnedSource, mirror: Mirror, wall_ahead_s: float) -> Refusal | None:
        """The whole map, as it is while this goes on: what changes meanwhile has to be laid behind it."""
        waiting: Sorted = {}
        for step in encode_all(owned.source, mirror, wall_ahead_s):
            await asyncio.sleep(0)
            sort_in(waiting, step, self._segments)
            for key in [key for key, part in waiting.items() if len(part.sets) >= 2 * LAID_AT_ONCE]:
                refused = await self._lay(waiting.pop(key))
                if refused is not None:
                    return refused
        return await self._rest(waiting)

    async def changes(self, late: Mapping[bytes, bytes | None]) -> Refusal | None:
        """These on top."""
        waiting: Sorted = {}
        left = iter(late.items())  # nothing is added to these any more
        while changes := list(islice(left, CHUNK)):
            sort_in(waiting, changes, self._segments)
            await asyncio.sleep(0)
        return await self._rest(waiting)

    async def _rest(self, waiting: Mapping[bytes, SegmentChanges]) -> Refusal | None:
        for part in waiting.values():
            refused = await self._lay(part)
            if refused is not None:
                return refused
        return None

    async def _lay(self, part: SegmentChanges) -> Refusal | None:
        reply = await self._journal.lay(self._source, self._where, part)
        if not isinstance(reply, Laid):
            return reply
        self.counts[part.key] = reply.fields
        return None
