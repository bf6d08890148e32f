"""The mirror: token hash → which sources hold it, on which lanes. What lookups read. Pure.

Relies on: hashes are chained, so a token hash stands for a block and all before it (hashing/chain.py). Promises:
after `add` returns a lookup sees it; `retire` makes everything of a slot invisible in O(1), because every walk starts
from the mask of slots that live (P4, P5), and `scrub_slice` gives the memory back later.

The two loops below are the write path of every block; they are written out over the table's memoryviews because a
call a block would double their cost (0.35 us a block).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from indexer.index.records import LANE_BITS, LaneTable, Record, RecordBook
from indexer.index.removals import Removals, Why
from indexer.index.table import MOVE_SLOTS, PAD, PresenceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from indexer.model import Tier

ADD_CHUNK: Final = 512
"""Blocks added before the table's room is looked at again."""
ARRAY_CHUNK: Final = 2 * ADD_CHUNK
"""The same of those that are entered together: a step of loading has about as many."""
FEW: Final = 64
"""Blocks below which one after the other is as fast."""
SCRUBBED_HOLDERS: Final = 2_000
"""Holders of records that one slice of a scrub may have to go through: about a millisecond."""
UNLINKED: Final = 128
"""Records unlinked in a slice at the end of a scrub."""
MOVE_PER_ADD: Final = 8
"""Old slots moved for each block added while the table moves: a move then always ends before the new table is full."""


class Mirror:
    """Presence of all sources in this process. `shift`: see `table.py`; `removals`: where what goes is noted."""

    def __init__(self, shift: int = 0, removals: Removals | None = None) -> None:
        self.table = PresenceTable(shift)
        self.book = RecordBook()
        self.removals = Removals() if removals is None else removals
        self.live_slots = 0
        self._dead_slots = 0
        self._scrubbing = 0
        self._scrub_cursor = -1
        self._scrubbed_slots: object = None
        self._left_to_unlink = 0
        self._owed_moves = 0
        self.ended: Callable[[int], None] = _ignore
        """Called with a slot when what it stands for ends: a generation, or a registration."""

    # -- slots ---------------------------------------------------------------------------------------------------------

    def open_slot(self, lanes: LaneTable) -> int:
        """A fresh slot for one generation of a source: the lowest bit in neither use nor waiting to be scrubbed."""
        taken = self.live_slots | self._dead_slots | self._scrubbing
        slot = (~taken & (taken + 1)).bit_length() - 1
        self.live_slots |= 1 << slot
        self.book.tables[slot] = lanes
        self.removals.begin_life(slot)
        return slot

    def reopen_slot(self, slot: int, lanes: LaneTable) -> None:
        """A slot under which nothing is entered goes on, maybe with other lanes."""
        self.ended(slot)
        self.removals.begin_life(slot)
        if self.book.tables[slot] is not lanes:
            self.book.trim(0)  # no record may outlive its lanes
            self.book.tables[slot] = lanes

    def close_slot(self, slot: int) -> None:
        """A slot under which nothing is entered may be given out again."""
        self.ended(slot)
        self.book.trim(0)
        self.live_slots &= ~(1 << slot)
        self.removals.end_life(slot)
        del self.book.tables[slot]

    def retire(self, slot: int) -> None:
        """Nothing of this slot counts from now on. O(1); the slot is used again only after a scrub."""
        self.ended(slot)
        self.live_slots &= ~(1 << slot)
        self.removals.end_life(slot)
        self._dead_slots |= 1 << slot

    def retired_slots(self) -> int:
        """How many slots wait for the scrub."""
        return (self._dead_slots | self._scrubbing).bit_count()

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, slot: int, lane: int, hashes: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The slot's lane now holds these token hashes. `parents` are theirs (0 for a root block).

        Returns those the lane already held (another engine hash maps to them): the caller counts these, P3.
        """
        already: list[int] = []
        if len(hashes) <= ADD_CHUNK:
            self._add_chunk(slot << LANE_BITS | lane, hashes, parents, already)
            return already
        for start in range(0, len(hashes), ADD_CHUNK):
            part = slice(start, start + ADD_CHUNK)
            self._add_chunk(slot << LANE_BITS | lane, hashes[part], parents[part], already)
        return already

    def add_array(self, slot: int, lane: int, hashes: NDArray[np.uint64], parents: NDArray[np.uint64]) -> list[int]:
        """As `add`, of hundreds at once, as they are read: three times as fast where nobody holds most of them."""
        already: list[int] = []
        ref = slot << LANE_BITS | lane
        for start in range(0, len(hashes), ARRAY_CHUNK):
            part = slice(start, start + ARRAY_CHUNK)
            some, theirs = hashes[part], parents[part]
            if len(some) >= FEW:
                left = self._place_new(ref, some, theirs)
                some, theirs = some[left], theirs[left]
            if len(some):
                already += self.add(slot, lane, some.tolist(), theirs.tolist())
        return already

    def _place_new(self, ref: int, hashes: NDArray[np.uint64], parents: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Enter those of which the table has nothing; the positions of the others."""
        table = self.table
        fresh, left = np.arange(len(hashes)), np.zeros(0, np.intp)
        if table.old is not None:  # what that has is brought over first
            is_old = table.old.find_many(hashes) >= 0
            fresh, left = (~is_old).nonzero()[0], is_old.nonzero()[0]
        record = self.book.with_ref(self.book.empty, ref)
        before = table.current.used
        not_entered = table.current.place_new(hashes[fresh], record.rid, parents[fresh])
        entered = table.current.used - before
        record.blocks += entered
        table.live += entered
        if table.old is not None or table.current.used > table.current.limit:
            self._make_room(entered)
        self.book.trim()
        return np.concatenate((left, fresh[not_entered]))

    def _add_chunk(  # noqa: C901, PLR0915  the loop over blocks: calls would cost more than what they do
        self, ref: int, hashes: Sequence[int], parents: Sequence[int], already: list[int]
    ) -> None:
        table, book = self.table, self.book
        if table.old is not None:
            self._bring_over_many(hashes)
        current, records, empty = table.current, book.records, book.empty
        cells, parent_of = current.cells, current.parents
        mask, shift, end = current.mask, current.shift, current.capacity * 2
        first = book.with_ref(empty, ref)
        first_rid = first.rid
        fresh = placed = count = 0
        record = larger = empty
        seen = -1
        for token_hash, parent in zip(hashes, parents, strict=True):
            cell = token_hash >> shift & mask
            found = cells[cell]
            while found != token_hash and found:
                cell += 2
                found = cells[cell]
            if not found:  # the common case: nobody holds it
                if cell < end:
                    cells[cell] = token_hash
                    cells[cell + 1] = first_rid
                    parent_of[cell >> 1] = parent
                    fresh += 1
                    continue
                current.used += fresh
                fresh, placed = 0, placed + fresh + 1
                table.put(token_hash, first_rid, parent)  # may bring other arrays
                current = table.current
                cells, parent_of = current.cells, current.parents
                mask, end = current.mask, current.capacity * 2
                continue
            rid = cells[cell + 1]
            if rid != seen:  # neighbours mostly share a record
                self._step_up(record, larger, count)
                record, seen, count = records[rid], rid, 0
                larger = record.add.get(ref) or book.with_ref(record, ref)
            if larger is record:
                already.append(token_hash)
                continue
            cells[cell + 1] = larger.rid
            count += 1
        self._step_up(record, larger, count)
        current.used += fresh
        first.blocks += fresh + placed
        table.live += fresh + placed
        if table.old is not None or current.used > current.limit:
            self._make_room(len(hashes))
        book.trim()

    def _step_up(self, record: Record, larger: Record, count: int) -> None:
        """So many blocks changed from one record to a larger one."""
        if not count:
            return
        if record is self.book.empty:
            self.table.live += count
        else:
            record.blocks -= count
            if not record.blocks:
                self.book.released(record)
        larger.blocks += count

    def _bring_over_many(self, hashes: Sequence[int]) -> None:
        """While the table moves: those of these blocks that the old one has are put into the new one."""
        old = self.table.old
        assert old is not None  # noqa: S101  the caller looked
        cells, mask, shift = old.cells, old.mask, old.shift
        for token_hash in hashes:
            cell = token_hash >> shift & mask
            found = cells[cell]
            while found != token_hash and found:
                cell += 2
                found = cells[cell]
            if found:
                self.table.take_from_old(token_hash)

    def remove(  # noqa: C901, PLR0915  as `_add_chunk`
        self, slot: int, lane: int, hashes: Sequence[int], why: Why = Why.REMOVED
    ) -> None:
        """The slot's lane no longer holds these token hashes; those it never held are left alone."""
        ref = slot << LANE_BITS | lane
        table, book = self.table, self.book
        current, moving, records, empty = table.current, table.old is not None, book.records, book.empty
        cells, parent_of, mask, shift = current.cells, current.parents, current.mask, current.shift
        # The old table may still name what goes; and a scrub must not have entries moved to before its cursor.
        keep_slots = moving or self._scrubbing != 0
        gone = count = 0
        record = smaller = empty
        for token_hash in hashes:
            cell = token_hash >> shift & mask
            found = cells[cell]
            while found != token_hash and found:
                cell += 2
                found = cells[cell]
            if moving and not found:
                cell = self._bring_over(token_hash)  # may bring other arrays
                current, moving = table.current, table.old is not None
                cells, parent_of, mask, shift = current.cells, current.parents, current.mask, current.shift
            rid = cells[cell + 1]  # an empty slot has record id 0
            if rid != record.rid:  # neighbours mostly share a record
                self._step_down(record, smaller, count)
                record, count = records[rid], 0
                smaller = record.sub.get(ref) or book.without_ref(record, ref)
            if smaller is record:
                continue
            count += 1
            if smaller is not empty:
                cells[cell + 1] = smaller.rid
                continue
            gone += 1
            if keep_slots:
                cells[cell + 1] = 0
                continue
            hole = cell  # keys behind it that found it taken move back: see table.py
            cell += 2
            key = cells[cell]
            while key:
                if key >> shift & mask <= hole:
                    cells[hole], cells[hole + 1] = key, cells[cell + 1]
                    parent_of[hole >> 1] = parent_of[cell >> 1]
                    hole = cell
                cell += 2
                key = cells[cell]
            cells[hole] = cells[hole + 1] = 0
        self._step_down(record, smaller, count)
        if not keep_slots:
            current.used -= gone
        table.live -= gone
        book.trim()
        self.removals.note(slot, lane, hashes, why)

    def _step_down(self, record: Record, smaller: Record, count: int) -> None:
        """So many blocks changed from one record to a smaller one."""
        if count:
            record.blocks -= count
            if not record.blocks:
                self.book.released(record)
            if smaller is not self.book.empty:
                smaller.blocks += count

    def _bring_over(self, token_hash: int) -> int:
        """While the table moves: put an entry of the old table into the new one; its cell there."""
        table = self.table
        table.take_from_old(token_hash)
        index = table.current.find(token_hash)
        last = table.current.capacity + PAD - 1  # a slot that is always empty
        return 2 * (index if index >= 0 else last)

    # -- reading -------------------------------------------------------------------------------------------------------

    def held_by_any(self, slots: int, token_hash: int) -> bool:
        """Whether a slot of this bit set holds the block in any tier, as a walk counts it."""
        return self.book.records[self.table.get(token_hash)].any & slots != 0

    def holds(self, slot: int, token_hash: int) -> bool:
        """Whether the slot holds the block, as a walk would count it."""
        return bool(self.book.records[self.table.get(token_hash)].any >> slot & 1)

    def holders(self, token_hash: int) -> int:
        """The slots that hold the block in any tier, as a bit set that may name slots of the past."""
        return self.book.records[self.table.get(token_hash)].any

    def lanes(self, slot: int, token_hash: int) -> list[tuple[int, Tier]]:
        """The (group, tier) pairs on which the slot holds the block."""
        bits = self.book.records[self.table.get(token_hash)].lanes_of(slot)
        lanes = self.book.tables[slot].lanes
        return [lane for number, lane in enumerate(lanes) if bits >> number & 1]

    # -- housekeeping, in slices ---------------------------------------------------------------------------------------

    def tidy_slice(self) -> bool:
        """One slice (under 1 ms) of moving or scrubbing; True while there is more to do."""
        if self.table.moving():
            return self.table.move_slice() or self._wants_scrub()
        if self.table.wants_to_move():
            self.table.begin_move()
            return True
        if not self._wants_scrub():
            return False
        self._scrub_slice()
        return True

    def _wants_scrub(self) -> bool:
        return bool(self._dead_slots or self._scrubbing)

    def _scrub_slice(self) -> None:
        if self._left_to_unlink:
            done = self.book.trim_slice(min(self._left_to_unlink, UNLINKED), SCRUBBED_HOLDERS)
            self._left_to_unlink = min(self._left_to_unlink - done, self.book.idle)  # writers trim, too
            if not self._left_to_unlink:
                self._free_scrubbed()
            return
        if self._scrub_cursor < 0:  # a new pass serves the slots that are dead now
            self._scrubbing, self._dead_slots, self._scrub_cursor = self._dead_slots, 0, 0
        elif self._scrubbed_slots is not self.table.current:
            self._scrub_cursor = 0  # entries moved meanwhile: the pass begins again
        self._scrubbed_slots = self.table.current
        self._scrub_cursor = self.table.remap_slice(self._scrub_cursor, self._scrubbed, self._scrub_size())
        self.book.trim()
        if self._scrub_cursor < 0:
            # No record may outlive its slots, whose next owner's lanes mean something else. No block has one of these
            # any more, and none can come to have one: what names a slot that is gone is idle by now.
            self._left_to_unlink = self.book.idle
            if not self._left_to_unlink:
                self._free_scrubbed()

    def _scrub_size(self) -> int:
        """Slots in a slice: where each may have a record of its own, of many holders, only a few take their time."""
        if self.book.holders + len(self.book) <= SCRUBBED_HOLDERS:
            return MOVE_SLOTS
        return max(1, min(MOVE_SLOTS, SCRUBBED_HOLDERS * len(self.book) // (self.book.holders + len(self.book))))

    def _free_scrubbed(self) -> None:
        freed, self._scrubbing, self._scrubbed_slots = self._scrubbing, 0, None
        while freed:
            slot = freed.bit_length() - 1
            freed ^= 1 << slot
            self.book.tables.pop(slot, None)

    def _scrubbed(self, rid: int, count: int) -> int:
        book = self.book
        record = book.records[rid]
        clean = book.without_slots(record, self._scrubbing)
        if clean is not record:
            record.blocks -= count
            if not record.blocks:
                book.released(record)
            if clean.rid:
                clean.blocks += count
            else:
                self.table.live -= count
        return clean.rid

    def _make_room(self, added: int) -> None:
        """Pay for what was just added: a move must end before the new table is crowded itself."""
        table = self.table
        if not table.moving():
            table.begin_move()
            self._owed_moves = 0
        self._owed_moves += added * MOVE_PER_ADD
        while self._owed_moves > 0 and table.move_slice():
            self._owed_moves -= MOVE_SLOTS


def _ignore(_: int) -> None:
    """Nobody asked."""
