"""[I/O] Sources of flags and of the configuration: put into the registry, and taken out when no replica names them.

Replicas may be configured differently, for a while or for good. At its start each puts what it names, also where
another registration stands; after that only what is missing. A source that nobody names any more goes when all replicas
have the same configuration, so that one that is started without sources takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.log_lines import about
from indexer.partitions.commanding import CONTENDED, TRIES, answered, as_it_stands, command
from indexer.store.commands import Commanded, OtherRegistration
from indexer.store.failures import StoreFailure
from indexer.store.layout import source_name
from indexer.store.registered import Registered, pack_registered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from indexer.model import Descriptor, SourceId
    from indexer.partitions.followers import Followers
    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.store.commands import NoSuchSource, Verb
    from indexer.store.layout import PartitionKeys

log = logging.getLogger("kvindexer.store")

LOCKED: Final = ("flag", "config")
"""Origins of which only a configuration decides."""
START_LOOK_S: Final = 0.2
LOOK_S: Final = 5.0
"""Between two looks whether something configured is missing."""
UNNAMED_LOOK_S: Final = 2.0
"""Between the two looks at which nobody names a source that goes: who just started must have been heard of."""
_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")


def digest_of(configured: Iterable[Descriptor]) -> str:
    """What tells two configurations apart, whatever the order, and whether by flags or by the file."""
    packed = sorted(_ENCODER.encode(msgspec.structs.replace(each, origin="config")) for each in configured)
    return hashlib.sha256(b"\0".join(b"%d %b" % (len(each), each) for each in packed)).hexdigest()[:16]


def configured_in(parts: Parts, number: int) -> dict[SourceId, Descriptor]:
    """Sources of a partition that flags and the configuration name."""
    return {source: each for source, each in parts.configured.items() if parts.partition_of(source) == number}


async def put_configured(
    parts: Parts,
    keys: PartitionKeys,
    number: int,
    registry: Mapping[bytes, bytes],
    alone: Collection[SourceId] = (),
) -> set[SourceId]:
    """Those that are missing in the registry; at the process's first time those that differ, too.

    `alone`: collected without the store so far, which goes on. Returns those of them that stood otherwise or not at
    all. Raises StoreFailure.
    """
    is_first, changed = number not in parts.told_configured, set()
    for source, descriptor in configured_in(parts, number).items():
        stands = registry.get(source_name(source), b"")
        if source not in alone:
            await _put(parts, keys, descriptor, stands, may_change=is_first)
        elif not _is_named_so(as_it_stands(source, stands), descriptor):
            changed.add(source)
            await _take_up(parts, keys, descriptor, stands)
    parts.told_configured.add(number)
    return changed


async def _put(parts: Parts, keys: PartitionKeys, descriptor: Descriptor, stands: bytes, *, may_change: bool) -> None:
    for _ in range(TRIES):
        registered = as_it_stands(descriptor.id, stands)
        if registered is not None and (not may_change or _is_named_so(registered, descriptor)):
            return
        wanted = Registered(descriptor, registered is not None and registered.cordoned)
        reply = await _give(parts, keys, "put", wanted, expected=stands)
        if not isinstance(reply, OtherRegistration):
            return
        stands = reply.stands
    raise StoreFailure("refused", CONTENDED)


async def _take_up(parts: Parts, keys: PartitionKeys, descriptor: Descriptor, stands: bytes) -> None:
    """A new generation would end what is collected alone, so none begins."""
    registered = as_it_stands(descriptor.id, stands)
    wanted = Registered(descriptor, registered is not None and registered.cordoned)
    await _give(parts, keys, "restore" if registered is None else "edit", wanted)


async def _give(
    parts: Parts, keys: PartitionKeys, verb: Verb, registered: Registered, *, expected: bytes | None = None
) -> Commanded | OtherRegistration | NoSuchSource:
    packed = b"" if verb == "remove" else pack_registered(registered)
    order = command(parts, verb, registered.descriptor.id, packed, expected=expected)
    return await answered(parts, keys, order)


def _is_named_so(registered: Registered | None, descriptor: Descriptor) -> bool:
    """Whether it stands as it is configured, be it by a flag or by the file."""
    if registered is None:
        return False
    stands = registered.descriptor
    if stands.origin in LOCKED:
        stands = msgspec.structs.replace(stands, origin=descriptor.origin)
    return stands == descriptor


# -- what nobody names -----------------------------------------------------------------------------------------------


async def remove_unnamed(parts: Parts, keys: PartitionKeys, registered: Iterable[Registered]) -> list[SourceId]:
    """Take out those that came from a configuration and stand in none, if all replicas agree; returns which.

    Raises StoreFailure.
    """
    removed: list[SourceId] = []
    for each in registered:
        source = each.descriptor.id
        if each.descriptor.origin in LOCKED and source not in parts.configured and parts.agrees():
            reply = await _give(parts, keys, "remove", each, expected=pack_registered(each))
            if isinstance(reply, Commanded):
                log.info(
                    "source %s: no longer configured, removed", source, extra=about("source_removed", source=source)
                )
                removed.append(source)
    return removed


async def keep_removing_unnamed(parts: Parts, keys: PartitionKeys, owned: Mapping[int, OwnedSource]) -> None:
    """Of an owner's partition; until cancelled. Only what nobody named at two looks, and at any between, goes."""
    before: set[SourceId] = set()
    while True:
        await asyncio.sleep(UNNAMED_LOOK_S)
        found = {
            each.id: Registered.of(each.source)
            for each in owned.values()
            if each.sink.descriptor.origin in LOCKED and each.id not in parts.configured
        }
        if not found or not parts.agrees():
            before.clear()
            continue
        with contextlib.suppress(StoreFailure):  # the next look tries again
            await remove_unnamed(parts, keys, [found[source] for source in found.keys() & before])
        before = set(found)


# -- partitions that others own ---------------------------------------------------------------------------------------


class Configuring:
    """What this replica names, told to the registries of all partitions, whoever owns them."""

    def __init__(
        self, parts: Parts, keys: Mapping[int, PartitionKeys], owners: Mapping[int, Owner], followers: Followers
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owners = owners
        self._followers = followers

    async def run(self) -> None:
        """Until cancelled."""
        numbers = sorted({self._parts.partition_of(source) for source in self._parts.configured})
        while numbers:
            for number in numbers:
                with contextlib.suppress(StoreFailure):  # the next look tries again
                    await self._look(number)
            are_told = self._parts.told_configured.issuperset(numbers)
            rest = LOOK_S if are_told else START_LOOK_S
            await self._parts.rest(rest)

    async def _look(self, number: int) -> None:
        if number in self._parts.told_configured:
            owner = self._owners.get(number)
            is_known = self._followers.follows(number) or (owner is not None and owner.role == "owner")
            known = self._parts.registry.sources
            if not is_known or all(source in known for source in configured_in(self._parts, number)):
                return
        elif not self._followers.follows(number):
            return  # it may come to be ours: then what was collected without the store counts, too
        registry = await self._parts.client.fields(self._keys[number].sources)
        await put_configured(self._parts, self._keys[number], number, registry)
