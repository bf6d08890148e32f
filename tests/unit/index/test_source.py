"""One source: what its stores teach, what a new generation keeps and what another process makes it forget."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.index.lane import SHARDS
from indexer.index.mirror import Mirror
from indexer.index.records import LANES_MAX
from indexer.index.source import SLOTS_WAITING_MIN, VACATED_AT_ONCE, SourceIndex
from indexer.model import BlocksStored, Descriptor, GroupInfo, Tier

FULL, WINDOW = "full_attention", "sliding_window"
WAITING_MAX = SLOTS_WAITING_MIN + 2
"""Slots that wait where there is one source."""


class Taught:
    """A source and its mirror."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.source = SourceIndex(Descriptor(pod="pod", dp_rank=3), self.mirror, generation=1, orphans_max=10)

    def learn(self, group: int, kind: str | None, size: int = 4, window: int | None = None) -> None:
        """One store of that group."""
        event = BlocksStored(
            hashes=(),
            parent=None,
            tokens=b"",
            tokens_ok=True,
            block_size=size,
            tier=Tier.GPU,
            **_told(group, kind, window),
        )
        self.source.learn(event, self.mirror)

    @property
    def groups(self) -> tuple[tuple[int, ...], int | None, list[int], bool]:
        """Main groups, home, groups with a rule of their own, and whether a rule is missing."""
        source = self.source
        return (
            source.lane_table.main_groups,
            source.home_group,
            [group for group, _ in source.rules],
            source.facts.rule_missing,
        )


def _told(group: int, kind: str | None, window: int | None) -> dict[str, Any]:
    return {"group": group, "kind": kind, "window": window}


@pytest.fixture
def taught() -> Taught:
    """Knows nothing yet."""
    return Taught()


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, FULL, "mla_attention", "sink_full_attention"])
def test_one_full_attention_group(taught: Taught, kind: str | None) -> None:
    """Engines that name no kinds have one group, number 0."""
    taught.learn(0, kind)

    assert ((0,), 0, [], False) == taught.groups


@pytest.mark.parametrize("kind", ["mamba", "chunked_local_attention", "cross_attention", "unknown", None, WINDOW])
def test_a_group_whose_rule_is_not_known(taught: Taught, kind: str | None) -> None:
    """Its blocks may lack: the answer is an upper bound. A window group without its window is such a group."""
    taught.learn(0, FULL)
    taught.learn(1, kind)

    assert ((0,), 0, [], True) == taught.groups


@pytest.mark.parametrize("kind", [WINDOW, "sliding_window_mla"])
def test_a_window_group(taught: Taught, kind: str) -> None:
    """Kind, window and block size together make its rule."""
    taught.learn(0, FULL)
    taught.learn(1, kind, size=8, window=128)

    assert ((0,), 0, [1], False) == taught.groups
    assert ((1, GroupInfo(kind, 128, 8)),) == taught.source.rules


def test_a_rule_needs_block_sizes(taught: Taught) -> None:
    """Placeholders come without one: until a store tells it the rule is not known."""
    taught.learn(1, WINDOW, size=0, window=128)
    assert ((), None, [], True) == taught.groups
    taught.learn(0, FULL, size=0)
    assert ((0,), 0, [], True) == taught.groups
    taught.learn(0, None, size=4)
    assert ((0,), 0, [], True) == taught.groups
    taught.learn(1, None, size=4)

    assert ((0,), 0, [1], False) == taught.groups
    assert ((1, GroupInfo(WINDOW, 128, 4)),) == taught.source.rules


@pytest.mark.parametrize("size", [2, 6])
def test_a_group_of_finer_blocks_has_no_rule(taught: Taught, size: int) -> None:
    """Or of blocks that end elsewhere: they have no place in the walk."""
    taught.learn(0, FULL, size=4)
    taught.learn(1, WINDOW, size=size, window=128)

    assert ((0,), 0, [], True) == taught.groups


def test_several_full_attention_groups(taught: Taught) -> None:
    """Those in the first one's block size must hold every block; larger ones everything, at their own size."""
    taught.learn(2, FULL)
    taught.learn(0, "mla_attention")
    taught.learn(1, FULL, size=8)

    assert ((0, 2), 2, [1], False) == taught.groups
    rule = taught.source.rules[0][1]
    assert 8 == rule.block_size
    assert rule.window is not None
    assert rule.window > 10**9


def test_a_group_that_turns_out_otherwise(taught: Taught) -> None:
    """A later store knows better than an earlier one; a store that says nothing new changes nothing."""
    taught.learn(0, None)
    taught.learn(0, WINDOW, window=64)
    assert ((), None, [], True) == taught.groups
    taught.learn(1, FULL)
    assert ((1,), 1, [0], False) == taught.groups
    taught.learn(0, None, size=0)

    assert ((1,), 1, [0], False) == taught.groups


def test_a_window_that_changes(taught: Taught) -> None:
    """The newer one counts, once it was told twice in a row."""
    taught.learn(0, FULL)
    for window in (64, None, 128, 64, 128):
        taught.learn(1, WINDOW, window=window)
    assert [(1, GroupInfo(WINDOW, 64, 4))] == list(taught.source.rules)

    for window in (128, 128):
        taught.learn(1, WINDOW, window=window)

    assert [(1, GroupInfo(WINDOW, 128, 4))] == list(taught.source.rules)


def test_groups_are_bounded_as_lanes_are(taught: Taught) -> None:
    """An engine that numbers them without end is not followed."""
    for group in range(LANES_MAX + 5):
        taught.learn(group, FULL)

    assert LANES_MAX == len(taught.source.groups)


# -- lanes and numbers -------------------------------------------------------------------------------------------------


def test_lanes_of_a_generation(taught: Taught) -> None:
    """Made on first use, at most sixteen; capacity, pairs and copies are sums over them."""
    source = taught.source
    first = source.lane(0, Tier.GPU)
    assert first is not None
    assert first is source.lane(0, Tier.GPU)
    lanes = [source.lane(group, Tier.CPU) for group in range(LANES_MAX)]
    assert lanes[-1] is None
    assert None not in lanes[:-1]

    first.maps[1][1] = 5
    first.pairs += 1
    first.again(1, count_copies=True)

    assert (1, 2) == (source.pairs, source.copies)


def test_capacity_is_told_or_seen(taught: Taught) -> None:
    """The most that was held, once the engine had to evict; what is told outweighs it."""
    source = taught.source
    source.note_copies()
    taught.learn(0, FULL)
    lane = source.lane(0, Tier.GPU)
    assert lane is not None
    lane.pairs = 7
    source.note_copies()
    lane.pairs = 5
    source.note_copies()

    assert source.capacity is None
    source.evicted = True
    assert 7 == source.capacity
    lane.again(1, count_copies=True)
    lane.pairs = 7
    source.note_copies()
    assert 8 == source.capacity
    source.begin_generation(taught.mirror, 2, same_engine=True)
    assert not source.evicted
    source.evicted = True
    assert source.capacity is None
    told = SourceIndex(Descriptor(pod="b", blocks_total=300), taught.mirror, generation=1, orphans_max=1)
    assert 300 == told.capacity


# -- generations -------------------------------------------------------------------------------------------------------


def fill(taught: Taught, blocks: int) -> None:
    """So many blocks: 5 under engine hash 1, and so on."""
    lane = taught.source.lane(0, Tier.GPU)
    assert lane is not None
    for engine_hash in range(1, blocks + 1):
        lane.maps[engine_hash % SHARDS][engine_hash] = engine_hash + 4
    lane.pairs += blocks
    taught.mirror.add(taught.source.slot, lane.number, list(range(5, 5 + blocks)), [0] * blocks)


def filled(blocks: int = 1) -> Taught:
    """A source of which much is known."""
    taught = Taught()
    taught.learn(0, FULL)
    taught.learn(1, WINDOW, window=64)
    source = taught.source
    fill(taught, blocks)
    source.lookahead, source.block_size = 2, 4
    source.adapters["ad"] = None
    source.warnings.update(block_size="x", clock="z", topic="y")
    source.counters["stored"] += 1
    source.facts.doubts.add("gap")
    return taught


def test_a_clear_keeps_what_is_known_of_the_engine() -> None:
    """Kinds and windows, which removals and placeholders never carry; nothing it held counts any more."""
    taught = filled()
    source, slot = taught.source, taught.source.slot

    old = source.begin_generation(taught.mirror, 2, same_engine=True)

    assert ((0,), 0, [1], False) == taught.groups
    assert (1, 0, 2, set()) == (old.pairs, source.pairs, source.facts.generation, source.facts.doubts)
    assert (slot, 0, 0) == (source.slot, taught.mirror.table.live, taught.mirror.retired_slots())
    assert (2, {"ad": None}, 1) == (source.lookahead, source.adapters, source.counters["stored"])


def test_a_clear_of_much_takes_another_slot() -> None:
    """However much it was, ending it costs nothing: the scrub takes it out later."""
    taught = filled(VACATED_AT_ONCE + 1)
    source, slot = taught.source, taught.source.slot

    source.begin_generation(taught.mirror, 2, same_engine=True)

    assert slot != source.slot
    assert (VACATED_AT_ONCE + 1, 1) == (taught.mirror.table.live, taught.mirror.retired_slots())
    assert not taught.mirror.live_slots >> slot & 1


def test_after_a_fault_even_little_takes_another_slot() -> None:
    """The map may not say all that the mirror knows of the source."""
    taught = filled()
    slot = taught.source.slot
    taught.source.facts.doubts.add("fault")
    taught.mirror.add(slot, 0, [77], [0])  # which the map does not name

    taught.source.begin_generation(taught.mirror, 2, same_engine=True)

    assert slot != taught.source.slot
    assert not taught.mirror.live_slots >> slot & 1


def test_slots_that_wait_for_the_scrub_are_few() -> None:
    """Clears of much that come faster than the scrub cost what they held, and no slot more."""
    taught = filled(VACATED_AT_ONCE + 1)
    source = taught.source
    for generation in range(2, WAITING_MAX + 20):
        source.begin_generation(taught.mirror, generation, same_engine=True)
        fill(taught, VACATED_AT_ONCE + 1)

    assert WAITING_MAX == taught.mirror.retired_slots()
    assert source.slot <= WAITING_MAX


def test_sources_that_leave_at_once_cost_next_to_nothing_each() -> None:
    """However many slots wait already: there are no more of them than there were sources."""
    mirror = Mirror()
    sources = [
        SourceIndex(Descriptor(pod=f"p{n}"), mirror, generation=1, orphans_max=1) for n in range(WAITING_MAX + 20)
    ]
    for source in sources:
        lane = source.lane(0, Tier.GPU)
        assert lane is not None
        for engine_hash in range(VACATED_AT_ONCE + 1):
            lane.maps[engine_hash][engine_hash] = engine_hash + 1
        lane.pairs = VACATED_AT_ONCE + 1
        mirror.add(source.slot, lane.number, range(1, VACATED_AT_ONCE + 2), [0] * (VACATED_AT_ONCE + 1))

    for source in sources:
        source.leave(mirror)

    assert (0, len(sources)) == (mirror.live_slots, mirror.retired_slots())
    assert VACATED_AT_ONCE + 1 == mirror.table.live


def test_all_sources_may_restart_at_once() -> None:
    """None of them waits for the others' scrub."""
    taught = filled(VACATED_AT_ONCE + 1)
    others = [taught.mirror.open_slot(taught.source.lane_table) for _ in range(300)]
    for slot in others:
        taught.mirror.retire(slot)
        taught.mirror.open_slot(taught.source.lane_table)

    taught.source.begin_generation(taught.mirror, 2, same_engine=False)

    assert 301 == taught.mirror.retired_slots()


def test_a_map_that_was_read_beside_leaves_how_long_entries_live_as_it_is() -> None:
    """Else replicas that follow would trust more of a tier without removals than its owner does."""
    mirror, described = Mirror(), Descriptor(pod="pod")
    standing = SourceIndex(described, mirror, generation=1, orphans_max=10, tier_ttls={Tier.STORAGE: 60.0})
    loaded = SourceIndex(described, mirror, generation=2, orphans_max=0)
    loaded.lane(0, Tier.STORAGE)

    standing.stand_as(loaded, mirror)

    assert 2 == standing.facts.generation
    assert standing.has_unannounced_ends
    assert standing.may_be_gone((0, 0, 1, 0, 0))


def test_another_process_may_be_another_engine() -> None:
    """What its groups are, whether it hashes ahead and what adapters it has is told anew."""
    taught = filled()
    source = taught.source

    source.begin_generation(taught.mirror, 2, same_engine=False)

    assert ((), None, [], False) == taught.groups
    assert (0, {}, {"topic": "y"}, 1) == (source.lookahead, source.adapters, source.warnings, source.counters["stored"])


def test_a_generation_that_held_nothing_leaves_its_slot_to_the_next() -> None:
    """Nothing was entered under it: no scrub is needed."""
    taught = Taught()
    slot = taught.source.slot

    for generation in range(2, 200):
        taught.source.begin_generation(taught.mirror, generation, same_engine=generation % 2 == 0)

    assert slot == taught.source.slot
    assert taught.mirror.book.tables == {slot: taught.source.lane_table}
    assert 0 == taught.mirror.retired_slots()


def test_what_lookups_group_sources_by() -> None:
    """Slot, block size, lookahead and adapters: candidates are chosen anew when it changes."""
    taught = filled()
    before = taught.source.shape

    taught.source.adapters["ad2"] = None

    assert before != taught.source.shape


def test_equal_scores_are_ordered_by_pod_and_rank() -> None:
    """Whatever the order of registration; also for names that UTF-8 has no form for."""
    assert b"pod#3" == Taught().source.rendezvous_name
    odd = SourceIndex(Descriptor(pod="\ud800"), Mirror(), generation=1, orphans_max=1)
    assert odd.rendezvous_name.endswith(b"#0")


def test_a_gap_that_is_kept() -> None:
    """What is held counts once and is in doubt; ghosts are looked for from the first gap with a known capacity on."""
    taught = filled()
    source = taught.source
    source.keep_gap()
    assert ({"gap"}, True, None) == (source.facts.doubts, source.facts.missed_stores, source.ghosts)

    source.note_copies()
    source.evicted = True
    source.keep_gap()
    first = source.ghosts
    source.keep_gap()

    assert first is not None
    assert first is source.ghosts
    assert source.gpu_lane is not None
    assert not source.gpu_lane.announced(1)


def test_a_gap_before_anything_was_held() -> None:
    """Nothing can be a ghost."""
    source = SourceIndex(Descriptor(pod="pod", blocks_total=10), Mirror(), generation=1, orphans_max=1)

    source.keep_gap()

    assert (None, {"gap"}) == (source.ghosts, source.facts.doubts)
