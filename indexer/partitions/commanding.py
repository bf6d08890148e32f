"""[I/O] A command about a source, given; and the map that it made void, freed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from indexer.store.commands import Command, Commanded, give
from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.commands import Outcome, Verb
    from indexer.store.layout import PartitionKeys


def command(
    parts: Parts,
    verb: Verb,
    source: SourceId,
    descriptor: bytes = b"",
    *,
    known_generation: int | None = None,
    expected: bytes | None = None,
    counts: bool = False,
) -> Command:
    """A new one. `known_generation`: what it gives is later; without, later than any that is known here."""
    known = parts.ingest.last_generation if known_generation is None else known_generation
    return Command(
        verb=verb,
        source=source,
        nonce=parts.nonces.next(),
        descriptor=descriptor,
        known_generation=known,
        expected=expected,
        counts=counts,
    )


async def command_store(parts: Parts, keys: PartitionKeys, order: Command) -> Outcome:
    """Give it; sent again it has its effect once. Raises StoreFailure."""
    reply = await give(parts.client, keys, order, parts.options.retain_ms)
    if isinstance(reply, Commanded) and reply.before is not None:
        before = reply.before
        segments = keys.copy(order.source, before.generation, before.copy, before.segments)
        with contextlib.suppress(StoreFailure):  # it is done nevertheless, and they expire
            await parts.client.unlink(list(segments))
    return reply
