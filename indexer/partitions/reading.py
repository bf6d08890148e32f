"""One reading of a source's map, beside the one that answers: fields and changes become a source that takes its place.

    wanted       nothing is read yet: what the journal tells now will be in the store when it is
    reading      what the journal tells may or may not be in what is read: it waits
    catching_up  read whole; changes are applied up to where the journal was at the end of reading, then it may stand

Applied is absolute, so that a change which was in what was read does no harm, but until all of them are applied the
presence may be older than what was read in one place and newer in another: nobody sees it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.index.source import SourceIndex
from indexer.store.facts import restore_facts, unpack_facts
from indexer.store.maps import Showing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.index.mirror import Mirror
    from indexer.model import Descriptor, SourceId
    from indexer.store.entries import Position, SourceChange
    from indexer.store.loading import SourceState

Stage = Literal["wanted", "reading", "catching_up"]


CHANGE_BYTES: Final = 400
"""What a change takes in memory beside its content."""


class Place(NamedTuple):
    """A copy of a map; later ones are greater."""

    generation: int
    copy: int


NOWHERE = Place(0, 0)


class Held:
    """Bytes of changes that wait, over all readings of a partition."""

    def __init__(self) -> None:
        self.bytes = 0


def is_before(one: int | None, other: int | None) -> bool:
    """Of two sequences, None being before the first batch."""
    return other is not None and (one is None or one < other)


class Superseded(Exception):
    """What is being read is not wanted any more."""


class Reading:
    """Implements `rebuild.Shelf` for one source."""

    def __init__(self, descriptor: Descriptor, mirror: Mirror, held: Held, least: Place) -> None:
        self.stage: Stage = "wanted"
        self.least = least
        """The journal says that this copy stands: an older one is of no use."""
        self.place = NOWHERE
        """The copy that is read, or was."""
        self.loaded: SourceIndex | None = None
        self.until: Position | None = None
        """While catching up: where the journal ended when the map was read."""
        self.is_mixed = False
        """A change was entered that may be older than what was read: at the same batch, and perhaps of before a copy
        was laid that has more of that batch."""
        self._cursor: int | None = None
        self._least_at_start = least
        self._waiting: list[SourceChange] = []
        self._waiting_bytes = 0
        self._held = held
        self._descriptor = descriptor
        self._mirror = mirror
        self._showing: Showing | None = None
        self._ended = False

    def start(self) -> None:
        """Its map is about to be read."""
        self.stage, self._least_at_start = "reading", self.least

    @property
    def is_outdated(self) -> bool:
        """Whether the journal told of a later copy since it was started."""
        return self.least > self._least_at_start

    def begin(self, source: SourceId, descriptor: bytes, state: SourceState) -> None:  # noqa: ARG002  the port's form
        """What was read before is void."""
        if self._ended:
            raise Superseded
        self._discard()
        loaded = SourceIndex(self._descriptor, self._mirror, generation=state.generation, orphans_max=0)
        self.loaded, self.place = loaded, Place(state.generation, state.copy)
        loaded.shown = True
        restore_facts(loaded, unpack_facts(state.facts), self._mirror)
        loaded.facts.sequence = self._cursor = state.cursor
        self.is_mixed = False
        self._showing = Showing(self._mirror, loaded.slot, loaded.lane_table)

    def take(self, source: SourceId, fields: Mapping[bytes, bytes]) -> None:  # noqa: ARG002  the port's form
        """Some fields of its map."""
        if self._ended or self._showing is None:
            raise Superseded
        self._showing.take(fields)

    def wait(self, change: SourceChange) -> None:
        """Keep a change until the map is read."""
        size = CHANGE_BYTES + len(change.token_hashes) + len(change.lanes) + len(change.facts)
        self._waiting.append(change)
        self._waiting_bytes += size
        self._held.bytes += size

    def needs(self, change: SourceChange) -> bool:
        """Whether the map may have been read without this change: not where the source's state named a later batch."""
        if is_before(change.sequence, self._cursor):
            return False
        self.is_mixed = self.is_mixed or change.sequence == self._cursor
        return True

    def take_waiting(self) -> list[SourceChange]:
        """What waited."""
        waiting, self._waiting = self._waiting, []
        self._held.bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        return waiting

    def end(self) -> None:
        """Not wanted any more: what was read is given back."""
        self._ended = True
        self._discard()
        self.take_waiting()

    def hand_over(self) -> SourceIndex:
        """What was read, for the one that answers to stand as it does."""
        assert self.loaded is not None  # noqa: S101  the caller looked at the stage
        loaded, self.loaded, self._showing, self._ended = self.loaded, None, None, True
        return loaded

    def _discard(self) -> None:
        if self.loaded is not None:
            self.loaded.leave(self._mirror)
        self.loaded = self._showing = None
