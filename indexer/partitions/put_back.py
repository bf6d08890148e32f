"""[I/O] Registrations that the store lost, put back by the owner of their partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.commands import Command, give
from indexer.store.layout import source_name
from indexer.store.registered import Registered, pack_registered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys


async def put_back(parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource]) -> None:
    """Where they are missing. One that was removed meanwhile, which its owner has not heard, stays out.

    Raises StoreFailure.
    """
    for each in list(owned):
        registered = Registered(each.sink.descriptor, each.source.facts.cordoned)
        command = Command(
            verb="restore",
            source=each.id,
            nonce=parts.nonces.next(),
            descriptor=pack_registered(registered),
            known_generation=each.source.facts.generation,
        )
        await give(parts.client, keys, command, parts.options.retain_ms)


async def put_back_missing(parts: Parts, keys: PartitionKeys, owned: Iterable[OwnedSource]) -> None:
    """Look whether the registry has them all. Raises StoreFailure."""
    registry = await parts.client.fields(keys.sources)
    await put_back(parts, keys, [each for each in owned if source_name(each.id) not in registry])
