"""Who holds a block, as interned records: the set of (source slot, lanes) that many blocks share. Pure.

A block's presence is one small integer, the id of a `Record`. Equal presence is the same record, so a walk compares
ids and looks at a record only where presence changes along the prompt; a record carries its masks ready for the
and-ing:

    any   bit s set: slot s holds the block in every one of its full-attention groups, in any tier
    views masks for gpu | gpu+cpu | gpu+cpu+storage | gpu+cpu+storage+remote (cumulative, best first)

A *slot* is a bit position given to one (source, generation); a *lane* is one (group, tier) of a source, numbered
0..15 in its `LaneTable`; `ref = slot << 4 | lane` names a lane of a slot. Adding or taking away a ref is a cached
transition between records, so the write path is two dict lookups a block. Transitions are kept both ways (`a.add[r]
is b` and `b.sub[r] is a`), which is what lets an unused record be unlinked and its id given out again without any
scan.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from indexer.model import Tier

LANE_BITS: Final = 4
LANES_MAX: Final = 1 << LANE_BITS
VIEW_TIERS: Final = (Tier.GPU, Tier.CPU, Tier.STORAGE, Tier.REMOTE)
VIEWS: Final = len(VIEW_TIERS)
IDLE_RECORDS_MAX: Final = 1024
"""Records without a block that stay linked for reuse; beyond, the oldest are unlinked. Bounds memory under churn."""
IDLE_HOLDERS_MAX: Final = 65_536
"""Holders named by these together: a block that thousands come to hold leaves a record behind each of them."""


class LaneTable:
    """The lanes of one source, and which of its groups must hold a block for the source to hold it.

    Lives as long as the registration (not the generation): a group's kind does not change with a restart, and removals
    never carry it.
    """

    __slots__ = ("_numbers", "_views", "lanes", "main_groups")

    def __init__(self) -> None:
        self.lanes: list[tuple[int, Tier]] = []
        self.main_groups: tuple[int, ...] = ()
        self._numbers: dict[tuple[int, Tier], int] = {}
        self._views: dict[int, tuple[bool, ...]] = {}

    def number(self, group: int, tier: Tier) -> int | None:
        """The lane's number, given on first use; None when all sixteen are taken."""
        lane = self._numbers.get((group, tier))
        if lane is None and len(self.lanes) < LANES_MAX:
            lane = self._numbers[group, tier] = len(self.lanes)
            self.lanes.append((group, tier))
            self._views.clear()
        return lane

    def known(self, group: int, tier: Tier) -> int | None:
        """The lane's number, or None when nothing was ever announced for it."""
        return self._numbers.get((group, tier))

    def set_main_groups(self, groups: tuple[int, ...]) -> bool:
        """Name the full-attention groups; True when that changes what masks of existing records mean."""
        if groups == self.main_groups:
            return False
        self.main_groups = groups
        self._views.clear()
        return True

    def held(self, lanes: int) -> tuple[bool, ...]:
        """For a set of lanes (bits): (any, gpu, ≤cpu, ≤storage, ≤remote), each over all main groups."""
        views = self._views.get(lanes)
        if views is None:
            views = self._views[lanes] = self._compute(lanes)
        return views

    def groups_held(self, lanes: int) -> frozenset[int]:
        """The groups of which these lanes hold something, in any tier."""
        return frozenset(group for number, (group, _) in enumerate(self.lanes) if lanes >> number & 1)

    def _compute(self, lanes: int) -> tuple[bool, ...]:
        best: dict[int, Tier] = {}
        for number, (group, tier) in enumerate(self.lanes):
            if lanes >> number & 1:
                best[group] = min(tier, best.get(group, Tier.UNKNOWN))
        if not self.main_groups or any(group not in best for group in self.main_groups):
            return (False,) * (VIEWS + 1)
        worst = max(best[group] for group in self.main_groups)
        return (True, *(worst <= tier for tier in VIEW_TIERS))


class Record:
    """One distinct presence.

    `blocks` counts the table entries that point here; `key` is sorted (slot, lane bits) pairs.
    """

    __slots__ = ("add", "any", "blocks", "idle", "key", "plain", "rid", "sub", "views")

    def __init__(self, rid: int, key: tuple[tuple[int, int], ...]) -> None:
        self.rid = rid
        self.key = key
        self.blocks = 0
        self.idle = False
        self.any = 0
        self.plain = True
        """Everyone who holds it holds it in GPU memory: all views equal `any`. True of most blocks."""
        self.views: tuple[int, ...] = (0,) * VIEWS
        self.add: dict[int, Record] = {}
        self.sub: dict[int, Record] = {}

    def lanes_of(self, slot: int) -> int:
        """The lane bits of one slot; 0 when it holds nothing here."""
        for owner, lanes in self.key:
            if owner == slot:
                return lanes
        return 0


class RecordBook:
    """All records, interned by key; id 0 is the empty record and never leaves."""

    def __init__(self) -> None:
        self.empty = Record(0, ())
        self.records: list[Record] = [self.empty]
        self.tables: dict[int, LaneTable] = {}
        self._by_key: dict[tuple[tuple[int, int], ...], Record] = {(): self.empty}
        self._free: list[int] = []
        self.named: Counter[int] = Counter()
        """Records that name a slot: a source whose groups become known as its first block comes is named by none."""
        self._idle: deque[Record] = deque()
        self._idle_holders = 0
        self.holders = 0
        """Named by all records together: what looking at each of them costs."""

    def __len__(self) -> int:
        return len(self._by_key)

    def with_ref(self, record: Record, ref: int) -> Record:
        """The record plus one lane; the same record when it already has it. Cached in `record.add`."""
        found = record.add.get(ref)
        if found is not None:
            return found
        slot, lane = ref >> LANE_BITS, ref & (LANES_MAX - 1)
        lanes = dict(record.key)
        lanes[slot] = lanes.get(slot, 0) | 1 << lane
        return self._link(record, ref, self.intern(lanes))

    def without_ref(self, record: Record, ref: int) -> Record:
        """The record minus one lane; the same record when it has it not. Cached in `record.sub`."""
        found = record.sub.get(ref)
        if found is not None:
            return found
        slot, lane = ref >> LANE_BITS, ref & (LANES_MAX - 1)
        lanes = dict(record.key)
        left = lanes.get(slot, 0) & ~(1 << lane)
        if left == lanes.get(slot, 0):
            return record
        if left:
            lanes[slot] = left
        else:
            del lanes[slot]
        smaller = self.intern(lanes)
        self._link(smaller, ref, record)
        return smaller

    def without_slots(self, record: Record, dead: int) -> Record:
        """The record without every slot in the bit set `dead`."""
        if not any(dead >> slot & 1 for slot, _ in record.key):
            return record
        return self.intern({slot: lanes for slot, lanes in record.key if not dead >> slot & 1})

    def intern(self, lanes: dict[int, int]) -> Record:
        """The one record with exactly these lanes."""
        key = tuple(sorted(lanes.items()))
        record = self._by_key.get(key)
        if record is None:
            rid = self._free.pop() if self._free else len(self.records)
            record = self._by_key[key] = Record(rid, key)
            if rid == len(self.records):
                self.records.append(record)
            else:
                self.records[rid] = record
            self.named.update(lanes.keys())
            self.holders += len(key)
            self._set_masks(record)
            self.released(record)  # no block yet
        return record

    def released(self, record: Record) -> None:
        """A record has no block (any more): it stays linked for reuse until `trim`."""
        if record.rid and not record.idle:
            record.idle = True
            self._idle.append(record)
            self._idle_holders += len(record.key)

    def trim(self, keep: int = IDLE_RECORDS_MAX) -> None:
        """Unlink the oldest idle records beyond `keep`. Never called while a caller holds a record without blocks."""
        while len(self._idle) > keep or self._idle_holders > IDLE_HOLDERS_MAX:
            self._unlink_oldest()

    @property
    def idle(self) -> int:
        """Records without a block, or that were without one lately."""
        return len(self._idle)

    def trim_slice(self, most: int, holders: int) -> int:
        """Unlink up to `most` of the oldest idle records, fewer where these have more holders; returns how many."""
        count = 0
        while count < most and self._idle and holders > 0:
            holders -= len(self._idle[0].key)
            self._unlink_oldest()
            count += 1
        return count

    def refresh_slot(self, slot: int) -> None:
        """The slot's lane table changed its main groups: masks of every record that names the slot are made again."""
        if not self.named[slot]:
            return
        for record in self._by_key.values():
            if record.lanes_of(slot):
                self._set_masks(record)

    def _set_masks(self, record: Record) -> None:
        masks = [0] * (VIEWS + 1)
        for slot, lanes in record.key:
            table = self.tables.get(slot)
            if table is None:
                continue
            for view, held in enumerate(table.held(lanes)):
                if held:
                    masks[view] |= 1 << slot
        record.any = masks[0]
        record.views = tuple(masks[1:])
        record.plain = masks[0] == masks[1]

    def _link(self, smaller: Record, ref: int, larger: Record) -> Record:
        smaller.add[ref] = larger
        if larger is not smaller:
            larger.sub[ref] = smaller
        return larger

    def _unlink_oldest(self) -> None:
        record = self._idle.popleft()
        self._idle_holders -= len(record.key)
        self._unlink_idle(record)

    def _unlink_idle(self, record: Record) -> None:
        record.idle = False
        if record.blocks:
            return
        for ref, larger in record.add.items():
            if larger is not record:
                del larger.sub[ref]
        for ref, smaller in record.sub.items():
            del smaller.add[ref]
        for slot, _ in record.key:
            self.named[slot] -= 1
            if not self.named[slot]:
                del self.named[slot]
        del self._by_key[record.key]
        self.holders -= len(record.key)
        self.records[record.rid] = self.empty
        self._free.append(record.rid)
