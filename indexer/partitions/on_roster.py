"""Where followed sources stand: the process's registry, beside those that this replica owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.index.reverse_map import ReverseMap
    from indexer.index.source import SourceIndex
    from indexer.model import Descriptor, SourceId
    from indexer.partitions.parts import Parts
    from indexer.store.registered import Registered


class OnRoster:
    """Implements `Shelves`. `heard` is told what that one is."""

    def __init__(self, parts: Parts, heard: Callable[[SourceIndex], None]) -> None:
        self._parts = parts
        self._heard = heard

    def enter(self, registered: Registered, generation: int) -> SourceIndex:
        """Listed, without a subscriber, in place of one of the same identity."""
        self._parts.registry.check(registered.descriptor)
        sink = self._parts.ingest.open_source(registered.descriptor, generation)
        sink.followed = True
        sink.source.changes = None  # nothing of it is written here
        registered.begin(sink.source)
        self._parts.roster.put(sink)
        return sink.source

    def redescribe(self, source: SourceIndex, descriptor: Descriptor) -> None:
        """It is called otherwise, or serves another model."""
        self._parts.roster.redescribe(source, descriptor)

    def leave(self, source: SourceId) -> None:
        """It is gone."""
        self._parts.roster.drop(source)

    def changed(self, source: SourceIndex) -> None:
        """A fact of it changed."""
        self._parts.ingest.touched(source)

    def heard(self, source: SourceIndex) -> None:
        """Its owner said how it is."""
        self._heard(source)

    def reshaped(self, source: SourceIndex) -> None:
        """It got another slot, block size or adapter."""
        self._parts.ingest.reshaped(source)

    def stands(self, source: SourceIndex) -> None:
        """Until its owner says how it is, it is stale; where there is no owner, it is down in the end."""
        facts = source.facts
        if facts.alive_at is None:
            facts.alive_at = self._parts.clock.now() - self._parts.options.stale_after_s

    def bury(self, left: ReverseMap) -> None:
        """A map that is no longer used."""
        self._parts.ingest.bury(left)

    def clears(self, nonce: bytes) -> None:
        """Counted when it was given, where that was here."""
        if not self._parts.nonces.are_of(nonce):
            self._parts.roster.clears.note()

    def passes_over(self, tenant: str, model: str | None) -> None:
        """A source of that model is registered, and not followed here."""
        self._parts.registry.note_elsewhere(tenant, model, 1)

    def passes_over_no_more(self, tenant: str, model: str | None) -> None:
        """One of those is gone."""
        self._parts.registry.note_elsewhere(tenant, model, -1)

    def get(self, source: SourceId) -> SourceIndex | None:
        """As it stands, whoever entered it."""
        return self._parts.registry.sources.get(source)
