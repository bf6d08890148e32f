"""[I/O] Registrations that the store lost, has of before, or that were damaged there: its owner knows what stands."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from indexer.log_lines import about
from indexer.partitions.commanding import command, command_store
from indexer.store.commands import CONTROL_ENTRIES
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_name
from indexer.store.loading import parse_state
from indexer.store.registered import Registered, pack_registered, unpack_registration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.model import SourceId
    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.parts import Parts
    from indexer.store.commands import Verb
    from indexer.store.layout import PartitionKeys

log = logging.getLogger("kvindexer.store")


async def put_back(parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource]) -> None:
    """Where they are missing. One that was removed meanwhile, which its owner has not heard, stays out.

    Raises StoreFailure.
    """
    for each in list(owned):
        await _give("restore", parts, keys, each)


async def as_known(
    parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource], removed: Mapping[SourceId, int], after: bytes
) -> None:
    """In a store that went back: registrations are put back, what was removed since goes again.

    `removed`: with the generation of the command that did it. `after`: the command that is known here last; what later
    ones are about is left to them. Raises StoreFailure.
    """
    owned = list(owned)
    await put_back(parts, keys, owned)
    registry = await parts.client.fields(keys.sources)
    later = await parts.client.entries_after(keys.control, after, CONTROL_ENTRIES)
    later_about = {fields.get(b"s") for _, fields in later}
    for each in owned:
        if each.name not in later_about and registry.get(each.name, b"") not in {b"", _registration(each)}:
            await _give("edit", parts, keys, each)
    for source, generation in removed.items():
        name = source_name(source)
        if name in registry and name not in later_about and await _is_before(parts, keys, source, generation):
            log.info(
                "source %s: it is back in a store that went back: removed again",
                source,
                extra=about("source_removed", source=source),
            )
            order = command(parts, "remove", source, known_generation=generation)
            await command_store(parts, keys, order)


async def _is_before(parts: Parts, keys: PartitionKeys, source: SourceId, generation: int) -> bool:
    """Whether what stands was registered before that."""
    try:
        state = parse_state(await parts.client.fields(keys.source(source)))
    except DamagedValue:
        return True
    return state is None or state.generation < generation


async def put_back_missing(parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource]) -> None:
    """Look whether the registry has them all, in a form that can be read. Raises StoreFailure."""
    registry = await parts.client.fields(keys.sources)
    await put_back(parts, keys, [each for each in owned if each.name not in registry])
    for each in list(owned):
        if each.name in registry and not _is_readable(each.name, registry[each.name]):
            log.error(
                "source %s: its registration was damaged in the store: written anew",
                each.id,
                extra=about("source_rewritten", source=each.id),
            )
            await _give("edit", parts, keys, each)


def _is_readable(name: bytes, data: bytes) -> bool:
    try:
        unpack_registration(name, data)
    except DamagedValue:
        return False
    return True


def _registration(each: OwnedSource) -> bytes:
    return pack_registered(Registered.of(each.source))


async def _give(verb: Verb, parts: Parts, keys: PartitionKeys, each: OwnedSource) -> None:
    known = each.source.facts.generation
    await command_store(parts, keys, command(parts, verb, each.id, _registration(each), known_generation=known))
