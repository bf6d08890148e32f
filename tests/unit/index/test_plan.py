"""The plan's rare turns: events applied to a source, and what is left of them in map and mirror.

What events mean for answers stands in tests/unit/ingest, story by story.
"""

from __future__ import annotations

from typing import Any

from indexer.index.mirror import Mirror
from indexer.index.plan import Planner
from indexer.index.reverse_map import GRACE_MAX
from indexer.index.source import SourceIndex
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Descriptor, Event, Skipped, Tier
from tests.support.core_events import BLOCK, prompt, u32

FULL, MLA = "full_attention", "mla_attention"


class Applied:
    """A planner with sources of its own."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.cleared: list[str] = []
        self.faults: list[Exception] = []
        self.planner = Planner(
            self.mirror, self.mirror, lambda source: self.cleared.append(source.descriptor.pod), self.faults.append
        )
        self.source = self.add("pod")

    def add(self, pod: str) -> SourceIndex:
        return SourceIndex(Descriptor(pod=pod), self.mirror, generation=1, orphans_max=100)

    def apply(self, *events: Event, source: SourceIndex | None = None) -> None:
        self.planner.apply(source or self.source, events)

    def held(self, group: int = 0, tier: Tier = Tier.GPU) -> list[int]:
        """Engine hashes on a lane."""
        lane = self.source.map.lanes.get((group, tier))
        return [] if lane is None else sorted(dict(lane.items()))


def store(hashes: list[int], tokens: list[int], parent: int | None = None, **fields: Any) -> BlocksStored:  # noqa: ANN401
    """A store as the decoder gives it."""
    told = {"block_size": BLOCK, "tier": Tier.GPU, "tokens_ok": True, **fields}
    return BlocksStored(hashes=tuple(hashes), parent=parent, tokens=u32(tokens), **told)


def remove(*hashes: int, group: int = 0, tier: Tier = Tier.GPU) -> BlocksRemoved:
    """A removal as the decoder gives it."""
    return BlocksRemoved(hashes=hashes, tier=tier, group=group)


def test_each_kind_of_event() -> None:
    """Stores and removals change presence, a clear is passed on, a skipped one is counted by its reason."""
    applied = Applied()
    applied.apply(
        store([1, 2], prompt(2)),
        remove(2),
        AllCleared(),
        Skipped("unknown_kind", suspect=True),
        Skipped("stored_malformed", suspect=False),
    )

    assert [1] == applied.held()
    assert ["pod"] == applied.cleared
    facts = applied.source.facts
    assert ({"unknown_kind"}, {"stored_malformed"}) == (facts.doubts, facts.shortfalls)
    assert [] == applied.faults


def test_order_within_a_batch() -> None:
    """Removed and stored again, stored and removed: as they come."""
    applied = Applied()
    applied.apply(store([1], prompt(1)), remove(1), store([1], prompt(1)))
    assert [1] == applied.held()

    applied.apply(store([2], prompt(1, 4), parent=1), remove(2))
    assert [1] == applied.held()


def test_a_block_size_that_two_full_groups_change() -> None:
    """Said once, for the group that everything is counted in; neither group's new blocks are placed."""
    applied = Applied()
    groups = [{"group": 0, "kind": FULL}, {"group": 1, "kind": MLA}]
    for told in groups:
        applied.apply(store([1, 2], prompt(2), **told))
    for told in groups:
        applied.apply(store([9], prompt(2), block_size=8, **told))

    assert [1, 2] == applied.held(0) == applied.held(1)
    assert 1 == applied.source.counters["skipped.block_size_changed"]
    assert 1 == len(applied.source.map.unplaced)


def test_a_new_block_size_once_nothing_is_held() -> None:
    """Is taken up: nothing stands against it."""
    applied = Applied()
    applied.apply(store([1], prompt(1)), remove(1), store([9], prompt(2), block_size=8))

    assert 8 == applied.source.block_size
    assert [9] == applied.held()


def test_reviving_ends_where_a_hash_is_forgotten() -> None:
    """The parent's mapping is remembered, its ancestor's is not: claimed is what a removal could take back."""
    applied = Applied()
    tokens = prompt(3)
    other = applied.add("other")
    applied.apply(store([91, 92, 93], tokens), source=other)
    applied.apply(store([1, 2], tokens[:8]), remove(1))
    for number in range(2 * GRACE_MAX):
        applied.apply(store([1_000 + number], [number] * BLOCK), remove(1_000 + number))
    applied.apply(remove(2))
    applied.source.keep_gap()

    applied.apply(store([3], tokens[8:], parent=2))

    assert [2, 3] == applied.held()
    assert 1 == applied.source.counters["revived"]


def test_reviving_ends_where_the_lane_holds_the_block() -> None:
    """Another group lacks it: that is the other group's affair."""
    applied = Applied()
    tokens = prompt(3)
    for told in ({"group": 0, "kind": FULL}, {"group": 1, "kind": MLA}):
        applied.apply(store([1, 2], tokens[:8], **told))
    applied.apply(remove(2, 1, group=1), remove(2))
    applied.source.keep_gap()

    applied.apply(store([3], tokens[8:], parent=2))

    assert ([1, 2, 3], []) == (applied.held(0), applied.held(1))
    assert 1 == applied.source.counters["revived"]


def test_ghosts_of_a_group_that_turned_out_otherwise() -> None:
    """The main group has no GPU memory now: there is no capacity to compare with."""
    applied = Applied()
    applied.apply(store([1, 2], prompt(2)))
    applied.source.note_copies()
    applied.source.evicted = True
    applied.source.keep_gap()
    applied.apply(store([1], prompt(1), kind="sliding_window", window=8))
    applied.apply(store([5], prompt(1), tier=Tier.CPU, group=1, kind=FULL))
    assert 1 == applied.source.home_group

    applied.planner.drop_ghosts(applied.source)

    assert [1, 2] == applied.held()


def test_without_a_gap_there_are_no_ghosts() -> None:
    """However much is held."""
    applied = Applied()
    applied.apply(store([1, 2], prompt(2)))

    applied.planner.drop_ghosts(applied.source)

    assert [1, 2] == applied.held()


def test_nothing_to_expire() -> None:
    """A lane without a time to live is not looked at."""
    applied = Applied()
    applied.apply(store([1], prompt(1)))
    lane = applied.source.map.lanes[0, Tier.GPU]

    assert not applied.planner.expire_slice(applied.source, lane, 1e9)
    assert [1] == applied.held()


def test_parents_of_token_hashes_are_known() -> None:
    """Links between blocks, for those who ask where a chain comes from; a root has none."""
    applied = Applied()
    applied.apply(store([1, 2], prompt(2)), store([3], prompt(1, 8), parent=2))
    lane = applied.source.map.lanes[0, Tier.GPU]
    one, two, three = (lane.get(number) for number in (1, 2, 3))
    assert one is not None
    assert two is not None
    assert three is not None

    assert (0, one, two) == tuple(applied.mirror.table.parent(each) for each in (one, two, three))
