"""The mirror's memory: an open-addressing hash table, token hash → record id and parent token hash. Pure.

    slot i:   rows[i] = (token hash, record id), u64 each, hash 0 = never used, id 0 = nobody holds it;   parents[i] u64
    home(h) = (h >> (shift + 1)) & (capacity - 1); a key lies at its home or in the first free slot after it

A key and its id share a cache line: one miss a block. Scalar code sees the rows flat, as `cells`: the home of h is cell
`h >> shift & mask` (an even number), its id the cell behind it.

`shift` is drawn once a process (the node passes it in): XXH3 is not keyed, so without it a client could craft prompts
whose blocks all share one home and turn probes into scans.

Why not a dict (decisions/0004): a prompt of 512 blocks is one gather over three arrays here and 512 cache-missing
probes there (80 against 290 us at 1 M blocks), a block costs 24 bytes a slot against about 75, a garbage collector
never walks it, and growing never stops the world: a dict of 1.4 M entries stalls 78 ms, this moves a slice at a time.

Growth: a second table is allocated, touched page by page (the first touch of a page costs up to 3 ms on a virtual
machine whose host must find the memory), then filled from the first, slice by slice; until done, reads look in the
new one, then in the old one, and writes go to the new one only and take the key out of the old one. A removal moves
the cluster behind it back by one, so that churn leaves nothing and probing needs no tombstones; only during a move and
after a scrub a removed block keeps its slot with record id 0, and such dead slots are left behind at the next move.
Scalar access goes through memoryviews, which are three times as fast as array items.

The loops that must be fast are written out in `mirror.py` over `arrays`; this module owns the layout, growth and the
rare cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from indexer.index.hints import RUN, SlotHints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

CAPACITY_MIN: Final = 1 << 12
PAD: Final = 512
"""Slots past the capacity, so that probing never wraps. A cluster that would run past them forces growth."""
WINDOW: Final = 8
"""Slots that a vectorised probe looks at from a key's home on: enough for all but a few keys at the highest load."""
MANY: Final = 2 * RUN
"""Keys from which on looking them up together is faster. Whole runs: what comes behind so many is learnt in step."""
AWAY_MAX: Final = 48
"""Keys that are not where they were last, up to which they are looked for one by one."""
LOAD_MAX_NUM, LOAD_MAX_DEN = 3, 5
NEW_TRIES: Final = 3
"""Slots that `place_new` looks at for each key: at a usual load nine of ten find a free one among these."""
MOVE_SLOTS: Final = 2048
"""Slots moved to the new table in one slice: about 0.3 ms."""
TOUCH_BYTES: Final = 1 << 20
"""Bytes of a new table touched in one slice: at most one huge page is new."""


class Slots:
    """One generation of the arrays."""

    __slots__ = (
        "_home_mask",
        "_home_shift",
        "capacity",
        "cells",
        "keys_array",
        "limit",
        "mask",
        "parents",
        "parents_array",
        "rids_array",
        "rows",
        "shift",
        "used",
        "windows",
    )

    def __init__(self, capacity: int, shift: int) -> None:
        self.capacity = capacity
        self.shift = shift
        self.mask = capacity - 1 << 1
        self._home_shift, self._home_mask = np.uint64(shift + 1), np.uint64(capacity - 1)
        self.limit = capacity * LOAD_MAX_NUM // LOAD_MAX_DEN
        self.used = 0
        # zeros() maps pages lazily: no stall for a large table, and memory only where keys are
        self.rows: NDArray[np.uint64] = np.zeros((capacity + PAD, 2), np.uint64)
        self.parents_array: NDArray[np.uint64] = np.zeros(capacity + PAD, np.uint64)
        self.keys_array = self.rows[:, 0]
        self.rids_array = self.rows[:, 1]
        self.windows = sliding_window_view(self.rows, WINDOW, axis=0)
        self.cells = self.rows.reshape(-1).data
        self.parents = self.parents_array.data

    def find(self, key: int) -> int:
        """The slot of `key`, or -1."""
        cells = self.cells
        cell = key >> self.shift & self.mask
        found = cells[cell]
        while found != key:
            if not found:
                return -1
            cell += 2
            found = cells[cell]
        return cell >> 1

    def rid(self, key: int) -> int:
        """The record id of `key`; 0 where it is absent (an unused slot has 0)."""
        cells = self.cells
        cell = key >> self.shift & self.mask
        found = cells[cell]
        while found != key and found:
            cell += 2
            found = cells[cell]
        return cells[cell + 1]

    def homes(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The slot where probing for each key begins."""
        homes = keys >> self._home_shift
        homes &= self._home_mask
        return homes.view(np.int64)

    def find_many(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The slots of many keys, -1 where absent. One gather at the homes, one of windows for what is not there."""
        home = self.homes(wanted)
        slots = home.copy()
        seen = self.keys_array[home]  # `take` would copy the whole strided column first
        missing = np.flatnonzero(seen != wanted)
        if missing.size:  # an empty home proves absence
            is_empty = seen[missing] == 0
            slots[missing[is_empty]] = -1
            missing = missing[~is_empty]
        if missing.size and not wanted[missing].all():  # no key is 0, and every empty slot of a window would match it
            slots[missing] = -1
            missing = missing[wanted[missing] != 0]
        if missing.size:
            rows = self.windows[home[missing]][:, 0]
            hit_row, hit_column = (rows == wanted[missing, None]).nonzero()
            slots[missing] = -1
            found = missing[hit_row]
            slots[found] = home[found] + hit_column
            if found.size != missing.size:
                self._find_far(wanted, slots, missing, rows)
        return slots

    def place_new(self, keys: NDArray[np.uint64], rid: int, parents: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Enter keys that are not here, with that record id; the positions of those that were not entered.

        That are: keys that are here, all but one of the same key, and those that find no free slot soon, or within the
        capacity. For one that comes by itself the loop in `mirror.py` is as fast: this is for hundreds.
        """
        waiting = keys.nonzero()[0]
        left = [(keys == 0).nonzero()[0]]
        target = self.homes(keys)[waiting]
        for _ in range(NEW_TRIES):
            seen, wanted = self.keys_array[target], keys[waiting]
            is_free, is_here = seen == 0, seen == wanted
            if target.size and target.max() >= self.capacity:
                is_free &= target < self.capacity
            taken, place = waiting[is_free], target[is_free]
            # Of several keys that want one slot one gets it, whichever is written last; the others look again.
            self.parents_array[place] = taken
            has_won = self.parents_array[place] == taken.view(np.uint64)
            won, entered = place[has_won], taken[has_won]
            self.keys_array[won] = keys[entered]
            self.rids_array[won] = rid
            self.parents_array[won] = parents[entered]
            self.used += won.size
            left.append(waiting[is_here])
            goes_on = ~(is_free | is_here)
            waiting = np.concatenate((waiting[goes_on], taken[~has_won]))
            target = np.concatenate((target[goes_on] + 1, place[~has_won]))
        return np.concatenate((*left, waiting))

    def _find_far(
        self, wanted: NDArray[np.uint64], slots: NDArray[np.int64], missing: NDArray[np.int64], rows: NDArray[np.uint64]
    ) -> None:
        """Keys beyond the window: only where the window is full, since an empty slot ends a probe."""
        far = missing[(rows != 0).all(axis=1)]
        for position in far[slots[far] < 0].tolist():
            slots[position] = self.find(int(wanted[position]))


class PresenceTable:
    """`Slots` that grow and shrink in slices. `live` counts keys whose record id is not 0."""

    __slots__ = ("_cursor", "_hints", "_incoming", "current", "live", "old")

    def __init__(self, shift: int = 0) -> None:
        self.current = Slots(CAPACITY_MIN, shift)
        self.old: Slots | None = None
        self.live = 0
        self._cursor = 0
        self._incoming: Slots | None = None
        self._hints = SlotHints()

    def get(self, key: int) -> int:
        """Record id of a token hash; 0 when nobody holds it."""
        if self.old is None:
            return self.current.rid(key)
        index = self.current.find(key)
        return self.current.cells[index * 2 + 1] if index >= 0 else self.old.rid(key)

    def parent(self, key: int) -> int:
        """Token hash of the parent; 0 for a root block or an unknown key."""
        for slots in (self.current, self.old):
            index = -1 if slots is None else slots.find(key)
            if slots is not None and index >= 0:
                return slots.parents[index]
        return 0

    def parents_of(self, keys: Sequence[int]) -> list[int]:
        """As `parent`, of many."""
        if len(keys) < MANY:
            return [self.parent(key) for key in keys]
        wanted = np.array(keys, np.uint64)
        slots = self.current.find_many(wanted)
        parents = self.current.parents_array[slots]  # -1 reads the last pad slot, which is never used: 0
        old = self.old
        if old is not None:
            missing = np.flatnonzero(slots < 0)
            parents[missing] = old.parents_array[old.find_many(wanted[missing])]
        found: list[int] = parents.tolist()
        return found

    def get_many(self, wanted: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Record ids of many token hashes, 0 where nobody holds one."""
        slots = self.current.find_many(wanted)
        rids = self.current.rids_array[slots]  # -1 reads the last pad slot, which is never used: 0
        old = self.old
        if old is not None:
            missing = np.flatnonzero(slots < 0)
            if missing.size:
                rids[missing] = old.rids_array[old.find_many(wanted[missing])]
        return rids

    def prefix(self, wanted: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Record ids of the leading keys that have an entry each; ends before the first that has none.

        What a walk needs: behind a block that nobody holds nothing counts.
        """
        if self.old is not None:
            return self.get_many(wanted)
        slots = self.current
        hinted = self._hints.leading(wanted)
        known = len(hinted)
        if not known:
            return self._probed(wanted)
        rows = slots.rows.take(hinted, axis=0)
        rids = rows[:, 1]
        away = (rows[:, 0] != wanted[:known]).nonzero()[0]
        if away.size:
            if away.size > AWAY_MAX:
                return self._probed(wanted)
            end = self._found_again(wanted, hinted, away.tolist(), rids)
            if end < known:
                return rids[:end]
        if known == len(wanted):
            return rids
        rest = wanted[known:]
        more = self._probed_few(rest[:MANY])  # it mostly ends among these
        if len(more) == MANY:
            more = np.concatenate((more, self._probed(rest[MANY:])))
        return np.concatenate((rids, more)) if len(more) else rids

    def _found_again(
        self, wanted: NDArray[np.uint64], hinted: NDArray[np.int64], away: Sequence[int], rids: NDArray[np.uint64]
    ) -> int:
        """Look for keys that are not where they were, put in their ids; where the first is that has no entry."""
        places = hinted.copy()
        for position in away:
            index = self.current.find(wanted.item(position))
            if index < 0:
                return position
            places[position] = index
            rids[position] = self.current.rids_array[index]
        self._hints.learn(wanted, places, {position // RUN for position in away})
        return len(hinted)

    def _probed_few(self, wanted: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The same by one probe a key, of whole runs at most `MANY`."""
        slots = self.current
        cells, mask, shift = slots.cells, slots.mask, slots.shift
        rids: list[int] = []
        places: list[int] = []
        for key in wanted.tolist():
            cell = key >> shift & mask
            seen = cells[cell]
            while seen != key and seen:
                cell += 2
                seen = cells[cell]
            if not seen:
                break
            places.append(cell >> 1)
            rids.append(cells[cell + 1])
        if len(places) >= RUN:
            self._hints.learn(wanted, np.array(places, np.int64))
        return np.array(rids, np.uint64)

    def _probed(self, wanted: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The same in a few array operations.

        An empty home slot proves absence, so most of a prompt that is not held is never looked for.
        """
        slots = self.current
        places = slots.homes(wanted)
        rows = slots.rows.take(places, axis=0)
        seen, rids = rows[:, 0], rows[:, 1]
        away = (seen != wanted).nonzero()[0]
        empty = (seen[away] == 0).nonzero()[0]
        if empty.size:
            first = empty.item(0)
            rids, away = rids[: away.item(first)], away[:first]
        if away.size:
            rids = self._probed_away(wanted, places, rids, away)
        self._hints.learn(wanted, places[: len(rids)])
        return rids

    def _probed_away(
        self,
        wanted: NDArray[np.uint64],
        places: NDArray[np.int64],
        rids: NDArray[np.uint64],
        away: NDArray[np.intp],
    ) -> NDArray[np.uint64]:
        """Put in places and ids of the keys that do not lie at their homes; ends before the first that has no entry."""
        slots = self.current
        if not wanted[away].all():  # no key is 0, and every empty slot of a window would match it
            end = away.item((wanted[away] == 0).argmax())
            rids, away = rids[:end], away[away < end]
        windows = slots.windows[places[away]]
        hit_row, hit_column = (windows[:, 0] == wanted[away, None]).nonzero()
        hit = away[hit_row]
        rids[hit] = windows[hit_row, 1, hit_column]
        places[hit] += hit_column
        if hit.size == away.size:
            return rids
        elsewhere = np.ones(away.size, bool)
        elsewhere[hit_row] = False
        for position in away[elsewhere].tolist():  # few: beyond the window, or absent, which ends it
            index = slots.find(wanted.item(position))
            if index < 0:
                return rids[:position]
            rids[position] = slots.rids_array[index]
            places[position] = index
        return rids

    def put(self, key: int, rid: int, parent: int) -> None:
        """Set a key's record id in the current table. The caller has accounted for what the key had before."""
        if self.old is not None:
            self._leave_old(self.old, key)
        slots = self.current
        cells = slots.cells
        cell = key >> slots.shift & slots.mask
        found = cells[cell]
        while found and found != key:
            cell += 2
            found = cells[cell]
        if not found:
            if cell >> 1 >= slots.capacity + PAD - WINDOW:
                self._rebuild_larger()
                self.put(key, rid, parent)
                return
            cells[cell] = key
            slots.parents[cell >> 1] = parent
            slots.used += 1
        cells[cell + 1] = rid

    def take_from_old(self, key: int) -> None:
        """While a move is under way: an entry that only the old table has is moved now."""
        old = self.old
        index = -1 if old is None else old.find(key)
        if old is not None and index >= 0 and (rid := old.cells[index * 2 + 1]):
            self.put(key, rid, old.parents[index])

    @staticmethod
    def _leave_old(old: Slots, key: int) -> None:
        """No key has an id in both tables: so a move need not look what is newer."""
        index = old.find(key)
        if index >= 0:
            old.cells[index * 2 + 1] = 0

    def moving(self) -> bool:
        """Whether a move is under way (from allocation on)."""
        return self.old is not None or self._incoming is not None

    def begin_move(self) -> None:
        """Start to move into a table fit for what lives now: larger, equal (dead slots leave) or smaller."""
        capacity = CAPACITY_MIN
        while capacity * LOAD_MAX_NUM * 2 < self.live * LOAD_MAX_DEN * 3:  # two thirds of the highest load, or less
            capacity *= 2
        self._incoming, self._cursor = Slots(capacity, self.current.shift), 0

    def wants_to_move(self) -> bool:
        """Whether memory should be given back: most of the table is empty, or many of its keys are dead."""
        current = self.current
        if self.moving():
            return False
        sparse = current.capacity > CAPACITY_MIN and self.live * 8 < current.capacity
        return sparse or (current.used - self.live) * 8 > current.capacity

    def move_slice(self) -> bool:
        """One slice of the move under way; True while there is more."""
        if self._incoming is not None:
            self._touch_slice(self._incoming)
            return True
        old = self.old
        if old is None:
            return False
        end = min(self._cursor + MOVE_SLOTS, old.capacity + PAD)
        rids = old.rids_array[self._cursor : end]
        occupied = np.flatnonzero(rids) + self._cursor
        self._move(old, occupied)
        rids[:] = 0
        self._cursor = end
        if end == old.capacity + PAD:
            self.old = None
        return self.old is not None

    def remap_slice(self, start: int, remap: Callable[[int, int], int], size: int = MOVE_SLOTS) -> int:
        """Replace record ids in one slice of so many slots by `remap(rid, count)`; the next start, or -1 at the end.

        Not during a move.
        """
        slots = self.current
        end = min(start + size, slots.capacity + PAD)
        part = slots.rids_array[start:end]
        values, inverse, counts = np.unique(part, return_inverse=True, return_counts=True)
        mapped = [remap(rid, count) if rid else 0 for rid, count in zip(values.tolist(), counts.tolist(), strict=True)]
        if mapped != values.tolist():
            part[:] = np.array(mapped, np.uint64)[inverse.reshape(part.shape)]
        return end if end < slots.capacity + PAD else -1

    def forget_prompts(self) -> None:
        """Give back the memory of where the blocks of prompts lie."""
        self._hints.forget()

    def bytes_used(self) -> int:
        """Bytes of the arrays (virtual; pages never touched are not resident)."""
        tables = [self.current] if self.old is None else [self.current, self.old]
        return sum(t.rows.nbytes + t.parents_array.nbytes for t in tables)

    def _touch_slice(self, incoming: Slots) -> None:
        start = self._cursor
        for array in (incoming.rows.reshape(-1), incoming.parents_array):
            if start < array.nbytes:
                array[start // array.itemsize : (start + TOUCH_BYTES) // array.itemsize] = 0
                self._cursor += TOUCH_BYTES
                return
            start -= -(-array.nbytes // TOUCH_BYTES) * TOUCH_BYTES
        self.old, self.current, self._incoming, self._cursor = self.current, incoming, None, 0
        self._hints.forget()  # of other arrays

    def _move(self, old: Slots, occupied: NDArray[np.int64]) -> None:
        """Copy these slots into the current table, which has none of their keys (`_leave_old`)."""
        keys = old.keys_array[occupied]
        slots = self.current
        target = slots.homes(keys)
        while occupied.size:
            # Of several keys that want one free slot one gets it, whichever is written last; the others go one further.
            free = np.flatnonzero(slots.keys_array[target] == 0)
            slots.keys_array[target[free]] = keys[free]
            won = free[slots.keys_array[target[free]] == keys[free]]
            slots.rids_array[target[won]] = old.rids_array[occupied[won]]
            slots.parents_array[target[won]] = old.parents_array[occupied[won]]
            slots.used += won.size
            left = np.ones(occupied.size, bool)
            left[won] = False
            occupied, keys, target = occupied[left], keys[left], target[left] + 1
            if occupied.size and int(target.max()) >= slots.capacity + PAD - WINDOW:
                self._rebuild_larger()
                return

    def _rebuild_larger(self) -> None:
        """A cluster reached the pad: double until it fits, at once.

        Not seen outside tests: it needs hundreds of neighbours.
        """
        entries: dict[int, tuple[int, int]] = {}
        for slots in (self.old, self.current):
            if slots is not None:
                for index in np.flatnonzero(slots.keys_array).tolist():
                    entries[slots.cells[index * 2]] = (slots.cells[index * 2 + 1], slots.parents[index])
        capacity = self.current.capacity
        fits = False
        while not fits:
            capacity *= 2
            self.old, self._incoming, self._cursor = None, None, 0
            self.current = Slots(capacity, self.current.shift)
            self._hints.forget()  # of other arrays
            fits = all(self._place(key, rid, parent) for key, (rid, parent) in entries.items())

    def _place(self, key: int, rid: int, parent: int) -> bool:
        """Insert a key known to be absent; False where its cluster reaches the pad."""
        slots = self.current
        cells = slots.cells
        cell = key >> slots.shift & slots.mask
        while cells[cell]:
            cell += 2
            if cell >> 1 >= slots.capacity + PAD - WINDOW:
                return False
        cells[cell], cells[cell + 1], slots.parents[cell >> 1] = key, rid, parent
        slots.used += 1
        return True
