"""[I/O] What an owner does before it applies anything: the registry as configured, then all sources as they were left.

Sources of flags and of the configuration are put into the registry (configuring.py). Then the partition is loaded, and
each source goes on at its cursor: its subscriber starts where the one before it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.happenings import Happening
from indexer.log_lines import about
from indexer.partitions.configuring import put_configured, remove_unnamed
from indexer.partitions.owned import OwnedSource
from indexer.ports import Resume
from indexer.roster import registered_as
from indexer.store.counts import unpack_counts
from indexer.store.entries import Ticked, decode_entry
from indexer.store.facts import restore_facts, unpack_facts
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_id, source_name
from indexer.store.loading import parse_state
from indexer.store.maps import Restoring
from indexer.store.outcomes import Whereabouts
from indexer.store.rebuild import load
from indexer.store.registered import Registered, unpack_registration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.ingest import SourceSink
    from indexer.model import SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.client import Client
    from indexer.store.facts import StoredFacts
    from indexer.store.layout import PartitionKeys
    from indexer.store.loading import SourceState

log = logging.getLogger("kvindexer.store")

NOBODY_LISTENED: Final = float("inf")
LONG_AGO_S: Final = 31_536_000.0
"""As long ago as matters."""
LOOKED_BACK: Final = 64
"""Entries looked at for the last tick: one comes every 250 ms."""


class Opened(NamedTuple):
    """A source that is loaded. `incomplete`: a part of its map was gone, so a new copy is due.

    `life`: of its engine's process, as the registry has it; what is loaded may be of the one before.
    """

    owned: OwnedSource
    incomplete: bool = False
    life: str = ""


class Opening:
    """Implements `rebuild.Shelf`. `open` is called once."""

    def __init__(self, parts: Parts, keys: PartitionKeys, number: int, alone: Mapping[SourceId, OwnedSource]) -> None:
        self._parts = parts
        self._keys = keys
        self._number = number
        self._alone = alone
        """Sources that were collected without the store so far, which did not answer."""
        self._changed: set[SourceId] = set()
        """Of these, what the store has is of another registration, or nothing."""
        self._begun: dict[SourceId, _Begun] = {}
        self._unreadable: set[bytes] = set()

    async def open(self) -> list[Opened]:
        """Every source of the partition, in the registry of the process, and its subscriber about to start.

        Raises StoreFailure, and DamagedValue where something is not in this layout's form.
        """
        client = self._parts.client
        await self._configure()
        last_seen = await _last_seen(client, self._keys)
        try:
            loaded = await load(client, self._keys, self, self._parts.options.load, self._parts.reader)
            registry = self._read(await client.fields(self._keys.sources))  # later changes come as commands
            opened: list[Opened] = []
            for source, outcome in loaded.outcomes.items():
                seen_us = last_seen.get(source)
                if outcome == "damaged":
                    one = self._damaged(source, registry.get(source))
                elif outcome == "unfinished":
                    one = self._fresh(source, registry.get(source), await self._state(source), seen_us)
                else:
                    one = await self._finish(source, seen_us, whole=outcome == "whole")
                if one is not None:
                    registered = registry.get(source)
                    opened.append(one if registered is None else one._replace(life=registered.life))
        finally:
            self._give_back()
        return opened

    def _give_back(self) -> None:
        """What was begun and came to nothing. What the registry shows goes on answering as far as it was read."""
        for begun in self._begun.values():
            if self._parts.registry.sources.get(begun.sink.descriptor.id) is not begun.sink.source:
                self._parts.ingest.close_source(begun.sink)
        self._begun.clear()

    # -- rebuild.Shelf ------------------------------------------------------------------------------------------------

    def begin(self, source: SourceId, descriptor: bytes, state: SourceState) -> None:
        """A source is about to be read, or read anew."""
        self._drop(source)
        registered, stored = unpack_registration(source_name(source), descriptor), unpack_facts(state.facts)
        sink = self._parts.ingest.open_source(registered.descriptor, state.generation)
        sink.source.facts.loading = True
        registered.begin(sink.source)
        try:
            restore_facts(sink.source, stored, self._parts.mirror)
        except DamagedValue:
            self._parts.ingest.close_source(sink)
            raise
        self._count_on(sink, state)
        restoring = Restoring(sink.source, self._parts.mirror, self._parts.clock.now(), self._parts.wall_ahead_s)
        self._begun[source] = _Begun(sink, state, restoring)
        if source not in self._parts.registry.sources:
            self._parts.roster.put(sink)  # it may answer as far as it is loaded

    def take(self, source: SourceId, fields: Mapping[bytes, bytes]) -> None:
        """Fields of its map."""
        self._begun[source].restoring.take(fields)

    # -- how ----------------------------------------------------------------------------------------------------------

    async def _finish(self, source: SourceId, last_seen_us: int | None, *, whole: bool) -> Opened:
        alone = self._alone.get(source)
        if alone is not None and (source in self._changed or _knows_more(alone, self._begun[source].state)):
            self._drop(source)
            return Opened(alone, incomplete=True)
        sink, state, restoring = self._begun.pop(source)
        while restoring.finish_slice():  # noqa: ASYNC110  no wait: others run between two slices of work
            await asyncio.sleep(0)
        facts = sink.source.facts
        facts.sequence = state.cursor
        facts.loading = False
        self._parts.ingest.resume(sink.source)
        if not whole:
            log.error(
                "source %s: a part of its map was gone from the store: what is there counts, bound lower",
                source,
                extra=about("source_damaged", source=source),
            )
            facts.shortfalls.add("store")
        if state.cursor is not None:
            self._resume(sink, state.cursor, unpack_facts(state.facts), last_seen_us)
        where = Whereabouts(state.generation, state.copy, state.segments)
        owned = OwnedSource(sink, self._parts.unwritten, where=where, written=state.cursor, facts=state.facts)
        if restoring.is_undated:
            owned.wish = "undated"
        self._parts.roster.put(sink)
        return Opened(owned, incomplete=not whole)

    def _resume(self, sink: SourceSink, cursor: int, stored: StoredFacts, last_seen_us: int | None) -> None:
        """Its subscriber starts where the one before it stopped."""
        facts, clock = sink.source.facts, self._parts.clock
        now = clock.now()
        seen_us = max(stored.seen_us, last_seen_us or 0)
        away_s = max(0.0, (clock.wall_us() - seen_us) / 1e6) if seen_us else NOBODY_LISTENED
        facts.alive_at = facts.proof_at = now - min(away_s, LONG_AGO_S)
        sink.resume = Resume(
            cursor,
            stored.stamp,
            away_s,
            as_of=now,
            suspicions=frozenset(facts.suspicions),  # type: ignore[arg-type]  # words of the port, as stored
            unproven="process_unproven" in facts.doubts,
        )

    async def _state(self, source: SourceId) -> SourceState | None:
        return parse_state(await self._parts.client.fields(self._keys.source(source)))

    def _fresh(
        self, source: SourceId, registered: Registered | None, state: SourceState | None, last_seen_us: int | None
    ) -> Opened | None:
        """Registered or cleared, and no owner took it up: its generation begins here."""
        if registered is None or source in self._alone:
            return self._as_alone(source)
        sink = self._open(registered, None if state is None else state.generation)
        if state is not None and state.cursor is not None:
            try:
                self._go_on_cleared(sink, state, state.cursor, last_seen_us)
            except DamagedValue:
                self._parts.ingest.close_source(sink)
                return self._damaged(source, registered)
        else:
            self._parts.history.note(source, registered_as(registered.descriptor, sink.source.facts.generation))
        if state is not None:
            self._count_on(sink, state)
        self._parts.roster.put(sink)
        return Opened(OwnedSource(sink, self._parts.unwritten))

    def _count_on(self, sink: SourceSink, state: SourceState) -> None:
        """From what owners before counted, as far as they told; what another version told is let go."""
        if state.counts:
            clock = self._parts.clock
            with contextlib.suppress(DamagedValue):
                sink.source.earlier = unpack_counts(state.counts, clock.wall_us(), clock.now()).counts

    def _damaged(self, source: SourceId, registered: Registered | None) -> Opened | None:
        """What the store has of it cannot be read: another generation begins."""
        log.error(
            "source %s: what the store has of it is not in this version's form: begun anew",
            source,
            extra=about("source_damaged", source=source),
        )
        if registered is None or source in self._alone:
            return self._as_alone(source)
        sink = self._open(registered, None)
        happening = Happening(what="forgotten", cause="damaged", generation=sink.source.facts.generation)
        self._parts.history.note(source, happening)
        self._parts.roster.put(sink)
        return Opened(OwnedSource(sink, self._parts.unwritten))

    def _as_alone(self, source: SourceId) -> Opened | None:
        """As it was collected without the store; None where it was not: it is registered no more."""
        self._drop(source)
        return Opened(self._alone[source], incomplete=True) if source in self._alone else None

    def _open(self, registered: Registered, generation: int | None) -> SourceSink:
        self._drop(registered.descriptor.id)
        sink = self._parts.ingest.open_source(registered.descriptor, generation)
        registered.begin(sink.source)
        return sink

    def _go_on_cleared(self, sink: SourceSink, state: SourceState, cursor: int, last_seen_us: int | None) -> None:
        """What was applied is forgotten, as by an owner that is told to: what the engine says behind it counts (P4).

        Raises DamagedValue.
        """
        stored = unpack_facts(state.facts)
        restore_facts(sink.source, stored, self._parts.mirror)
        sink.source.facts.sequence = cursor
        self._parts.ingest.clear(sink, state.generation)
        self._parts.roster.tell_cleared(sink, None, cursor)
        self._resume(sink, cursor, stored, last_seen_us)

    def _drop(self, source: SourceId) -> None:
        begun = self._begun.pop(source, None)
        if begun is None:
            return
        if self._parts.registry.sources.get(source) is begun.sink.source:
            self._parts.roster.drop(source)
        else:
            self._parts.ingest.close_source(begun.sink)

    async def _configure(self) -> None:
        registry = await self._parts.client.fields(self._keys.sources)
        known = self._read(registry)
        is_first = self._number not in self._parts.told_configured
        changed = await put_configured(self._parts, self._keys, self._number, registry, self._alone)
        self._changed |= changed
        for source in changed:
            sink = self._alone[source].sink
            self._parts.history.note(source, registered_as(sink.descriptor, sink.source.facts.generation))
        if is_first:  # later on they have time: whoever names them may be about to come back
            for source in await remove_unnamed(self._parts, self._keys, known.values()):
                self._parts.history.note(source, Happening(what="removed", cause="not_configured"))

    def _read(self, registry: Mapping[bytes, bytes]) -> dict[SourceId, Registered]:
        """Registrations by source. Those that cannot be read are left out, and told of once."""
        found: dict[SourceId, Registered] = {}
        unreadable: set[bytes] = set()
        for name, packed in registry.items():
            try:
                registered = unpack_registration(name, packed)
            except DamagedValue:
                unreadable.add(name)
            else:
                found[registered.descriptor.id] = registered
        for name in unreadable - self._unreadable:
            log.error(
                "source %r: its registration is not in this version's form: left out",
                name,
                extra=about("source_damaged"),
            )
        self._unreadable |= unreadable
        return found


def _knows_more(alone: OwnedSource, state: SourceState) -> bool:
    """Whether what was collected without the store is worth more than what the store has of before.

    All of a life of the engine is; so is any of it where nothing can be replayed, for after the time between the
    store's knowledge could not be continued.
    """
    facts = alone.source.facts
    if facts.generation <= state.generation or facts.sequence is None:
        return False
    return facts.complete or alone.sink.descriptor.replay_endpoint is None


class _Begun(NamedTuple):
    sink: SourceSink
    state: SourceState
    restoring: Restoring


async def _last_seen(client: Client, keys: PartitionKeys) -> dict[SourceId, int]:
    """When the owner before saw each engine connected, in microseconds of wall time, as its last tick tells."""
    for _, fields in await client.last_entries(keys.log, LOOKED_BACK):
        try:
            entry = decode_entry(fields[b"e"]) if b"e" in fields else None
            if isinstance(entry, Ticked):
                return {source_id(each.source): entry.wall_us - each.silent_ms * 1000 for each in entry.sources}
        except DamagedValue:
            continue
    return {}
