"""One source's reverse map: engine hash → token hash, a count of copies, and what cannot be placed yet. Pure.

An engine's removal names only its own hash, so this map is what makes removals possible at all. Engine hashes mean
nothing outside their source and generation; a restart or clear makes a new map (the old one is freed in slices, P5).

Copies (kv_events fact sheet 4.1): engines do not merge equal blocks; each physical copy is announced and removed on
its own, so a hash is gone with its last copy. Only counts above one are stored. After a gap that is kept (P6) an
entry announced before counts as one copy: its removal ends it, its next announcement sets its count to 1; `fresh`
holds those announced since.

Memory: one dict entry and two ints a pair, about 135 bytes (decisions/0005). Each lane is cut into 64 dicts, so that
none ever grows for longer than a millisecond at once and a dropped map can be freed piece by piece. What waits is in
structs that the garbage collector does not follow: they refer to nothing that refers back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.model import Tier

SHARDS: Final = 64
_MASK: Final = SHARDS - 1
NOT_HELD: Final = -1
CHURN_MIN: Final = 4_096
NEVER: Final = float("inf")
FREED_AT_ONCE: Final = 4_096
"""Entries of a map that is no longer used, freed in one go: about half a millisecond."""
GRACE_MAX: Final = 2048
"""Mappings kept after their last copy went: at least the newest so many, at most twice that.

An offload placeholder may name a block whose GPU copy was removed just before, even earlier in the same batch (fact
sheet 4.3).
"""


Counts = list[dict[int, int]]
"""Numbers above one, or above none, by hash: cut like the maps."""
NONE: Final[Counts] = [{}] * SHARDS
"""No counts yet: read like any, and replaced before the first is written, since most lanes never have one."""


def _writable(counts: Counts) -> Counts:
    return [{} for _ in range(SHARDS)] if counts is NONE else counts


class Lane:
    """One (group, tier) of one source in one generation. `number` is its lane number in the presence records."""

    __slots__ = (
        "_earliest",
        "_scanned",
        "aliases",
        "churn",
        "compacted",
        "copies",
        "deadlines",
        "due_at",
        "extra_copies",
        "fresh",
        "group",
        "maps",
        "number",
        "pairs",
        "tier",
        "ttl_s",
    )

    def __init__(self, number: int, group: int, tier: Tier, ttl_s: float | None = None) -> None:
        self.number = number
        self.group = group
        self.tier = tier
        self.maps: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self.copies = NONE
        """Of engine hashes that have more than one."""
        self.extra_copies = 0
        self.aliases = NONE
        """Of token hashes: how many other engine hashes map to them."""
        self.fresh: list[set[int]] | None = None
        self.pairs = 0
        self.churn = 0
        """Entries removed since the pieces were last made compact."""
        self.compacted = 0
        self.ttl_s = ttl_s
        self.deadlines: list[dict[int, float]] | None = None if ttl_s is None else [{} for _ in range(SHARDS)]
        """Only where producers announce no removals: when each entry is given up."""
        self.due_at = NEVER
        self._earliest = NEVER
        self._scanned = 0

    def get(self, engine_hash: int) -> int | None:
        """Token hash, or None when this lane does not hold the engine hash."""
        return self.maps[engine_hash & _MASK].get(engine_hash)

    def count(self, engine_hash: int) -> int:
        """Copies of one engine hash; 0 when not held."""
        if engine_hash not in self.maps[engine_hash & _MASK]:
            return 0
        return self.copies[engine_hash & _MASK].get(engine_hash, 1)

    def items(self) -> Iterator[tuple[int, int]]:
        """All (engine hash, token hash) pairs."""
        for shard in self.maps:
            yield from shard.items()

    def again(self, engine_hash: int, *, count_copies: bool) -> None:
        """A held engine hash was announced once more.

        One more copy, unless that is its first announcement since a gap.
        """
        if self.fresh is not None:
            fresh = self.fresh[engine_hash & _MASK]
            if engine_hash not in fresh:
                fresh.add(engine_hash)
                return
        if count_copies:
            self.copies = _writable(self.copies)
            copies = self.copies[engine_hash & _MASK]
            copies[engine_hash] = copies.get(engine_hash, 1) + 1
            self.extra_copies += 1

    def one_copy(self, engine_hash: int) -> None:
        """All its copies but one are gone."""
        self.extra_copies -= self.copies[engine_hash & _MASK].pop(engine_hash, 1) - 1

    def doubt(self, engine_hash: int) -> None:
        """It was announced before the last kept gap, though it is placed only now."""
        if self.fresh is not None:
            self.fresh[engine_hash & _MASK].discard(engine_hash)

    def alias_count(self, token_hash: int) -> int:
        """How many other engine hashes of this lane map to the token hash."""
        return self.aliases[token_hash & _MASK].get(token_hash, 0)

    def one_alias_more(self, token_hash: int) -> None:
        """Another engine hash of this lane maps to a token hash that it holds already."""
        self.aliases = _writable(self.aliases)
        aliases = self.aliases[token_hash & _MASK]
        aliases[token_hash] = aliases.get(token_hash, 0) + 1

    @property
    def alias_entries(self) -> int:
        """Token hashes to which several engine hashes map."""
        return 0 if self.aliases is NONE else sum(map(len, self.aliases))

    def announced(self, engine_hash: int) -> bool:
        """Whether it was announced since the last kept gap."""
        return self.fresh is None or engine_hash in self.fresh[engine_hash & _MASK]

    def renew(self, engine_hashes: Sequence[int], now: float) -> None:
        """These were announced just now: their time to live begins again."""
        if self.deadlines is None or self.ttl_s is None:
            return
        deadline = now + self.ttl_s
        for engine_hash in engine_hashes:
            self.deadlines[engine_hash & _MASK][engine_hash] = deadline
        self.due_at = min(self.due_at, deadline)

    def overdue_slice(self, now: float) -> list[int] | None:
        """Entries of one piece whose time to live is over, with all their copies taken off but the last.

        None when it is not time to look. A look goes over all pieces, then rests a 64th of the time to live.
        """
        if self.deadlines is None or self.ttl_s is None or now < self.due_at:
            return None
        piece = self.deadlines[self._scanned]
        out = [engine_hash for engine_hash, deadline in piece.items() if deadline <= now]
        self._earliest = min(self._earliest, min((d for d in piece.values() if d > now), default=NEVER))
        self._scanned += 1
        if self._scanned == SHARDS:
            self.due_at = max(self._earliest, now + self.ttl_s / SHARDS) if self._earliest < NEVER else NEVER
            self._scanned, self._earliest = 0, NEVER
        for engine_hash in out:
            self.one_copy(engine_hash)
        return out

    def wants_compacting(self) -> bool:
        """A dict never shrinks, and one that lost entries grows as if it still had them."""
        return self.churn > CHURN_MIN and self.churn * 4 > self.pairs

    def compact_slice(self) -> bool:
        """Make one piece compact; True while there is more."""
        if self.compacted < len(self.maps):
            self.maps[self.compacted] = dict(self.maps[self.compacted])
            self.compacted += 1
            return True
        self.churn = self.compacted = 0
        return False

    def forget_counts(self) -> None:
        """A gap is kept: everything announced so far counts as one copy from here on."""
        self.copies = NONE
        self.extra_copies = 0
        self.fresh = [set() for _ in range(SHARDS)]

    def drop_copies(self, engine_hashes: Sequence[int], gone: dict[int, int]) -> tuple[list[int], list[int]]:
        """One copy of each went.

        Returns the token hashes that nothing on this lane maps to any more, and the engine hashes that were not held.
        Mappings whose last copy went are noted in `gone`.
        """
        maps, copies, aliases = self.maps, self.copies, self.aliases
        copied, aliased = self.extra_copies > 0, aliases is not NONE
        freed: list[int] = []
        missing: list[int] = []
        ended = 0
        for engine_hash in engine_hashes:
            if copied and engine_hash in copies[engine_hash & _MASK]:
                self._one_less(engine_hash)
                continue
            token_hash = maps[engine_hash & _MASK].pop(engine_hash, NOT_HELD)
            if token_hash < 0:
                missing.append(engine_hash)
                continue
            ended += 1
            gone[engine_hash] = token_hash
            if aliased and token_hash in aliases[token_hash & _MASK]:
                self._one_alias_less(token_hash)
            else:
                freed.append(token_hash)
        self.pairs -= ended
        self.churn += ended
        if ended and (self.fresh is not None or self.deadlines is not None):
            self._forget_marks(engine_hashes)
        return freed, missing

    def _one_less(self, engine_hash: int) -> None:
        copies = self.copies[engine_hash & _MASK]
        count = copies[engine_hash] - 1
        self.extra_copies -= 1
        if count > 1:
            copies[engine_hash] = count
        else:
            del copies[engine_hash]  # one copy is not stored

    def _one_alias_less(self, token_hash: int) -> None:
        """Another engine hash maps to it still: presence is the union over them (P3)."""
        aliases = self.aliases[token_hash & _MASK]
        others = aliases[token_hash] - 1
        if others:
            aliases[token_hash] = others
        else:
            del aliases[token_hash]

    def _forget_marks(self, engine_hashes: Sequence[int]) -> None:
        for engine_hash in engine_hashes:
            if engine_hash not in self.maps[engine_hash & _MASK]:
                if self.deadlines is not None:
                    self.deadlines[engine_hash & _MASK].pop(engine_hash, None)
                if self.fresh is not None:
                    self.fresh[engine_hash & _MASK].discard(engine_hash)


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
        """Parked blocks whose removal came while chains were being placed: placed in their turn, since others hang on
        them, and removed then, as if there had been no delay."""
        self._gone: dict[int, int] = {}
        self._gone_before: dict[int, int] = {}
        self._orphans_max = orphans_max
        self._era = 0

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
        self._era += 1
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
                self.orphans[engine_hash] = msgspec.structs.replace(known, waited=Waiting(1, self._era))
                return True
            waited = self._one_more(known.waited, count_copies=count_copies)
            self.orphans[engine_hash] = msgspec.structs.replace(known, waited=waited)
            return True
        if self.waiting >= self._orphans_max:
            return False
        self.children.setdefault(parent, {})[engine_hash] = None
        self.orphans[engine_hash] = Orphan(parent, local, lane, Waiting(1, self._era))
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
        lanes[key] = Waiting(1, self._era) if known is None else self._one_more(known, count_copies=count_copies)
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
        return count.copies if count.era == self._era else 0

    def drop_waiting(self, engine_hash: int, lane: Lane) -> bool:
        """A removal names a block that still waits: one copy less; True when it was one."""
        lanes = self.unplaced.get(engine_hash, {})
        key = lane.group, lane.tier
        if key in lanes:
            left = self.copies_waited(lanes.pop(key)) - 1
            if left > 0:
                lanes[key] = Waiting(left, self._era)
            elif not lanes:
                del self.unplaced[engine_hash]
            return True
        orphan = self.orphans.get(engine_hash)
        if orphan is None or orphan.lane is not lane or engine_hash in self.leaving:
            return False
        left = self.copies_waited(orphan.waited) - 1
        if left > 0:
            self.orphans[engine_hash] = msgspec.structs.replace(orphan, waited=Waiting(left, self._era))
        elif lanes:  # another lane holds it still, and only this entry knows whose child it is
            key, count = lanes.popitem()
            self.orphans[engine_hash] = msgspec.structs.replace(orphan, lane=self.lanes[key], waited=count)
            if not lanes:
                del self.unplaced[engine_hash]
        else:
            self._unpark(engine_hash, orphan)
        return True

    def _unpark(self, engine_hash: int, orphan: Orphan) -> None:
        if self.healing and engine_hash in self.children:
            self.leaving.add(engine_hash)
            return
        del self.orphans[engine_hash]
        siblings = self.children[orphan.parent]
        del siblings[engine_hash]
        if not siblings:
            del self.children[orphan.parent]

    def _one_more(self, count: Waiting, *, count_copies: bool) -> Waiting:
        return Waiting(self.copies_waited(count) + 1 if count_copies else 1, self._era)

    @property
    def is_small(self) -> bool:
        """Freed as a whole in well under a millisecond."""
        held = sum(lane.pairs + lane.extra_copies + lane.alias_entries for lane in self.lanes.values())
        return held + self.waiting <= FREED_AT_ONCE

    def free_slice(self) -> bool:
        """Free some of a map that is no longer used, well under a millisecond's worth; True while there is more."""
        budget = FREED_AT_ONCE
        for lane in self.lanes.values():
            for pieces in (lane.maps, lane.fresh, lane.deadlines, lane.copies, lane.aliases):
                while pieces and pieces is not NONE:
                    budget -= len(pieces.pop()) + 1
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
