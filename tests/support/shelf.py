"""A mirror made of what a loader reads and a follower is told: token hash → lanes of each source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.entries import Changed, Entry, Moved, Reasserted, Ticked, Turned, unpack_presence
from indexer.store.layout import source_id
from indexer.store.segments import decode_field, decode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from indexer.model import SourceId
    from indexer.store.loading import SourceState

Presence = dict[int, int]


class RecordingShelf:
    """Lanes are tiers here. `on_begin` lets a test act in the middle of loading."""

    def __init__(self, on_begin: Callable[[SourceId], None] | None = None) -> None:
        self.held: dict[SourceId, Presence] = {}
        self.states: dict[SourceId, SourceState] = {}
        self.descriptors: dict[SourceId, bytes] = {}
        self.begun: list[SourceId] = []
        self.reasserted: list[SourceId] = []
        self._on_begin = on_begin or (lambda _: None)

    def begin(self, source: SourceId, descriptor: bytes, state: SourceState) -> None:
        self.begun.append(source)
        self.held[source] = {}
        self.states[source] = state
        self.descriptors[source] = descriptor
        self._on_begin(source)

    def take(self, source: SourceId, fields: Mapping[bytes, bytes]) -> None:
        held = self.held[source]
        for raw, data in fields.items():
            value = decode_value(decode_field(raw), data)
            assert isinstance(value, tuple)
            for token_hash, copies, *_ in value:
                for tier, _ in copies:
                    held[token_hash] = held.get(token_hash, 0) | 1 << tier

    def apply(self, entry: Entry) -> None:
        """What a mirror does with the entries of a journal."""
        match entry:
            case Changed(changes):
                for change in changes:
                    held = self.held.setdefault(source_id(change.source), {})
                    for token_hash, lanes in unpack_presence(change):
                        held.pop(token_hash, None)
                        if lanes:
                            held[token_hash] = lanes
            case Turned(source, _):
                self.held[source_id(source)] = {}
            case Reasserted(source, _, _):
                self.reasserted.append(source_id(source))
            case Moved() | Ticked():
                pass
