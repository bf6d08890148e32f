"""One source of a partition that this process owns: where its durable map stands, and what is not written yet. Pure.

What changed is encoded after each batch, as absolute values: what changes again before it is written replaces what
waits, so that a slow store makes runs longer and never queues. A run is what changed up to one batch, whole: a map that
is ahead of its cursor would count copies twice when the batches behind the cursor come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.index.changes import Changes
from indexer.store.entries import SourceChange, pack_presence, pack_presence_in_steps
from indexer.store.facts import pack_facts, same_facts, seen_us
from indexer.store.layout import SEGMENT_FIELDS, source_name
from indexer.store.maps import encode_changes, encode_presence
from indexer.store.segments import packed_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from indexer.happenings import LossCause
    from indexer.index.mirror import Mirror
    from indexer.ingest import SourceSink
    from indexer.partitions.parts import Unwritten
    from indexer.ports import Clock
    from indexer.store.outcomes import Whereabouts
    from indexer.store.segments import PackedSegment

FIELD_BYTES: Final = 160
"""What a changed field takes while it waits, with its dict entry."""
PRESENCE_BYTES: Final = 120
FIELDS_MAX: Final = 20_000
"""Of one run, which is one call: the store needs 25 ms for it. More, as waits after an outage, would in the end take
longer than a call may last, and could never be written; a copy is laid in calls of a thousand."""
FULL_NUM, FULL_DEN = 3, 4
"""A copy whose segments are so full on average is laid anew with more."""

Wish = Literal["lost", "outgrown", "undated"]
"""Why a whole new copy is wanted: the store does not have what it should, the copy has too few segments, or entries do
not say when their time to live began."""


class Run(NamedTuple):
    """What is to be written in one step."""

    fields: dict[bytes, bytes | None]
    presence: dict[int, int]
    generation: int
    sequence: int | None
    facts: bytes
    since: float | None

    @property
    def changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """As the journal takes them."""
        return self.fields.items()

    def told(self, name: bytes) -> SourceChange:
        """As followers are told."""
        return self._told(name, *pack_presence(list(self.presence.items())))

    def made_ready(
        self, name: bytes, segments: Sequence[bytes]
    ) -> Generator[None, None, tuple[SourceChange, list[PackedSegment]]]:
        """Both of a run of many fields, as after an outage: a millisecond's work from step to step."""
        told = self._told(name, *(yield from pack_presence_in_steps(self.presence)))
        return told, (yield from packed_in_steps(self.fields, segments))

    def _told(self, name: bytes, hashes: bytes, lanes: bytes) -> SourceChange:
        return SourceChange(name, self.generation, self.sequence, self.facts, hashes, lanes)


class OwnedSource:
    """`where` is None until a copy of its present generation is in the store.

    `unwritten` counts what waits, over all that share it.
    """

    def __init__(
        self,
        sink: SourceSink,
        unwritten: Unwritten,
        *,
        where: Whereabouts | None = None,
        written: int | None = None,
        facts: bytes = b"",
    ) -> None:
        self._unwritten = unwritten
        self._counted = 0
        self.sink = sink
        self.source = sink.source
        self.id = sink.descriptor.id
        self.name = source_name(self.id)
        self.where = where
        self.written = written
        """The cursor as it stands in the store."""
        self.facts = facts
        """As they stand in the store."""
        self.wish: Wish | None = None
        self.lost_by: LossCause | None = None
        """Why the store does not have it, since that was so first; None where it has."""
        self.rests_until = 0.0
        """Something of another kind lies at one of its keys: not tried again before."""
        self.late: dict[bytes, bytes | None] | None = None
        """While a new copy is laid: what changed since that began."""
        self._fields: dict[bytes, bytes | None] = {}
        self._presence: dict[int, int] = {}
        self._generation = self.source.facts.generation
        self._since: float | None = None

    # -- what is not written yet --------------------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """What waits, about."""
        late = 0 if self.late is None else len(self.late)
        return (len(self._fields) + late) * FIELD_BYTES + len(self._presence) * PRESENCE_BYTES

    def _count(self) -> None:
        """What waits is another number of bytes now."""
        waiting = self.waiting_bytes
        self._unwritten.bytes += waiting - self._counted
        self._counted = waiting

    @property
    def is_too_much(self) -> bool:
        """Whether more waits than one call may hold."""
        return len(self._fields) > FIELDS_MAX or len(self._presence) > FIELDS_MAX

    @property
    def is_written(self) -> bool:
        """Whether the store has all of it, up to its newest batch."""
        is_whole = self.wish != "lost" and not self.wants_turn and not self._fields
        return is_whole and self.written == self.source.facts.sequence

    def unwritten_s(self, now: float) -> float:
        """For how long something of it waits, if only to be told that nothing changed; 0 where all is written."""
        return 0.0 if self._since is None else now - self._since

    def take_in(self, mirror: Mirror, now: float, wall_ahead_s: float) -> None:
        """After a batch, or whatever else changed something: encode it while the map is at that batch."""
        source = self.source
        since = now if self._since is None else self._since
        if source.facts.generation != self._generation:
            self._begin(source.facts.generation)
        self._since = since  # also where no field changes: a generation, a cursor or a doubt has to be written as well
        changes = source.changes
        if not changes:
            return
        source.changes = Changes()
        if self.wish == "lost" and self.late is None:  # a whole copy will be laid: it holds all of this
            return
        fields = encode_changes(source, changes, mirror, wall_ahead_s)
        if self.late is not None:
            self.late.update(fields)
        if self.wish != "lost":
            self._fields.update(fields)
            self._presence.update(encode_presence(source, mirror, changes.tokens))
        self._count()

    def _begin(self, generation: int) -> None:
        """What waited is of a generation that is over; nothing of it is wanted any more."""
        self._generation = generation
        self.drop()

    def drop(self) -> None:
        """It is no longer ours: nothing of it is to be written."""
        self.late = None
        self.wish = None  # it begins empty in the store, too, whatever was there
        self.lost_by = None
        self._forget()

    def _forget(self) -> None:
        """Drop what waits."""
        self._fields, self._presence, self._since = {}, {}, None
        self._count()

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def wants_turn(self) -> bool:
        """Whether its generation is not begun in the store."""
        return self.where is None or self.where.generation != self.source.facts.generation

    def take(self, clock: Clock) -> Run | None:
        """What is to be written now; None where all is. Only between two batches, and where its copy stands."""
        source = self.source
        facts = pack_facts(source, seen_us(source, clock))
        if not self._fields and source.facts.sequence == self.written and same_facts(facts, self.facts):
            self._since = None
            return None
        run = Run(self._fields, self._presence, self._generation, source.facts.sequence, facts, self._since)
        self._forget()
        return run

    def put_back(self, run: Run) -> None:
        """It was not written: it waits again, under what changed since."""
        if run.generation != self._generation or self.wish == "lost":
            return
        self._fields = {**run.fields, **self._fields}
        self._presence = {**run.presence, **self._presence}
        self._since = run.since
        self._count()

    def wrote(self, run: Run) -> None:
        """It is in the store."""
        self.written = run.sequence
        self.facts = run.facts
        where = self.where
        if where is not None and self.wish is None:
            full = where.segments * SEGMENT_FIELDS * FULL_NUM // FULL_DEN
            if self.source.pairs + self.source.map.waiting > full:
                self.wish = "outgrown"

    def collect(self) -> None:
        """A new copy is laid: what changes from now on has to go on top of it."""
        self.late = {}

    def stop_collecting(self) -> None:
        """No new copy is laid any more."""
        self.late = None
        self._count()

    def lose(self, cause: LossCause = "store_lost") -> None:
        """The store does not have what it should, or too much waits: a whole copy will be laid."""
        self.lost_by = self.lost_by or cause
        since = self._since
        self.wish = "lost"
        self._forget()
        self._since = since
