"""A followed partition without a store: a test hands it the journal, the commands and what is read of maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.states import StateLimits, bound_of, state_of
from indexer.partitions.followed_partition import FollowedPartition
from indexer.store.entries import (
    Changed,
    Entry,
    Position,
    SourceChange,
    SourceTick,
    Ticked,
    encode_entry,
    pack_presence,
)
from indexer.store.facts import TickFacts
from indexer.store.layout import PartitionKeys, source_name, tags
from indexer.store.loading import SourceState
from indexer.store.rebuild import Survey
from indexer.store.registered import Registered, pack_registered
from indexer.store.segments import Field, Placed, encode_field, encode_value
from tests.support.following import PlainShelves
from tests.support.hand_owner import FACTS, TIERS, descriptor_of
from tests.support.owning import POD
from tests.support.steps import done

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.index.source import SourceIndex
    from indexer.model import Bound, SourceId
    from indexer.model import SourceState as State
    from indexer.partitions.followed import FollowedSource
    from indexer.partitions.reading import Reading
    from indexer.store.commands import Verb

NOW: Final = 1_000.0
NEVER_DUE: Final = 1e9
EPOCH: Final = 5
FIRST: Final = Position(EPOCH, 1)


def registry_of(*sources: SourceId) -> dict[bytes, bytes]:
    """A registry of the store that names these."""
    return {source_name(source): registration(source) for source in sources}


def registration(source: SourceId, *, cordoned: bool = False, model: str = "m", address: str | None = None) -> bytes:
    """A registration as the store has it."""
    descriptor = msgspec.structs.replace(descriptor_of(source), model=model, address=address)
    return pack_registered(Registered(descriptor, cordoned))


def fields_of(held: Mapping[int, int]) -> dict[bytes, bytes]:
    """Fields of a map; the engine hash of each token hash is the same number."""
    return {encode_field(Field(token, 0)): encode_value((_placed(token, lanes),)) for token, lanes in held.items()}


def _placed(token_hash: int, lanes: int) -> Placed:
    return Placed(token_hash, tuple((tier, 1) for lane, tier in enumerate(TIERS) if lanes >> lane & 1))


class Fed:
    """`now` is the moment of all that is told; `models` those whose sources are followed, None: all."""

    def __init__(self, models: frozenset[str] | None = None) -> None:
        self.mirror = Mirror()
        self.registry = Registry()
        self.shelves = PlainShelves(self.registry, self.mirror)
        self.partition = FollowedPartition(3, PartitionKeys("kvi", tags(16)[3]), self.shelves, self.mirror, models)
        self.now = NOW
        self._commands = 0

    # -- what is told --------------------------------------------------------------------------------------------------

    def begin(self, *sources: SourceId, position: Position = FIRST) -> None:
        """Where the partition stands, with these registered. What is asked to be read is forgotten: see `reading`."""
        done(self.partition.begin(Survey(position, b"0-0", registry_of(*sources)), self.now))
        self.partition.sources.take_wanted()

    def hear(self, entry: Entry) -> None:
        """The next entry of the journal."""
        self.hear_raw(str(self.partition.position.next).encode(), {b"e": encode_entry(entry)})

    def hear_raw(self, entry_id: bytes, fields: dict[bytes, bytes]) -> None:
        """An entry as the stream has it."""
        done(self.partition.hear([(entry_id, fields)], self.now))

    def change(
        self,
        generation: int,
        sequence: int | None,
        held: Mapping[int, int],
        *,
        facts: bytes = FACTS,
        of: SourceId = POD,
    ) -> None:
        """A run of batches: token hash → lanes from now on."""
        hashes, lanes = pack_presence(list(held.items()))
        self.hear(Changed([SourceChange(source_name(of), generation, sequence, facts, hashes, lanes)]))

    def tick(
        self,
        generation: int,
        sequence: int | None,
        *,
        silent_ms: int = 0,
        connected: bool = True,
        syncing: bool = False,
        proof_age_ms: int | None = 0,
        suspicions: tuple[str, ...] = (),
        of: SourceId = POD,
    ) -> None:
        """The owner lives, and so does this source."""
        facts = TickFacts(syncing, proof_age_ms, proof_age_ms, list(suspicions)).pack()
        self.hear(Ticked(1, [SourceTick(source_name(of), generation, sequence, silent_ms, connected, facts)]))

    def obey(self, verb: Verb, generation: int, descriptor: bytes = b"", of: SourceId = POD) -> None:
        """The next command of the control stream."""
        self._commands += 1
        fields = {b"v": verb.encode(), b"s": source_name(of), b"g": b"%d" % generation, b"d": descriptor}
        done(self.partition.obey([(b"1-%d" % self._commands, fields)]))

    # -- what is read --------------------------------------------------------------------------------------------------

    def followed(self, source: SourceId = POD) -> FollowedSource:
        return self.partition.sources.by_name[source_name(source)]

    def reading(self, source: SourceId = POD) -> Reading:
        """The reading that is wanted of it, started."""
        reading = self.followed(source).reading
        assert reading is not None
        self.partition.sources.take_wanted()
        if reading.stage == "wanted":
            reading.start()
        return reading

    def read(
        self,
        generation: int,
        cursor: int | None,
        held: Mapping[int, int],
        *,
        copy: int = 0,
        until: Position | None = None,
        facts: bytes = FACTS,
        of: SourceId = POD,
    ) -> None:
        """Its map is read whole, when the journal ended at `until` (default: where it is followed to)."""
        reading = self.reading(of)
        state = SourceState(generation=generation, cursor=cursor, facts=facts, copy=copy, segments=1, complete=True)
        reading.begin(of, b"", state)
        reading.take(of, fields_of(held))
        self.was_read(reading, until, of)

    def was_read(self, reading: Reading, until: Position | None = None, of: SourceId = POD) -> None:
        """What was begun by hand is read whole."""
        until = until or self.partition.position
        done(self.partition.has_read(self.followed(of), reading, until, NEVER_DUE))

    def has_no_copy(self, state: SourceState | None, of: SourceId = POD) -> None:
        """There is nothing whole to be read."""
        self.partition.has_no_copy(self.followed(of), self.reading(of), state, NEVER_DUE)

    # -- what lookups see ----------------------------------------------------------------------------------------------

    def source(self, source: SourceId = POD) -> SourceIndex:
        return self.registry.sources[source]

    def state(self, source: SourceId = POD) -> State:
        return state_of(self.source(source).facts, self.now, StateLimits())

    def bound(self, source: SourceId = POD) -> Bound:
        return bound_of(self.source(source).facts)

    def shown(self, source: SourceId = POD) -> dict[int, int]:
        """Token hash → lanes."""
        return self.shelves.shown(self.source(source))
