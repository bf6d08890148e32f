"""[I/O] What is counted of sources: an owner puts it into the store now and then, whoever follows reads it there.

Best effort: nobody waits for it, and a store that does not answer is asked again in the next round. What an owner
counted since it told last is lost with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from indexer.index.counts import counts_of
from indexer.slices import Slices
from indexer.store import lua
from indexer.store.counts import pack_counts, unpack_counts
from indexer.store.failures import DamagedValue, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.model import SourceId
    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.parts import Parts
    from indexer.store.counts import StoredCounts
    from indexer.store.layout import PartitionKeys

AT_ONCE: Final = 64
"""Sources in one call."""
READ_S: Final = 1.0
"""For all that are asked for together."""
READ_MAX: Final = 4_096


class Counting:
    """Of one epoch of an owned partition. `token`: its fence."""

    def __init__(self, parts: Parts, keys: PartitionKeys, owned: Mapping[int, OwnedSource], token: bytes) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._token = token
        self._told: dict[SourceId, int] = {}
        """What had been counted of each, in all, when it was told last."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._parts.rest(2 * self._parts.options.counts_s)  # a half of it, at least
            with contextlib.suppress(StoreFailure):
                await self.tell()

    async def tell(self) -> None:
        """Of those of which anything was counted since. Raises StoreFailure."""
        slices, clock = Slices(self._parts.clock), self._parts.clock
        here = {each.id for each in self._owned.values()}
        self._told = {source: total for source, total in self._told.items() if source in here}
        told: dict[SourceId, int] = {}
        keys: list[bytes] = []
        words: list[bytes] = []
        for each in list(self._owned.values()):
            await slices.turn()
            if each.where is None:
                continue
            counts = counts_of(each.source)
            if counts.total != self._told.get(each.id):
                told[each.id] = counts.total
                keys.append(self._keys.source(each.id))
                words += [b"%d" % each.where.generation, pack_counts(counts, clock.wall_us(), clock.now())]
            if len(keys) == AT_ONCE:
                await self._put(keys, words, told)
                keys, words, told = [], [], {}
        if keys:
            await self._put(keys, words, told)

    async def _put(self, keys: Sequence[bytes], words: Sequence[bytes], told: Mapping[SourceId, int]) -> None:
        reply = await self._parts.client.run(lua.COUNTS, (self._keys.owner, *keys), (self._token, *words))
        if reply[0] == b"OK":  # what was left out is told again: mostly its next generation began on the way
            left_out = {int(place) for place in reply[1:]}
            self._told.update(
                (source, total) for nth, (source, total) in enumerate(told.items()) if nth not in left_out
            )


async def read_counts(
    parts: Parts, keys: Mapping[int, PartitionKeys], sources: Sequence[SourceId]
) -> dict[SourceId, StoredCounts]:
    """What owners told of these; of a source that is missing nothing is known, as of all while the store is away."""
    found: dict[SourceId, StoredCounts] = {}
    clock, slices = parts.clock, Slices(parts.clock)
    with contextlib.suppress(StoreFailure, TimeoutError):
        async with asyncio.timeout(READ_S):
            for first in range(0, min(len(sources), READ_MAX), AT_ONCE):
                some = sources[first : first + AT_ONCE]
                asked = [keys[parts.partition_of(source)].source(source) for source in some]
                for source, data in zip(some, await parts.client.field_of_each(asked, b"counts"), strict=True):
                    if data is not None:
                        with contextlib.suppress(DamagedValue):  # of a later version
                            found[source] = unpack_counts(data, clock.wall_us(), clock.now())
                    await slices.turn()
    return found
