"""[I/O] Discovered sources in the registries of a store, changed by the one replica that watches.

That is the owner of the first partition, as long as its lease is its own on the clock that counts pauses: who was
stopped for longer finds it over before anything is written. Each change says what must stand, so that whatever was on
its way meanwhile is refused and planned anew (decisions/0044).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from indexer.partitions.commanding import answered, as_it_stands, command
from indexer.slices import Slices
from indexer.store.commands import NoSuchSource, OtherRegistration
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.layout import source_id
from indexer.store.registered import pack_registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.model import SourceId
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.store.commands import Verb
    from indexer.store.layout import PartitionKeys
    from indexer.store.registered import Registered

WATCHER: Final = 0
"""The partition whose owner watches."""


def _by_source(registry: Mapping[bytes, bytes]) -> dict[SourceId, bytes]:
    """Names that cannot be read are left out."""
    found: dict[SourceId, bytes] = {}
    for name, packed in registry.items():
        with contextlib.suppress(DamagedValue):
            found[source_id(name)] = packed
    return found


class Discovered:
    """The registries of all partitions. `owners` where this replica owns what it can."""

    def __init__(self, parts: Parts, keys: Mapping[int, PartitionKeys], owners: Mapping[int, Owner]) -> None:
        self._parts = parts
        self._keys = keys
        self._owners = owners
        self._read: dict[SourceId, bytes] = {}
        """As it stood when last read, in the registry's own bytes."""

    @property
    def watches(self) -> bool:
        """Whether this replica is the one that watches now."""
        owner = self._owners.get(WATCHER)
        if owner is None or owner.role != "owner" or owner.is_giving:
            return False
        return owner.lease_until > self._parts.clock.now()

    async def read(self) -> dict[SourceId, Registered] | None:
        """What stands in all registries; None while the store does not answer. What cannot be read is left out."""
        packed: dict[SourceId, bytes] = {}
        try:
            for keys in self._keys.values():
                packed.update(_by_source(await self._parts.client.fields(keys.sources)))
        except StoreFailure:
            return None
        self._read = packed
        found: dict[SourceId, Registered] = {}
        slices = Slices(self._parts.clock)
        for source, each in packed.items():
            registered = as_it_stands(source, each)
            if registered is not None:
                found[source] = registered
            await slices.turn()
        return found

    async def change(self, verb: Verb, source: SourceId, wanted: Registered | None, *, counts: bool) -> bool:
        """One command, where that stands which was read. False where something else does. Raises StoreFailure."""
        packed = b"" if wanted is None else pack_registered(wanted)
        expected = self._read.get(source, b"")
        order = command(self._parts, verb, source, packed, expected=expected, counts=counts)
        reply = await answered(self._parts, self._keys[self._parts.partition_of(source)], order)
        if isinstance(reply, OtherRegistration | NoSuchSource):
            return False
        self._parts.ingest.note_generation(reply.generation)
        if wanted is None:
            self._read.pop(source, None)
        else:
            self._read[source] = packed
        return True

    def holds_blocks(self, source: SourceId) -> bool:
        """Whether any of it are known here; of one that another replica has not told of yet it is taken for granted."""
        known = self._parts.registry.sources.get(source)
        if known is None or (known.told_holdings is None and known.changes is None):
            return True
        return any(known.holdings[1:])
