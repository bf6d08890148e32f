"""[I/O] What engines say they serve, told by the replica that asks them to all others, and to whoever owns next.

    owner       looks twice a second, and writes where something changed; once a minute it says the same again
    everybody   looks as often, with all partitions in one message to each server. Words on a generation that does not
                stand are of a process that is over, or yet to come, and wait. Of its own sources an owner believes them
                until an engine answers it

Best effort: while the store is away everybody knows what was known.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from indexer.slices import Slices
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.names import FIELD, PackedNames, ToldNames, pack_names, put_names, read_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys

LOOK_S: Final = 0.5
AGAIN_S: Final = 60.0
LIMIT: Final = "names.told"


class NameSharing:
    """One a process. `owned`: sources of a partition that is owned here, else None; `is_followed`: one that is read."""

    def __init__(
        self,
        parts: Parts,
        keys: Mapping[int, PartitionKeys],
        *,
        owned: Callable[[int], Sequence[SourceId] | None],
        is_followed: Callable[[int], bool],
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._is_followed = is_followed
        self._reached: Callable[[str], None] | None = None
        self._told: dict[int, tuple[bytes, float]] = {}
        """By owned partition: what was written last, and when."""
        self._packed: dict[int, tuple[int, PackedNames]] = {}
        """By owned partition: what is known, at that version of the registry."""
        self._heard: dict[int, tuple[int, bytes]] = {}
        """By partition: the value that was taken in last, at that version of the registry."""
        self._ours: set[int] = set()
        """Owned partitions of which was heard, since they are, what others told: only then is anything told."""

    def share(self, reached: Callable[[str], None]) -> None:
        """Names are learnt here. Before `run`; else nothing is told, nor heard. `reached`: counts a limit."""
        self._reached = reached

    async def run(self) -> None:
        """Until cancelled."""
        while self._reached is not None:
            with contextlib.suppress(StoreFailure):  # the next look does
                await self._hear()
                await self._tell(self._reached)
            await asyncio.sleep(LOOK_S)

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _tell(self, reached: Callable[[str], None]) -> None:
        slices = Slices(self._parts.clock)
        for number, keys in self._keys.items():
            await slices.turn()
            sources = self._owned(number)
            if sources is None:
                self._told.pop(number, None)
                self._packed.pop(number, None)
            if sources is None or number not in self._ours:  # else what the owner before told is gone
                continue
            packed = self._known(number, sources)
            before, told_at = self._told.get(number, (b"", float("-inf")))
            now = self._parts.clock.now()
            if packed.data == before and now - told_at < AGAIN_S:
                continue
            if not packed.is_whole:
                reached(LIMIT)
            await put_names(self._parts.client, keys, packed.data, self._parts.options.retain_ms)
            self._told[number] = packed.data, now

    def _known(self, number: int, sources: Sequence[SourceId]) -> PackedNames:
        registry = self._parts.registry
        before = self._packed.get(number)
        if before is not None and before[0] == registry.version:
            return before[1]
        found = []
        for key in sorted(sources):
            source = registry.sources.get(key)
            served = None if source is None else source.serves
            if source is not None and served is not None:
                found.append(ToldNames(key, source.facts.generation, served))
        packed = pack_names(found)
        self._packed[number] = registry.version, packed
        return packed

    # -- hearing ------------------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        numbers = [number for number in self._keys if self._owned(number) is not None or self._is_followed(number)]
        ours = {number for number in numbers if self._owned(number) is not None}
        self._ours &= ours
        slices = Slices(self._parts.clock)
        values = await self._parts.client.field_of_each([self._keys[number].names for number in numbers], FIELD)
        for number, value in zip(numbers, values, strict=True):
            version = self._parts.registry.version
            if value is None or self._heard.get(number) == (version, value):
                continue
            with contextlib.suppress(DamagedValue):  # of somebody else; it says nothing
                for told in read_names(value):
                    self._take(told, is_own=self._owned(number) is not None)
                    await slices.turn()
            self._heard[number] = version, value
        self._ours = ours

    def _take(self, told: ToldNames, *, is_own: bool) -> None:
        source = self._parts.registry.sources.get(told.source)
        if source is None or source.facts.generation != told.generation or (is_own and source.serves is not None):
            return
        self._parts.registry.learn(source, told.served)
