"""[I/O] An owner's writes to its partition: each appends one journal entry and changes state in the same atomic step.

One call at a time, in order. After a failure that leaves open whether a call was done (`may_be_done`) only the same
call may follow, by `settle`: its id in the journal is its own, and another call under that id would be taken for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from indexer.store import lua
from indexer.store.entries import Changed, Entry, Moved, Reasserted, Ticked, Turned, encode_entry
from indexer.store.failures import StoreFailure
from indexer.store.layout import segments_for
from indexer.store.outcomes import Began, Done, Laid, Refusal, Whereabouts, began, done, laid
from indexer.store.packing import array, text
from indexer.store.segments import SegmentChanges, by_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from indexer.model import SourceId
    from indexer.store.budget import JournalBudget
    from indexer.store.client import Client, Reply, Word
    from indexer.store.entries import Position
    from indexer.store.layout import PartitionKeys
    from indexer.store.lua import Script
from indexer.store.segments import PackedSegment

Outcome = TypeVar("Outcome")
COPIES_MAX: Final = 1_024
"""Numbers of copies in an epoch, which is in milliseconds: more copies than one a millisecond are not made."""


class SourceRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of batches did to one source: where it was, where it is, and the changes of its map.

    `before` and `after` are cursors, None before the first batch; equal where no batch moved it (a heal, an expiry).
    `packed` are the changes, where there are so many that they were sorted and packed before.
    """

    source: SourceId
    where: Whereabouts
    before: int | None
    after: int | None
    changes: Iterable[tuple[bytes, bytes | None]] = ()
    facts: bytes = b""
    packed: Sequence[PackedSegment] | None = None


class NewCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that is laid out whole and shall be the source's map from now on."""

    source: SourceId
    where: Whereabouts
    cursor: int | None
    facts: bytes
    pairs: int


class _Call(NamedTuple):
    script: Script
    keys: Sequence[bytes]
    words: Sequence[Word]
    position: Position
    entry_bytes: int


class Unsettled(RuntimeError):
    """A call followed one of which it is not known whether it was done. A fault of the caller."""


class Journal:
    """The writing end of one partition's journal, for one epoch. `position` is the last entry known to be written."""

    def __init__(
        self,
        client: Client,
        keys: PartitionKeys,
        *,
        token: bytes,
        position: Position,
        budget: JournalBudget,
        retain_ms: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self.token = token
        self._budget = budget
        self._retain_ms = retain_ms
        self._unsettled: _Call | None = None
        self._copies = 0
        self._names: dict[SourceId, tuple[Whereabouts, list[bytes]]] = {}
        self.position = position

    @property
    def is_settled(self) -> bool:
        """Whether it is known of every call if it was done."""
        return self._unsettled is None

    # -- calls: each raises StoreFailure ------------------------------------------------------------------------------

    async def apply(self, runs: Sequence[SourceRun], entry: Changed) -> Done | Refusal:
        """Write what a merged run of batches did, each source once, with the entry that tells it."""
        if len({run.source for run in runs}) != len(runs) or not runs:
            raise ValueError("runs: at least one, and each source once")
        keys: list[bytes] = []
        sources: list[bytes] = []
        for run in runs:
            names = self.segments(run.source, run.where)
            segments: Sequence[SegmentChanges | PackedSegment] = run.packed or by_segment(run.changes, names)
            keys += (self._keys.source(run.source), *(segment.key for segment in segments))
            where = (b"%d" % run.where.generation, b"%d" % run.where.copy)
            told = (*where, _cursor(run.before), _cursor(run.after), run.facts)
            changes = array([segment.packed for segment in segments])
            sources.append(array([*map(text, told), changes]))
        return await self._write(lua.APPLY, keys, (array(sources),), entry, done)

    async def tick(self, entry: Ticked) -> Done | Refusal:
        """Tell that the owner lives, and how its sources are."""
        return await self._write(lua.APPLY, (), (array(()),), entry, done)

    async def turn(self, source: SourceId, generation: int, segments: int, entry: Turned) -> Began | Refusal:
        """Begin a generation of a source, empty. The map of before is the caller's to unlink."""
        keys, words = (self._keys.source(source),), (generation, segments)
        return await self._write(lua.TURN, keys, words, entry, began)

    async def flip(self, copy: NewCopy, entry: Reasserted | Moved) -> Began | Refusal:
        """Make a copy that was laid the source's map. The map of before is the caller's to unlink."""
        keys = (self._keys.source(copy.source), *self._segments(copy.source, copy.where))
        words = (copy.where.generation, copy.where.copy, _cursor(copy.cursor), copy.facts, copy.pairs)
        return await self._write(lua.FLIP, keys, words, entry, began)

    async def settle(self, outcome: Callable[[Reply], Outcome]) -> Outcome:
        """Send the call again of which it is not known whether it was done. `outcome` reads its reply."""
        if self._unsettled is None:
            raise Unsettled("nothing is open")
        return await self._send(self._unsettled, outcome)

    def new_copy(self, generation: int, pairs: int) -> Whereabouts:
        """Where to lay a copy of so many pairs. No copy ever had its number: one that was begun and left is not met."""
        self._copies += 1
        return Whereabouts(
            generation, self.position.epoch * COPIES_MAX + self._copies % COPIES_MAX, segments_for(pairs)
        )

    async def lay(self, source: SourceId, where: Whereabouts, segment: SegmentChanges) -> Laid | Refusal:
        """Write a part of a copy that is not in use yet. No entry; in any order, and again without harm."""
        keys = (self._keys.owner, self._keys.source(source), segment.key)
        words = (self.token, where.generation, where.copy, self._retain_ms, segment.packed)
        return laid(await self._client.run(lua.LAY, keys, words))

    async def keep(self, source: SourceId, where: Whereabouts) -> Done | Refusal:
        """Renew the time to live of a source's keys, and see that they are there. No entry."""
        keys = (self._keys.owner, self._keys.source(source), *self._segments(source, where))
        words = (self.token, where.generation, where.copy, self._retain_ms)
        return done(await self._client.run(lua.KEEP, keys, words))

    async def unlink(self, source: SourceId, where: Whereabouts) -> None:
        """Free a copy that nothing points at any more."""
        self._names.pop(source, None)
        await self._client.unlink(self._segments(source, where))

    # -- how ----------------------------------------------------------------------------------------------------------

    def segments(self, source: SourceId, where: Whereabouts) -> list[bytes]:
        """Names of the copy in use, which are kept: making them costs more than the rest of a call."""
        names = self._segments(source, where)
        self._names[source] = where, names
        return names

    def _segments(self, source: SourceId, where: Whereabouts) -> list[bytes]:
        """Names of all segments."""
        known = self._names.get(source)
        if known is None or known[0] != where:
            return list(self._keys.copy(source, where.generation, where.copy, where.segments))
        return known[1]

    async def _write(
        self,
        script: Script,
        keys: Sequence[bytes],
        words: Sequence[Word],
        entry: Entry,
        outcome: Callable[[Reply], Outcome],
    ) -> Outcome:
        if self._unsettled is not None:
            raise Unsettled("settle the call before first")
        position, encoded = self.position.next, encode_entry(entry)
        common: tuple[Word, ...] = (
            self.token,
            str(self.position).encode(),
            str(position).encode(),
            str(self._budget.keep_from).encode(),
            encoded,
            self._retain_ms,
        )
        all_keys = (self._keys.owner, self._keys.head, self._keys.log, *keys)
        return await self._send(_Call(script, all_keys, (*common, *words), position, len(encoded)), outcome)

    async def _send(self, call: _Call, outcome: Callable[[Reply], Outcome]) -> Outcome:
        sent_before = self._unsettled is call
        self._unsettled = call  # also where the caller is cancelled meanwhile
        try:
            reply = await self._client.run(call.script, call.keys, call.words)
        except StoreFailure as failure:
            if not (failure.may_be_done or sent_before):  # that this try did nothing says nothing of the one before
                self._unsettled = None
            raise
        self._unsettled = None
        if reply[0] == b"OK":
            self.position = call.position
            self._budget.wrote(call.position, call.entry_bytes)
        return outcome(reply)


def _cursor(sequence: int | None) -> bytes:
    return b"" if sequence is None else b"%d" % sequence
