"""One source's reverse map: its lanes in one generation, and what cannot be placed yet. Pure.

An engine's removal names only its own hash, so this map is what makes removals possible at all. Engine hashes mean
nothing outside their source and generation; a restart or clear makes a new map (the old one is freed in slices, P5).

What cannot be placed yet, for want of its parent or of its tokens, waits here, bounded, in structs that the garbage
collector does not follow: they refer to nothing that refers back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.index.lane import SHARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.index.lane import Lane
    from indexer.model import Tier

_MASK: Final = SHARDS - 1
FREED_AT_ONCE: Final = 4_096
"""Entries of a map that is no longer used, freed in one go: about half a millisecond."""
GRACE_MAX: Final = 2048
"""Mappings kept after their last copy went: at least the newest so many, at most twice that.

An offload placeholder may name a block whose GPU copy was removed just before, even earlier in the same batch (fact
sheet 4.3).
"""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """Copies of a hash that cannot be placed yet, and the era (number of kept gaps) of its newest announcement."""

    copies: int
    era: int


class Orphan(msgspec.Struct, frozen=True, gc=False):
    """A block whose parent is unknown: enough to give it its token hash once the parent comes, and no tokens (P10)."""

    parent: int
    local: bytes
    lane: Lane
    waited: Waiting


class ReverseMap:
    """All lanes of one source in one generation, and what waits for a parent or for its tokens."""

    def __init__(self, *, orphans_max: int) -> None:
        self.lanes: dict[tuple[int, Tier], Lane] = {}
        self.orphans: dict[int, Orphan] = {}
        self.children: dict[int, dict[int, None]] = {}
        self.unplaced: dict[int, dict[tuple[int, Tier], Waiting]] = {}
        self.healing: list[tuple[int, int]] = []
        """(engine hash, token hash) of placed blocks whose children, or other lanes, are to be placed next."""
        self.leaving: set[int] = set()
        """Parked blocks whose removal came while chains were being placed: placed in their turn and removed then, as if
        there had been no delay."""
        self.ended = 0
        """Blocks that waited for their parent and went before it came."""
        self._gone: dict[int, int] = {}
        self._gone_before: dict[int, int] = {}
        self._orphans_max = orphans_max
        self.era = 0
        """Kept gaps so far."""

    @property
    def pairs(self) -> int:
        """Engine hashes held over all lanes."""
        return sum(lane.pairs for lane in self.lanes.values())

    @property
    def waiting(self) -> int:
        """Blocks and hashes that cannot be placed yet."""
        return len(self.orphans) + len(self.unplaced)

    def resolve(self, engine_hash: int, first: Lane | None = None) -> int | None:
        """The token hash of an engine hash, from `first`, any other lane, or the grace list."""
        if first is not None:
            token_hash = first.maps[engine_hash & _MASK].get(engine_hash)
            if token_hash is not None:
                return token_hash
        for lane in self.lanes.values():
            token_hash = lane.maps[engine_hash & _MASK].get(engine_hash)
            if token_hash is not None:
                return token_hash
        return self.gone(engine_hash)

    def gone(self, engine_hash: int) -> int | None:
        """The token hash of an engine hash whose last copy went a while ago."""
        token_hash = self._gone.get(engine_hash)
        return token_hash if token_hash is not None else self._gone_before.get(engine_hash)

    def gone_by_token(self) -> dict[int, int]:
        """Token hash to engine hash of what went a while ago. Made for the occasion: rare."""
        return {
            token_hash: engine_hash
            for half in (self._gone_before, self._gone)
            for engine_hash, token_hash in half.items()
        }

    def drop(self, lane: Lane, engine_hashes: Sequence[int]) -> tuple[list[int], list[int]]:
        """`Lane.drop_copies`, with mappings whose last copy went kept for a while."""
        freed, missing = lane.drop_copies(engine_hashes, self._gone)
        if len(self._gone) >= GRACE_MAX:
            self._gone, self._gone_before = {}, self._gone
        return freed, missing

    def forget_counts(self) -> None:
        """A gap is kept: what was announced so far, placed or waiting, counts as one copy. O(1)."""
        self.era += 1
        for lane in self.lanes.values():
            lane.forget_counts()

    def park(self, engine_hash: int, parent: int, local: bytes, lane: Lane, *, count_copies: bool) -> bool:
        """Keep a block until its parent comes; False when the bound is reached."""
        known = self.orphans.get(engine_hash)
        if known is not None:
            if known.lane is not lane:  # a second lane of a parked block
                return self.wait_for_tokens(engine_hash, lane, count_copies=count_copies)
            if engine_hash in self.leaving:
                self.leaving.discard(engine_hash)
                self.orphans[engine_hash] = msgspec.structs.replace(known, waited=Waiting(1, self.era))
                return True
            waited = self._one_more(known.waited, count_copies=count_copies)
            self.orphans[engine_hash] = msgspec.structs.replace(known, waited=waited)
            return True
        if self.waiting >= self._orphans_max:
            return False
        self.children.setdefault(parent, {})[engine_hash] = None
        self.orphans[engine_hash] = Orphan(parent, local, lane, Waiting(1, self.era))
        return True

    def wait_for_tokens(self, engine_hash: int, lane: Lane, *, count_copies: bool) -> bool:
        """Keep a hash without usable tokens until an event tells which block it is; False when the bound is reached."""
        lanes = self.unplaced.get(engine_hash)
        if lanes is None:
            if self.waiting >= self._orphans_max:
                return False
            lanes = self.unplaced[engine_hash] = {}
        key = lane.group, lane.tier
        known = lanes.get(key)
        lanes[key] = Waiting(1, self.era) if known is None else self._one_more(known, count_copies=count_copies)
        return True

    def take_run(self, engine_hash: int, most: int) -> list[tuple[int, Orphan]]:
        """A line of parked blocks on one lane that begins with this one; they are no longer parked.

        Each of them but the last had no other child parked.
        """
        orphan = self.orphans.pop(engine_hash)
        run = [(engine_hash, orphan)]
        while len(run) < most:
            children = self.children.get(engine_hash, {})
            if len(children) != 1:
                break
            (child,) = children
            if self.orphans[child].lane is not orphan.lane:
                break
            del self.children[engine_hash]
            engine_hash = child
            run.append((child, self.orphans.pop(child)))
        return run

    def take_child(self, engine_hash: int) -> int | None:
        """One of the blocks that wait for this parent, still parked; None where there is none."""
        children = self.children.get(engine_hash)
        if children is None:
            return None
        child, _ = children.popitem()
        if not children:
            del self.children[engine_hash]
        return child

    def take_unplaced(self, engine_hash: int) -> dict[tuple[int, Tier], Waiting]:
        """Where this hash waited for its tokens; it no longer does."""
        return self.unplaced.pop(engine_hash, {})

    def copies_waited(self, count: Waiting) -> int:
        """Copies to place: 0 stands for one that was announced before a kept gap."""
        return count.copies if count.era == self.era else 0

    def drop_waiting(self, engine_hash: int, lane: Lane) -> bool:
        """A removal names a block that still waits: one copy less; True when it was one."""
        lanes = self.unplaced.get(engine_hash, {})
        key = lane.group, lane.tier
        if key in lanes:
            left = self.copies_waited(lanes.pop(key)) - 1
            if left > 0:
                lanes[key] = Waiting(left, self.era)
            elif not lanes:
                del self.unplaced[engine_hash]
            return True
        orphan = self.orphans.get(engine_hash)
        if orphan is None or orphan.lane is not lane or engine_hash in self.leaving:
            return False
        left = self.copies_waited(orphan.waited) - 1
        if left > 0:
            self.orphans[engine_hash] = msgspec.structs.replace(orphan, waited=Waiting(left, self.era))
        else:
            self._leave_lane(engine_hash, orphan)
        return True

    def _leave_lane(self, engine_hash: int, orphan: Orphan) -> None:
        """The last copy of a parked block on its lane went."""
        lanes = self.unplaced.get(engine_hash)
        if lanes:  # another lane holds it still, and only this entry knows whose child it is
            key, count = lanes.popitem()
            self.orphans[engine_hash] = msgspec.structs.replace(orphan, lane=self.lanes[key], waited=count)
            if not lanes:
                del self.unplaced[engine_hash]
        elif self.healing:  # its turn may come: others may hang on it, and what went is remembered for a while
            self.leaving.add(engine_hash)
        else:
            del self.orphans[engine_hash]
            self.ended += 1
            siblings = self.children[orphan.parent]
            del siblings[engine_hash]
            if not siblings:
                del self.children[orphan.parent]

    def let_go(self) -> None:
        """All chains are placed: what was to leave in its turn had none."""
        while self.leaving:
            engine_hash = self.leaving.pop()
            self._leave_lane(engine_hash, self.orphans[engine_hash])

    def _one_more(self, count: Waiting, *, count_copies: bool) -> Waiting:
        return Waiting(self.copies_waited(count) + 1 if count_copies else 1, self.era)

    @property
    def is_small(self) -> bool:
        """Freed as a whole in well under a millisecond."""
        held = sum(lane.pairs + lane.extra_copies + lane.alias_entries for lane in self.lanes.values())
        return held + self.waiting <= FREED_AT_ONCE

    def free_slice(self) -> bool:
        """Free some of a map that is no longer used, well under a millisecond's worth; True while there is more.

        Lanes keep their form: a view of the source that is made in steps may hold one.
        """
        budget = FREED_AT_ONCE
        for lane in self.lanes.values():
            for piece in lane.pieces():
                budget -= len(piece)
                piece.clear()
                if budget <= 0:
                    return True
        for waiting in (self.orphans, self.children, self.unplaced):
            budget -= _empty(waiting, budget)
        if budget <= 0:
            return True
        self.lanes.clear()
        return False


def _empty(entries: dict[int, Any], budget: int) -> int:
    """Take up to `budget` entries out; how many were taken."""
    taken = 0
    while entries and taken < budget:
        entries.popitem()
        taken += 1
    return taken
