"""One source: its registration, its facts, its reverse map and its place in the mirror. Pure.

What outlives a generation (what kinds its groups have, its block size, its counters) and what does not (map, slot,
history) are kept apart here, since a restart or clear must be O(1): a new slot, a new map, and nothing else is
touched.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from indexer.index.ghosts import Ghosts
from indexer.index.records import FULL_KINDS, LANES_MAX, WINDOW_KINDS, LaneTable
from indexer.index.reverse_map import Lane, ReverseMap
from indexer.index.states import SourceFacts
from indexer.model import GroupInfo, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.index.mirror import Mirror
    from indexer.model import BlocksStored, Descriptor


class SourceIndex:
    """All the core knows about one registered source."""

    def __init__(
        self,
        descriptor: Descriptor,
        mirror: Mirror,
        *,
        generation: int,
        orphans_max: int,
        tier_ttls: Mapping[Tier, float] = MappingProxyType({}),
    ) -> None:
        self.descriptor = descriptor
        self.facts = SourceFacts(generation)
        self.lane_table = LaneTable()
        self.groups: dict[int, GroupInfo] = {}
        self.home_group: int | None = None
        self.block_size: int | None = None
        self.lookahead = 0
        self.rules: tuple[tuple[int, GroupInfo], ...] = ()
        """The groups besides the main ones whose hit rule must hold too (sliding windows), by group number."""
        self.adapters: dict[str, None] = {}
        self.counters: Counter[str] = Counter()
        self.warnings: dict[str, str] = {}
        self.slot = mirror.open_slot(self.lane_table)
        self.since = 0.0
        self.ghosts: Ghosts | None = None
        self._most_copies = 0
        self._orphans_max = orphans_max
        self._tier_ttls = tier_ttls
        self.map = ReverseMap(orphans_max=orphans_max)

    @property
    def shape(self) -> tuple[int, int | None, int, int]:
        """What lookups group sources by: changes seldom."""
        return self.slot, self.block_size, self.lookahead, len(self.adapters)

    @property
    def pairs(self) -> int:
        """(engine hash, lane) pairs held."""
        return self.map.pairs

    @property
    def copies(self) -> int:
        """Physical copies over all lanes."""
        return sum(lane.pairs + lane.extra_copies for lane in self.map.lanes.values())

    def begin_generation(self, mirror: Mirror, generation: int) -> ReverseMap:
        """Nothing of before counts any more; the old map comes back to be freed in slices. O(1)."""
        old = self.map
        if old.pairs:
            mirror.retire(self.slot)
            self.slot = mirror.open_slot(self.lane_table)
        self.map = ReverseMap(orphans_max=self._orphans_max)
        self.facts.forget_history(generation)
        self.lookahead = 0  # a new process may hash without; stores tell it anew
        self.ghosts = None
        self._most_copies = 0
        return old

    @property
    def gpu_lane(self) -> Lane | None:
        """The lane of the main group in GPU memory: what an engine's capacity in blocks is about."""
        return self.map.lanes.get((self.home_group or 0, Tier.GPU))

    def keep_gap(self) -> None:
        """Batches are lost and what is known is kept: counts begin again, and some of it may be ghosts."""
        self.map.forget_counts()
        gpu = self.gpu_lane
        if self.ghosts is None and gpu is not None:
            self.ghosts = Ghosts(gpu)
        self.facts.doubts.add("gap")
        self.facts.missed_stores = True

    def note_copies(self) -> None:
        """Remember the most that was held while nothing was in doubt: an engine that evicts is full."""
        gpu = self.gpu_lane
        if gpu is not None:
            self._most_copies = max(self._most_copies, gpu.pairs + gpu.extra_copies)

    @property
    def capacity(self) -> int | None:
        """Blocks the engine can hold: told, or seen in this generation once it had to evict; None where neither."""
        if self.descriptor.blocks_total is not None:
            return self.descriptor.blocks_total
        return self._most_copies if self._most_copies and self.counters["removed"] else None

    def lane(self, group: int, tier: Tier) -> Lane | None:
        """The lane, made on first use; None when the source has too many."""
        lane = self.map.lanes.get((group, tier))
        if lane is None:
            number = self.lane_table.number(group, tier)
            if number is None:
                return None
            lane = self.map.lanes[group, tier] = Lane(number, group, tier, self._tier_ttls.get(tier))
        return lane

    def learn(self, event: BlocksStored, mirror: Mirror) -> None:
        """Take in what a store tells about its group. Most stores tell nothing new."""
        known = self.groups.get(event.group)
        if known is None and len(self.groups) >= LANES_MAX:
            return  # no lane is left for it either
        if (
            known is not None
            and (event.kind is None or event.kind == known.kind)
            and event.block_size in (0, known.block_size)
        ):
            return
        kind = event.kind if event.kind is not None or known is None else known.kind
        window = event.window if event.window is not None or known is None else known.window
        size = event.block_size or (known.block_size if known else 0)
        self.groups[event.group] = GroupInfo(kind, window, size)
        main = tuple(sorted(group for group, info in self.groups.items() if self._is_main(group, info)))
        if self.home_group not in main:
            self.home_group = main[0] if main else None
        others = sorted(group for group in self.groups if group not in main)
        self.rules = tuple((group, self.groups[group]) for group in others if self._has_rule(self.groups[group]))
        self.facts.rule_missing = len(self.rules) < len(others)
        if self.lane_table.set_main_groups(main):
            mirror.book.refresh_slot(self.slot)

    def _has_rule(self, info: GroupInfo) -> bool:
        """A sliding window whose blocks lie on the borders of the main group's: finer ones have no place in a walk."""
        home = self.groups.get(self.home_group) if self.home_group is not None else None
        step = home.block_size if home is not None else 0
        return (
            info.kind in WINDOW_KINDS and bool(info.window and info.block_size and step) and not info.block_size % step
        )

    def _is_main(self, group: int, info: GroupInfo) -> bool:
        """Full attention by kind; engines that name no kinds have one group, number 0."""
        return info.kind in FULL_KINDS or (info.kind is None and group == 0)
