"""[I/O] A command about a source, given; and the map that it made void, freed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from indexer.store.commands import Command, Commanded, give
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.layout import source_name
from indexer.store.outcomes import WrongType
from indexer.store.registered import unpack_registration

if TYPE_CHECKING:
    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.commands import NoSuchSource, OtherRegistration, Outcome, Verb
    from indexer.store.layout import PartitionKeys
    from indexer.store.registered import Registered

TRIES: Final = 8
"""Of a command that others come before, again and again."""
CONTENDED: Final = "others change the same registration again and again"


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


def as_it_stands(source: SourceId, packed: bytes) -> Registered | None:
    """A registration out of a registry; None where there is none, or it cannot be read: it is put in order."""
    try:
        return unpack_registration(source_name(source), packed) if packed else None
    except DamagedValue:
        return None


async def command_store(parts: Parts, keys: PartitionKeys, order: Command) -> Outcome:
    """Give it; sent again it has its effect once. Raises StoreFailure."""
    reply = await give(parts.client, keys, order, parts.options.retain_ms)
    if isinstance(reply, Commanded) and reply.before is not None:
        before = reply.before
        segments = keys.copy(order.source, before.generation, before.copy, before.segments)
        with contextlib.suppress(StoreFailure):  # it is done nevertheless, and they expire
            await parts.client.unlink(list(segments))
    return reply


async def answered(parts: Parts, keys: PartitionKeys, order: Command) -> Commanded | OtherRegistration | NoSuchSource:
    """The same. Raises StoreFailure, also where a key holds something of somebody else."""
    reply = await command_store(parts, keys, order)
    if isinstance(reply, WrongType):
        raise StoreFailure("refused", "a key of the registry is in use for something else")
    return reply
