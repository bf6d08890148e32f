"""[I/O] Registrations that the store lost, or that were damaged there, put back by the owner of their partition."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from indexer.store.commands import Command, give
from indexer.store.failures import DamagedValue
from indexer.store.registered import Registered, pack_registered, unpack_registration

if TYPE_CHECKING:
    from collections.abc import Iterable

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


async def put_back_missing(parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource]) -> None:
    """Look whether the registry has them all, in a form that can be read. Raises StoreFailure."""
    registry = await parts.client.fields(keys.sources)
    await put_back(parts, keys, [each for each in owned if each.name not in registry])
    for each in list(owned):
        if each.name in registry and not _is_readable(each.name, registry[each.name]):
            log.error("source %s: its registration was damaged in the store: written anew", each.id)
            await _give("edit", parts, keys, each)


def _is_readable(name: bytes, data: bytes) -> bool:
    try:
        unpack_registration(name, data)
    except DamagedValue:
        return False
    return True


async def _give(verb: Verb, parts: Parts, keys: PartitionKeys, each: OwnedSource) -> None:
    registered = Registered(each.sink.descriptor, each.source.facts.cordoned)
    command = Command(
        verb=verb,
        source=each.id,
        nonce=parts.nonces.next(),
        descriptor=pack_registered(registered),
        known_generation=each.source.facts.generation,
    )
    await give(parts.client, keys, command, parts.options.retain_ms)
