"""One followed source: what the journal and commands mean for it. Does no I/O; time is given.

Two things stand for a source: the one in the registry, which answers, and, while its map is read (anew), a reading
beside it, which takes its place once it is whole. Meanwhile the old one answers as `stale`, or as `syncing` where there
was none. A generation that is known to have ended is never scored, whatever is still on its way (P4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.index.states import NEVER
from indexer.partitions.reading import NOWHERE, Place, Reading, is_before
from indexer.store.entries import HASH_BYTES, presence_pieces
from indexer.store.facts import TickFacts, restore_facts, same_facts, unpack_facts
from indexer.store.maps import show_change

if TYPE_CHECKING:
    from collections.abc import Generator

    from indexer.index.mirror import Mirror
    from indexer.index.reverse_map import ReverseMap
    from indexer.index.source import SourceIndex
    from indexer.model import SourceId
    from indexer.partitions.reading import Held
    from indexer.partitions.shelves import Shelves
    from indexer.store.entries import Position, SourceChange, SourceTick
    from indexer.store.registered import Registered

PIECE: Final = 512
"""Token hashes of a change that are entered in one step: a third of a millisecond."""
DISAGREED_S, DISAGREED_MAX_S = 0.25, 16.0
"""A map that is read and does not agree with its owner's ticks is read again after so long, doubled each time."""
SEEN_UP_S: Final = 1.0
"""A tick that comes later than this after the one before may end a state."""


class FollowedSource:
    """`standing` is the source in the registry."""

    def __init__(self, standing: SourceIndex, registered: Registered, mirror: Mirror, shelves: Shelves) -> None:
        self.standing = standing
        self.registered = registered
        self.reading: Reading | None = None
        self.whole = False
        """What stands is what the journal told so far. Else it is behind, or nothing is known."""
        self.missing_since: float | None = None
        """The registry no longer names it, and no command took it out."""
        self.ticked_at = float("-inf")
        """When its owner last spoke of it."""
        self.removal_told = False
        """A command took it out, if the registry says so, too."""
        self.refused = 0
        """A generation that the store went back to, older than the one known here: it counts once its owner speaks of
        it, who knows what its engine is."""
        self.due_at = 0.0
        """When to try again to read it, where that came to nothing."""
        self.tries = 0
        self.gone = False
        self._disagreed = 0
        self._vouched = False
        self._place = NOWHERE
        self._facts = b""
        """Those that were learnt last."""
        self._mirror = mirror
        self._shelves = shelves
        standing.changes = None  # this replica owned it before, perhaps
        standing.facts.lease_until = NEVER
        self.mark()

    @property
    def id(self) -> SourceId:
        """Who it is."""
        return self.registered.descriptor.id

    @property
    def generation(self) -> int:
        """The generation that stands."""
        return self.standing.facts.generation

    # -- reading its map -----------------------------------------------------------------------------------------------

    def want(self, least: Place, held: Held) -> Reading:
        """Its map is to be read (anew); what was being read is not used."""
        self._end_reading()
        self.whole = False
        self.reading = Reading(self.registered.descriptor, self._mirror, held, least)
        self.mark()
        return self.reading

    def give_up(self, due_at: float) -> None:
        """Reading came to nothing for now. What stands, stands as it is; the journal may tell of a copy before then."""
        self._end_reading()
        self.tries += 1
        self.due_at = due_at
        self.mark()

    def refuses(self, reading: Reading) -> bool:
        """Whether what was read is of a generation that ended: the store went back."""
        if self._is_current(reading.place.generation):
            return False
        self.refused = reading.place.generation
        return True

    @property
    def is_catching_up(self) -> bool:
        """Whether a map is read, and the journal not yet entered as far."""
        return self.reading is not None and self.reading.stage == "catching_up"

    def catch_up(self, reading: Reading, until: Position) -> Generator[None, None, bool]:
        """The map is read whole: enter what the journal told meanwhile. False: what was read is of no use by now."""
        for change in reading.take_waiting():
            yield from self._enter(change, reading)
            if self.reading is not reading:
                return False
        if reading.place < reading.least:
            return False
        reading.stage, reading.until = "catching_up", until
        return True

    def stand_if_caught_up(self, position: Position) -> bool:
        """What was read takes its place, if the journal is applied as far as that may contain of it."""
        reading = self.reading
        if reading is None or reading.until is None or position < reading.until:
            return False
        loaded = reading.hand_over()
        self._place = reading.place
        self.reading, self.whole, self.tries = None, True, 0
        self.refused, self._vouched, self._facts = 0, False, b""
        self._bury(self.standing.stand_as(loaded, self._mirror))
        self.registered.tell(self.standing.facts)
        self.mark()
        self._shelves.stands(self.standing)
        self._shelves.reshaped(self.standing)
        return True

    # -- what commands and the journal tell ----------------------------------------------------------------------------

    def end_before(self, generation: int) -> None:
        """A later generation is known: nothing of before counts (P4), and of that one only what is being read."""
        if generation <= self.generation:
            return
        if self.reading is not None and NOWHERE < self.reading.place < Place(generation, 0):
            self._end_reading()
        self._begin(generation, whole=False)

    def _begin(self, generation: int, *, whole: bool) -> None:
        self.whole, self._facts, self._place, self.due_at = whole, b"", Place(generation, 0), 0.0
        self.refused, self._vouched = 0, False
        self._bury(self.standing.begin_generation(self._mirror, generation, same_engine=False))
        self.mark()
        self._shelves.reshaped(self.standing)

    def turned(self, generation: int) -> None:
        """Its owner began a generation, empty: from here on the journal tells all that comes to be held in it."""
        if generation < self.generation or (generation == self.generation and self.whole):
            return  # in flight when another was begun, or read already
        if self.reading is not None and self.reading.place.generation >= generation:
            self.end_before(generation)
        else:
            self._end_reading()
            self._begin(generation, whole=True)

    def reasserted(self, place: Place) -> bool:
        """Its owner laid its map anew. True where it is to be read."""
        if not self._is_of_now(place.generation):
            return False
        self.end_before(place.generation)
        if self.whole and self._place >= place:
            return False
        reading = self.reading
        if reading is None:
            return True
        reading.least = max(reading.least, place)
        reading.take_waiting()  # the new copy has what those did, and what came behind it without being told
        return reading.stage == "catching_up" and (reading.place < place or reading.is_mixed)

    def change(self, change: SourceChange) -> Generator[None, None, bool]:
        """What a run of batches did. True where its map is to be read."""
        if not self._is_of_now(change.generation):
            return False
        self.end_before(change.generation)
        reading = self.reading
        if reading is None:
            if not self.whole:
                return True
            yield from self._enter(change, None)
            return False
        if reading.stage == "reading":
            reading.wait(change)
        elif reading.stage == "catching_up":
            yield from self._enter(change, reading)
        return self.reading is reading and reading.stage == "catching_up" and reading.place < reading.least

    def _is_of_now(self, generation: int) -> bool:
        """False for what was in flight when a later generation began."""
        if generation == self.refused != 0:
            self._vouched = True
        return self._is_current(generation)

    def _is_current(self, generation: int) -> bool:
        return generation >= (self.refused if self._vouched else self.generation)

    def _enter(self, change: SourceChange, reading: Reading | None) -> Generator[None, None, None]:
        """Facts first: they name the lanes. Raises DamagedValue."""
        source = self._source_of(change, reading)
        if source is None:
            return
        shape = source.shape
        self._begin_entering(source, change)
        for nth, piece in enumerate(presence_pieces(change, PIECE)):
            if nth:
                yield
                if not self._goes_on(change, reading):
                    return
            source.shown = True
            show_change(self._mirror, source.slot, source.lane_table, piece)
        if change.sequence is not None:
            source.facts.sequence = change.sequence
        source.facts.in_part = False
        if reading is None:
            self._shelves.changed(source)
            if source.shape != shape:
                self._shelves.reshaped(source)

    def _begin_entering(self, source: SourceIndex, change: SourceChange) -> None:
        if source is self.standing and len(change.token_hashes) > HASH_BYTES * PIECE:
            source.facts.in_part = True  # others have turns before all of it is entered
            self._shelves.changed(source)
        self._learn(source, change.facts)

    def _goes_on(self, change: SourceChange, reading: Reading | None) -> bool:
        """Whether a change that is entered in part is still of what it was begun for."""
        if self.gone or self.reading is not reading:
            return False
        return reading is not None or change.generation == self.generation

    def _source_of(self, change: SourceChange, reading: Reading | None) -> SourceIndex | None:
        """Where a change goes; None where its generation is another, or the map was read with it."""
        if reading is None:
            return self.standing if change.generation == self.generation else None
        if change.generation > reading.place.generation:
            reading.least = max(reading.least, Place(change.generation, 0))
        return reading.loaded if change.generation == reading.place.generation and reading.needs(change) else None

    def _learn(self, source: SourceIndex, facts: bytes) -> None:
        """Facts that know fewer lanes than we do are older than those that were read with the map."""
        if not facts:
            return  # nothing new
        stored = unpack_facts(facts)
        if source is self.standing and same_facts(facts, self._facts):
            source.facts.stamp = stored.stamp
        elif len(stored.lasting.lanes) >= len(source.lane_table.lanes):
            restore_facts(source, stored, self._mirror)
            self._facts = facts if source is self.standing else b""

    # -- what ticks tell -----------------------------------------------------------------------------------------------

    def tick(self, tick: SourceTick, heard_at: float) -> bool:
        """How its stream is doing, as of `heard_at`. True where its map is to be read. Raises DamagedValue."""
        told = TickFacts.unpack(tick.facts)
        facts = self.standing.facts
        alive_at = heard_at - tick.silent_ms / 1_000
        before = facts.connected, facts.syncing, facts.suspicions, facts.sequence
        news = facts.alive_at is None or abs(alive_at - facts.alive_at) > SEEN_UP_S
        facts.connected, facts.syncing, facts.suspicions = tick.connected, told.syncing, set(told.suspicions)
        facts.alive_at, self.ticked_at = alive_at, heard_at
        self.standing.told_holdings = told.holdings
        facts.message_at = None if told.message_age_ms is None else heard_at - told.message_age_ms / 1_000
        self._prove(tick, told, heard_at)
        if news or before != (facts.connected, facts.syncing, facts.suspicions, facts.sequence):
            self._shelves.changed(self.standing)
        self._shelves.heard(self.standing)
        self.end_before(tick.generation)
        self._is_of_now(tick.generation)
        return self._vouched and self.reading is None

    def _prove(self, tick: SourceTick, told: TickFacts, heard_at: float) -> None:
        """A tick stands in the journal behind all that it speaks of: only where that is applied here it proves much."""
        facts = self.standing.facts
        if not self.whole or tick.generation != facts.generation:
            return
        if is_before(facts.sequence, tick.sequence):  # every batch is told before a tick names it: one is missing here
            self.whole, self.due_at = False, heard_at + min(DISAGREED_S * 2**self._disagreed, DISAGREED_MAX_S)
            self._disagreed += 1
            self.mark()
            return
        self._disagreed = 0
        facts.proof_at = None if told.proof_age_ms is None else heard_at - told.proof_age_ms / 1_000

    # -- states --------------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """What stands is not whole: shown in its state (index/states.py)."""
        facts = self.standing.facts
        holds = self.standing.shown or facts.sequence is not None
        facts.loading = self.reading is not None and not holds
        facts.reloading = not self.whole and holds
        self._shelves.changed(self.standing)

    def register(self, registered: Registered) -> None:
        """The same source: cordoned or not, ready or not."""
        self.registered = registered
        registered.begin(self.standing)
        self._shelves.changed(self.standing)

    def leave(self) -> None:
        """Nobody follows it any more."""
        self.gone = True
        self._end_reading()

    def _end_reading(self) -> None:
        if self.reading is not None:
            self.reading.end()
            self.reading = None

    def _bury(self, left: ReverseMap) -> None:
        if left.lanes or left.waiting:
            self._shelves.bury(left)
