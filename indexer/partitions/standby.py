"""Which engines this replica listens to without applying: those of partitions that it may have to take. On the loop.

A listener is connected before it is needed: beside the owner, so that its death loses nothing, and before a partition
is handed over here. What the owner has written is dropped from what is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from indexer.index.source import SourceIndex
    from indexer.model import Descriptor, SourceId
    from indexer.partitions.parts import Parts

SETTLE_S: Final = 4.0
"""An engine to which no connection comes about in so long is not there: it keeps nobody from taking its partition."""


class Standby:
    """`look` again and again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.wanted: frozenset[int] = frozenset()
        """The partitions of the last look."""
        self._seen_changes = -1
        self._listened: dict[SourceId, tuple[Descriptor, float]] = {}
        """Whom it listens to, and since when."""

    def look(self, wanted: frozenset[int]) -> Generator[None, None, None]:
        """Listen to the engines of these partitions, and to no others. Nothing where nothing changed."""
        changes = self._parts.roster.changes
        if (wanted, changes) == (self.wanted, self._seen_changes):
            return
        self.wanted, self._seen_changes = wanted, changes
        for key in list(self._listened):
            if self._descriptor(key) != self._listened[key][0]:
                self._end(key)
            yield
        listeners = self._parts.roster.fleet.listeners()  # one that went and came again is not among them any more
        for key in list(self._parts.registry.sources):
            descriptor = self._descriptor(key)
            if descriptor is not None and (key not in self._listened or key not in listeners):
                self._parts.roster.fleet.listen(descriptor)
                self._listened[key] = descriptor, self._parts.clock.now()
            yield

    def _descriptor(self, key: SourceId) -> Descriptor | None:
        """Of a source that is to be listened to."""
        source = self._parts.registry.sources.get(key)
        if source is None or source.descriptor.endpoint is None or self._parts.partition_of(key) not in self.wanted:
            return None
        return source.descriptor

    def _end(self, key: SourceId) -> None:
        del self._listened[key]
        sink = self._parts.roster.sink(key)
        if sink is None or sink.followed:  # else it is this replica's own by now: the listener became its subscriber
            self._parts.roster.fleet.unlisten(key)

    def is_ready(self, sources: Iterable[SourceId]) -> bool:
        """Whether each could be gone on with as on an unbroken connection, as far as its engine is there."""
        listeners, now = self._parts.roster.fleet.listeners(), self._parts.clock.now()
        for key in sources:
            source, listened = self._parts.registry.sources.get(key), self._listened.get(key)
            if source is None or source.descriptor.endpoint is None:
                continue
            if listened is None:
                return False
            listener = listeners.get(key)
            if (listener is None or not listener.joins) and now - listened[1] < SETTLE_S:
                return False
        return True

    def vouch(self) -> Generator[None, None, None]:
        """An owner of whom nothing is heard, as while the store is away, says nothing of its engines; they do here.

        One that goes on speaking on an unbroken connection is the process whose blocks are known: they are behind
        (`stale`), and are not taken for gone.
        """
        listeners, parts = self._parts.roster.fleet.listeners(), self._parts
        for key in list(self._listened):
            source, listener = parts.registry.sources.get(key), listeners.get(key)
            if source is not None and listener is not None and listener.joins and listener.heard_at is not None:
                facts, alive_at = source.facts, listener.heard_at - parts.options.stale_after_s
                if facts.alive_at is not None and facts.alive_at < alive_at:
                    facts.alive_at = alive_at
                    parts.ingest.touched(source)
            yield

    def note(self, source: SourceIndex) -> None:
        """The owner has written so far, or spoke of its connection. Called with every change of a followed source."""
        key = source.descriptor.id
        if key in self._listened:
            facts = source.facts
            alive_at = facts.alive_at if facts.connected else None
            self._parts.roster.fleet.note(key, facts.sequence, facts.stamp, alive_at)
