"""[I/O] Commands about sources of owned partitions, as the control streams tell them: from whatever replica they come.

Everything that a command does here is done when it comes out of the stream, for the commands of this replica, too: one
order for all. One that was in force already when the partition was loaded has no effect; generations tell, but those of
the store only, for an engine may have begun a later one since, which is not in the store yet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from indexer.happenings import Happening
from indexer.log_lines import about
from indexer.partitions.configuring import LOCKED
from indexer.partitions.news import in_use
from indexer.partitions.owned import OwnedSource
from indexer.partitions.streams import POLL_S, next_entries
from indexer.roster import registered_as
from indexer.slices import Slices
from indexer.store.commands import read_command
from indexer.store.entries import Position
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.registered import unpack_registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.happenings import RemovalCause
    from indexer.ingest import SourceSink
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.store.client import StreamEntry
    from indexer.store.commands import Given
    from indexer.store.layout import PartitionKeys

log = logging.getLogger("kvindexer.store")

READ_MAX: Final = 256
RETRY_S: Final = 0.2


class Control:
    """Follows the control streams of partitions that this replica owns."""

    def __init__(self, parts: Parts, keys: Mapping[int, PartitionKeys], owners: Mapping[int, Owner]) -> None:
        self._parts = parts
        self._keys = keys
        self._owners = owners
        self._wrong_keys: set[bytes] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            owners = [owner for owner in self._owners.values() if owner.role == "owner"]
            if not owners:
                await asyncio.sleep(POLL_S)
                continue
            after = {self._keys[owner.number].control: owner.control_after for owner in owners}
            try:
                found = await self._read(after)
            except StoreFailure:
                await asyncio.sleep(RETRY_S)
                continue
            for owner in owners:
                entries, slices = found.get(self._keys[owner.number].control) or (), Slices(self._parts.clock)
                for entry in entries:
                    if owner.role == "owner" and _is_new(entry, owner):
                        self._take(owner, entry)
                    await slices.turn()
                if entries:
                    owner.tick_soon()
                await asyncio.sleep(0)

    async def _read(self, after: Mapping[bytes, bytes]) -> Mapping[bytes, list[StreamEntry] | None]:
        found = await next_entries(self._parts.client, after, READ_MAX)
        wrong = {key for key, entries in found.items() if entries is None}
        for key in wrong - self._wrong_keys:
            extra = about("store_key_taken")
            log.error("the store: no commands of its partition are heard: %s", in_use(key), extra=extra)
        self._wrong_keys = wrong
        return found

    def _take(self, owner: Owner, entry: StreamEntry) -> None:
        entry_id, fields = entry
        owner.control_after = entry_id
        try:
            given = read_command(fields)
            if given.counted and not self._parts.nonces.are_of(given.counted):
                self._parts.roster.clears.note()
            self._obey(owner, given)
        except DamagedValue as damaged:
            log.warning(
                "partition %d: a command is not in this version's form: %s",
                owner.number,
                damaged,
                extra=about("command_unreadable", partition=owner.number),
            )

    def _obey(self, owner: Owner, given: Given) -> None:
        roster, sink = self._parts.roster, self._parts.roster.sink(given.source)
        if given.verb in {"edit", "doubt"}:
            self._hear(given, sink)
            return
        if given.verb == "restore" or given.generation <= owner.commanded.get(given.source, -1):
            return
        owner.commanded[given.source] = given.generation
        self._parts.ingest.note_generation(given.generation)
        owner.removed.pop(given.source, None)
        if given.verb == "put":
            self._put(owner, given)
        elif sink is not None and given.verb == "clear":
            known = sink.source.facts.generation
            if given.generation == known:  # a call that was refused told of it before
                roster.tell_cleared(sink, None, sink.cursor)
            else:
                roster.clear_one(given.source, given.generation if given.generation > known else None)
        else:
            del owner.commanded[given.source]  # no earlier command is still to come
            owner.removed.note(given.source, given.generation)
            if sink is not None:
                self._parts.history.note(given.source, _removed(sink))
                owner.leave(sink.source)
                roster.drop(given.source)

    def _hear(self, given: Given, sink: SourceSink | None) -> None:
        """What begins no generation."""
        if sink is None:
            return
        if given.verb == "edit":
            self._parts.roster.edit(given.source, unpack_registered(given.descriptor))
        elif sink.source.facts.generation == given.generation:
            sink.doubt("drift")

    def _put(self, owner: Owner, given: Given) -> None:
        """Registered, or registered otherwise."""
        registered = unpack_registered(given.descriptor)
        known = self._parts.roster.sink(given.source)
        generation: int | None = given.generation
        if known is not None:
            if known.descriptor == registered.descriptor and known.source.facts.generation >= given.generation:
                return
            owner.leave(known.source)
            if given.generation <= known.source.facts.generation:
                generation = None
        sink = self._parts.ingest.open_source(registered.descriptor, generation)
        registered.begin(sink.source)
        self._parts.roster.put(sink)
        owner.enter(OwnedSource(sink, self._parts.unwritten))
        self._parts.history.note(given.source, registered_as(registered.descriptor, sink.source.facts.generation))
        if not owner.is_giving:  # else whoever gets it follows; and where it stays, all are followed again
            self._parts.roster.follow_soon([given.source])


def _is_new(entry: StreamEntry, owner: Owner) -> bool:
    """Not where the partition went and was loaded again since the stream was asked: then later ones are in force."""
    return Position.parse(entry[0]) > Position.parse(owner.control_after)


def _removed(sink: SourceSink) -> Happening:
    facts, origin = sink.source.facts, sink.descriptor.origin
    cause: RemovalCause = "not_configured" if origin in LOCKED else "by_command"
    if origin == "discovery" and not facts.ready:
        cause = "not_discovered"
    return Happening(what="removed", cause=cause, sequence=facts.sequence, generation_before=facts.generation)
