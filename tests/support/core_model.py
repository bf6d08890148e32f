"""What the index must answer, said naively: plain dicts and sets, one source at a time, no clever bookkeeping.

Written from what engines and services promise, not from the code. Contents are numbered: the number of a block stands
for its tokens, extra keys and everything before it, so two blocks share a number exactly when a prompt cannot tell them
apart. An engine hash always stands for one content; which one, only dense stores of main groups tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, lcm
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.model import Tier

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCK: Final = 4
WEIGHTS: Final = {Tier.GPU: 1.0, Tier.CPU: 0.8, Tier.STORAGE: 0.5, Tier.REMOTE: 0.5, Tier.UNKNOWN: 0.0}
STALE_AFTER_S: Final = 5.0
SCORE_TTL_S: Final = 60.0
LaneKey = tuple[int, Tier]


class Group(NamedTuple):
    """One KV-cache group of an engine: tokens in a block, kind and window as its stores say them."""

    kind: str | None
    size: int = BLOCK
    window: int | None = None

    @property
    def full(self) -> bool:
        """Whether it must hold every block of a hit."""
        return self.kind in {None, "full_attention", "mla_attention"}


@dataclass
class Held:
    """Copies of one engine hash on one lane. `fresh`: announced since the last kept gap, or no gap was kept."""

    copies: int
    fresh: bool
    deadline: float | None = None


def as_summed(score: float) -> float:
    """A score but for its last digits: who adds up in another order has others there."""
    return round(score, 12)


class Expected(NamedTuple):
    """What an entry must say."""

    matched: int
    reusable: int
    tiers: tuple[int, int, int, int, int]
    prefix: tuple[int, int, int, int]
    score: float


@dataclass
class ModelSource:
    """One registration of one engine."""

    groups: Sequence[Group]
    content: dict[int, int]
    count_copies: bool
    ttls: dict[Tier, float]
    capacity: int | None = None
    seen_groups: set[int] = field(default_factory=set)
    sized_groups: set[int] = field(default_factory=set)
    home: int | None = None
    cordoned: bool = False
    syncing: bool = False
    alive_at: float | None = None
    # a generation's own
    sequence: int | None = None
    complete: bool = False
    doubts: set[str] = field(default_factory=set)
    shortfalls: set[str] = field(default_factory=set)
    lanes: dict[LaneKey, dict[int, Held]] = field(default_factory=dict)
    told: dict[int, int | None] = field(default_factory=dict)
    placed: set[int] = field(default_factory=set)
    taken_back: bool = False

    # -- events --------------------------------------------------------------------------------------------------------

    def begin_generation(self) -> None:
        self.sequence, self.complete = None, False
        self.doubts, self.shortfalls = set(), set()
        self.lanes, self.told, self.placed = {}, {}, set()
        self.taken_back = False

    def restart(self) -> None:
        """Another process: nothing that was told of its groups need hold."""
        self.begin_generation()
        self.seen_groups, self.sized_groups, self.home = set(), set(), None

    def batch(self, sequence: int) -> None:
        if self.sequence is None:
            self.complete = sequence == 0
        self.sequence = sequence

    def batch_ends(self) -> None:
        """No engine holds more different blocks in GPU memory than it has."""
        held = self.lanes.get((self.home or 0, Tier.GPU), {})
        if self.capacity is not None and len(self.placed.intersection(held)) > self.capacity:
            self.doubts.add("capacity")

    def gap(self, last: int, *, keep: bool) -> None:
        if keep:
            self.doubts.add("gap")
            for lane in self.lanes.values():
                for held in lane.values():
                    held.copies, held.fresh = 1, False
        else:
            self.begin_generation()
            self.shortfalls.add("gap")
        self.sequence = last

    def cleared(self) -> None:
        """The engine says it is empty: nothing is missing and nothing in doubt from here on."""
        sequence = self.sequence
        self.begin_generation()
        self.sequence, self.complete = sequence, True

    def cleared_by_operator(self) -> None:
        sequence = self.sequence
        self.begin_generation()
        self.sequence = sequence
        if sequence is not None:
            self.shortfalls.add("operator")

    def stored(self, lane: LaneKey, hashes: Sequence[int], parent: int | None, now: float, *, dense: bool) -> None:
        """`dense`: the event's tokens say which blocks these are (and its group is one whose events may)."""
        self.learn(lane[0], sized=dense)
        if dense and lane[0] in self.mains:
            self._tell(hashes, parent, trusted=lane[1] is Tier.GPU)
            self._weigh_again(lane, hashes, parent)
        for engine_hash in hashes:
            self._one_more(lane, engine_hash, now)
        self._place(now)

    def _weigh_again(self, lane: LaneKey, hashes: Sequence[int], parent: int | None) -> None:
        """What is held is not computed anew, but for the last block, or by several requests at once."""
        again = sum(h in self.lanes.get(lane, {}) and h in self.placed for h in hashes)
        placed = parent is None or parent in self.placed
        counted = placed and lane == (self.home, Tier.GPU) and self.count_copies
        if again > 1 and counted and not (self.taken_back or self.doubts):
            self.doubts.add("again")

    def learn(self, group: int, *, sized: bool) -> None:
        """A store named this group, and perhaps the size of its blocks."""
        self.seen_groups.add(group)
        if sized:
            self.sized_groups.add(group)
        if self.home is None and self.groups[group].full:
            self.home = group

    @property
    def mains(self) -> set[int]:
        """Full-attention groups in the block size of the first one: all that is counted in blocks."""
        home_sized = self.home in self.sized_groups
        return {g for g in self.seen_groups if self.groups[g].full and (g in self.sized_groups) == home_sized}

    def _tell(self, hashes: Sequence[int], parent: int | None, *, trusted: bool) -> None:
        """Tokens say which blocks these are. Offload stores are believed only beyond the last block that is known."""
        first = 0 if trusted else 1 + max((i for i, h in enumerate(hashes) if h in self.placed), default=-1)
        before = parent if not first else hashes[first - 1]
        for engine_hash in hashes[first:]:
            self.told[engine_hash] = before
            before = engine_hash

    def removed(self, lane: LaneKey, hashes: Iterable[int]) -> None:
        for engine_hash in hashes:
            held = self.lanes.get(lane, {}).get(engine_hash)
            if held is None:
                continue
            held.copies -= 1
            if lane[1] is Tier.GPU and engine_hash in self.placed:
                self.taken_back = self.taken_back or not held.copies
                self.doubts.discard("again")
            if not held.copies:
                self._drop(lane, engine_hash)

    def expire(self, now: float) -> None:
        for lane, entries in self.lanes.items():
            for engine_hash, held in list(entries.items()):
                if held.deadline is not None and held.deadline <= now:
                    self._drop(lane, engine_hash)
                    self.shortfalls.add("expired")

    def _one_more(self, lane: LaneKey, engine_hash: int, now: float) -> None:
        entries = self.lanes.setdefault(lane, {})
        held = entries.get(engine_hash)
        if held is None:
            held = entries[engine_hash] = Held(1, fresh=True)
        elif not held.fresh:
            held.fresh = True
        elif self.count_copies:
            held.copies += 1
        if lane[1] in self.ttls and engine_hash in self.placed:
            held.deadline = now + self.ttls[lane[1]]

    def _drop(self, lane: LaneKey, engine_hash: int) -> None:
        del self.lanes[lane][engine_hash]
        if engine_hash not in self.placed and not any(engine_hash in entries for entries in self.lanes.values()):
            self.told.pop(engine_hash, None)

    def _place(self, now: float) -> None:
        """Blocks whose chain of parents is known have their content."""
        progress = True
        while progress:
            progress = False
            for engine_hash in [h for h in self.told if h not in self.placed]:
                before = self.told[engine_hash]
                if before is None or before in self.placed:
                    progress = True
                    self.placed.add(engine_hash)
                    self._start_living(engine_hash, now)

    def _start_living(self, engine_hash: int, now: float) -> None:
        for (_, tier), entries in self.lanes.items():
            if tier in self.ttls and engine_hash in entries:
                entries[engine_hash].deadline = now + self.ttls[tier]

    def lacks_parent(self, lane: LaneKey, engine_hash: int) -> bool:
        """Whether, after a kept gap, the block is known and yet not held on that lane.

        No engine names such a parent, unless its announcement was lost: that case has tests of its own.
        """
        return (
            "gap" in self.doubts
            and self.groups[lane[0]].full
            and engine_hash in self.placed
            and engine_hash not in self.lanes.get(lane, {})
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def expected(self, contents: Sequence[int], prompt_tokens: int, *, partial: bool) -> Expected:
        """The answer for a prompt whose whole blocks have these contents."""
        on_lane = {lane: {self.content[h] for h in entries if h in self.placed} for lane, entries in self.lanes.items()}
        mains = self.mains
        best: list[Tier] = []
        for content in contents:
            tiers = [
                min((tier for tier in Tier if content in on_lane.get((group, tier), ())), default=None)
                for group in mains
            ]
            if not mains or None in tiers:
                break
            best.append(max(tier for tier in tiers if tier is not None))
        matched = len(best)
        limit = matched if partial else min(matched, max(0, prompt_tokens - 1) // BLOCK)
        held_by_group = {
            group: set().union(*(found for (g, _), found in on_lane.items() if g == group))
            for group in self.seen_groups
        }
        return Expected(
            matched * BLOCK,
            self._reusable(contents, limit * BLOCK, held_by_group),
            tuple(best.count(tier) * BLOCK for tier in Tier),  # type: ignore[arg-type]  # five tiers
            tuple(
                next((i for i, tier in enumerate(best) if tier > worst), matched) * BLOCK
                for worst in (Tier.GPU, Tier.CPU, Tier.STORAGE, Tier.REMOTE)
            ),  # type: ignore[arg-type]  # four views
            as_summed(sum(WEIGHTS[tier] for tier in best) * BLOCK / prompt_tokens if prompt_tokens else 0.0),
        )

    def _reusable(self, contents: Sequence[int], limit: int, held: dict[int, set[int]]) -> int:
        windows = [(g, self.groups[g]) for g in self.seen_groups if self._rule_known(g)]
        step = lcm(BLOCK, *(group.size for _, group in windows))
        return max(
            (
                length
                for length in range(0, limit + 1, step)
                if all(self._window_holds(contents, length, held[g], group) for g, group in windows)
            ),
            default=0,
        )

    def _window_holds(self, contents: Sequence[int], length: int, held: set[int], group: Group) -> bool:
        needed = ceil(((group.window or 0) - 1) / group.size)
        last = length // group.size
        ends = [(block + 1) * group.size // BLOCK - 1 for block in range(max(0, last - needed), last)]
        return all(contents[end] in held for end in ends)

    # -- trust ---------------------------------------------------------------------------------------------------------

    def _rule_known(self, group: int) -> bool:
        """A window is given and both its block size and a full group's were seen."""
        return bool(self.groups[group].window) and {group, self.home} <= self.sized_groups

    @property
    def rule_missing(self) -> bool:
        return any(not self._rule_known(g) for g in self.seen_groups - self.mains)

    @property
    def waiting(self) -> bool:
        """Whether blocks are held of which it is not known which they are."""
        return any(h not in self.placed for entries in self.lanes.values() for h in entries)

    def bound_of(self, may_be_gone: bool) -> str:
        """Of a match: with blocks whose end is never announced it is none from below."""
        if not may_be_gone:
            return self.bound
        return "upper" if self.bound in {"exact", "upper"} else "estimate"

    @property
    def bound(self) -> str:
        may_miss = not self.complete or bool(self.shortfalls) or self.waiting
        if self.doubts or (self.rule_missing and may_miss):
            return "estimate"
        if self.rule_missing:
            return "upper"
        return "lower" if may_miss else "exact"

    def state(self, now: float) -> str:
        if self.sequence is None:
            return "syncing" if self.syncing else "new"
        silent_s = float("inf") if self.alive_at is None else now - self.alive_at
        if silent_s >= SCORE_TTL_S:
            return "down"
        if silent_s >= STALE_AFTER_S:
            return "stale"
        if self.syncing:
            return "syncing"
        return "suspect" if self.doubts else "live"

    def scored(self, now: float) -> bool:
        return self.state(now) not in {"new", "down"} and not self.cordoned
