"""The reverse map: copies, aliases, marks since a gap, mappings of what went, and what waits."""

from __future__ import annotations

import pytest

from indexer.index.lane import NONE, SHARDS, Lane
from indexer.index.reverse_map import FREED_AT_ONCE, GRACE_MAX, ReverseMap, Waiting
from indexer.model import Tier

H, T = 0xABC, 0x111
"""An engine hash and its token hash."""


def lane_in(reverse: ReverseMap, group: int = 0, tier: Tier = Tier.GPU, ttl_s: float | None = None) -> Lane:
    """A lane of that map."""
    lane = reverse.lanes[group, tier] = Lane(len(reverse.lanes), group, tier, ttl_s)
    return lane


def hold(lane: Lane, engine_hash: int, token_hash: int) -> None:
    """As the plan does with a new one."""
    lane.maps[engine_hash % SHARDS][engine_hash] = token_hash
    lane.pairs += 1


@pytest.fixture
def reverse() -> ReverseMap:
    """With a bound that these tests do not reach."""
    return ReverseMap(orphans_max=100)


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_hash_goes_with_its_last_copy(reverse: ReverseMap) -> None:
    """Each copy is announced and removed on its own."""
    lane = lane_in(reverse)
    hold(lane, H, T)
    lane.again(H, count_copies=True)
    lane.again(H, count_copies=True)

    assert (3, 1, 2) == (lane.count(H), lane.pairs, lane.extra_copies)
    assert [([], []), ([], []), ([T], []), ([], [H])] == [reverse.drop(lane, [H]) for _ in range(4)]
    assert (0, 0, 0, None) == (lane.count(H), lane.pairs, lane.extra_copies, lane.get(H))


def test_copies_are_not_counted_where_told_so(reverse: ReverseMap) -> None:
    """For engines that announce again what they hold: the first removal ends it."""
    lane = lane_in(reverse)
    hold(lane, H, T)
    lane.again(H, count_copies=False)

    assert 1 == lane.count(H)
    assert ([T], []) == reverse.drop(lane, [H])


def test_a_token_hash_goes_with_the_last_engine_hash(reverse: ReverseMap) -> None:
    """Presence is the union over them."""
    lane = lane_in(reverse)
    for engine_hash in (1, 2, 3):
        hold(lane, engine_hash, T)
    lane.one_alias_more(T)
    lane.one_alias_more(T)

    assert [[], [], [T]] == [reverse.drop(lane, [engine_hash])[0] for engine_hash in (2, 1, 3)]
    assert 0 == lane.alias_count(T) == lane.alias_entries


def test_several_removals_at_once(reverse: ReverseMap) -> None:
    """Known, unknown and twice the same: each counts by itself."""
    lane = lane_in(reverse)
    for engine_hash in range(5):
        hold(lane, engine_hash, 100 + engine_hash)
    lane.again(1, count_copies=True)

    assert ([100, 101, 104], [77, 0]) == reverse.drop(lane, [0, 1, 77, 1, 4, 0])
    assert [(2, 102), (3, 103)] == sorted(lane.items())
    assert 2 == lane.pairs == reverse.pairs


# -- since a gap -------------------------------------------------------------------------------------------------------


def test_after_a_kept_gap_everything_counts_once(reverse: ReverseMap) -> None:
    """A removal ends it; its first new announcement sets its count to one, the second to two."""
    lane = lane_in(reverse)
    for engine_hash in (1, 2, 3):
        hold(lane, engine_hash, 100 + engine_hash)
        lane.again(engine_hash, count_copies=True)

    reverse.forget_counts()

    assert (1, 0) == (lane.count(1), lane.extra_copies)
    assert not lane.announced(1)
    assert ([101], []) == reverse.drop(lane, [1])
    lane.again(2, count_copies=True)
    assert (1, True) == (lane.count(2), lane.announced(2))
    lane.again(2, count_copies=True)
    assert (2, 1) == (lane.count(2), lane.extra_copies)
    assert [[], [102]] == [reverse.drop(lane, [2])[0] for _ in range(2)]
    assert not lane.announced(2)


def test_an_entry_from_before_the_gap_that_is_placed_after_it(reverse: ReverseMap) -> None:
    """Is doubted: its next announcement sets its count to one."""
    lane = lane_in(reverse)
    reverse.forget_counts()
    hold(lane, H, T)
    lane.again(H, count_copies=True)
    lane.doubt(H)

    assert not lane.announced(H)
    lane.again(H, count_copies=True)
    assert (1, True) == (lane.count(H), lane.announced(H))


def test_marks_go_with_their_entries_alone(reverse: ReverseMap) -> None:
    """In one removal of several: what has copies left stays announced."""
    lane = lane_in(reverse)
    reverse.forget_counts()
    for engine_hash in (1, 2):
        hold(lane, engine_hash, 100 + engine_hash)
        lane.again(engine_hash, count_copies=True)
    lane.again(2, count_copies=True)

    assert ([101], []) == reverse.drop(lane, [1, 2])
    assert [False, True] == [lane.announced(engine_hash) for engine_hash in (1, 2)]


def test_before_any_gap_everything_counts_as_announced(reverse: ReverseMap) -> None:
    """Nothing is in doubt, and doubting has no effect."""
    lane = lane_in(reverse)
    hold(lane, H, T)
    lane.doubt(H)

    assert lane.announced(H)


# -- mappings of what went ---------------------------------------------------------------------------------------------


def test_what_went_is_remembered_for_a_while(reverse: ReverseMap) -> None:
    """An offload placeholder may name it: at least the newest so many, at most twice that."""
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    for engine_hash in range(3 * GRACE_MAX):
        hold(gpu, engine_hash, 10_000 + engine_hash)
        reverse.drop(gpu, [engine_hash])

    newest, oldest = 3 * GRACE_MAX - 1, 0
    assert 10_000 + newest == reverse.resolve(newest) == reverse.gone(newest)
    assert 10_000 + 2 * GRACE_MAX == reverse.resolve(2 * GRACE_MAX)
    assert reverse.resolve(oldest) is None
    assert GRACE_MAX <= len(reverse.gone_by_token()) <= 2 * GRACE_MAX
    assert newest == reverse.gone_by_token()[10_000 + newest]
    hold(cpu, oldest, 5)
    assert 5 == reverse.resolve(oldest) == reverse.resolve(oldest, gpu) == reverse.resolve(oldest, cpu)


def test_a_lane_is_asked_first(reverse: ReverseMap) -> None:
    """Then any other, then what went."""
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    hold(gpu, H, 1)
    hold(cpu, H, 2)

    assert (2, 1) == (reverse.resolve(H, cpu), reverse.resolve(H, gpu))
    assert reverse.resolve(99, gpu) is None


# -- time to live ------------------------------------------------------------------------------------------------------


def due(lane: Lane, now: float) -> list[int]:
    """All that is overdue, one piece after the other."""
    out: list[int] = []
    while (piece := lane.overdue_slice(now)) is not None:
        out += piece
    return sorted(out)


def test_entries_fall_due_after_their_last_announcement(reverse: ReverseMap) -> None:
    """Announcing again begins the time anew; copies beyond the last go with the entry's time."""
    lane = lane_in(reverse, ttl_s=10.0)
    for engine_hash in (1, 2, 3):
        hold(lane, engine_hash, 100 + engine_hash)
    lane.renew([1, 2], now=1.0)
    lane.renew([3], now=2.0)
    lane.renew([1], now=5.0)
    lane.again(2, count_copies=True)

    assert [] == due(lane, 10.9)
    assert [2] == due(lane, 11.0)
    assert 0 == lane.extra_copies
    reverse.drop(lane, [2])
    assert [3] == due(lane, 12.5)
    reverse.drop(lane, [3])
    assert [1] == due(lane, 15.5)


def test_a_life_goes_on(reverse: ReverseMap) -> None:
    """Of entries announced at different moments, also long ago."""
    lane = lane_in(reverse, ttl_s=10.0)
    for engine_hash in (1, 2):
        hold(lane, engine_hash, 100 + engine_hash)
    lane.resume([1, 2], [3.0, -20.0])
    lane.resume([], [])

    assert -10.0 == lane.due_at
    assert [2] == due(lane, 5.0)
    reverse.drop(lane, [2])
    assert [1] == due(lane, 13.0)


def test_without_a_time_to_live_nothing_falls_due(reverse: ReverseMap) -> None:
    """Tiers whose removals are announced."""
    lane = lane_in(reverse)
    lane.renew([1], now=0.0)
    lane.resume([1], [0.0])

    assert lane.deadlines is None
    assert lane.overdue_slice(1e9) is None


# -- what waits --------------------------------------------------------------------------------------------------------


def park(reverse: ReverseMap, engine_hash: int, parent: int, lane: Lane) -> bool:
    """A block whose parent is not known."""
    return reverse.park(engine_hash, parent, b"local", lane, count_copies=True)


def wait(reverse: ReverseMap, engine_hash: int, lane: Lane) -> bool:
    """A hash whose block is not known."""
    return reverse.wait_for_tokens(engine_hash, lane, count_copies=True)


def test_children_wait_for_their_parent(reverse: ReverseMap) -> None:
    """Each once, in order; then nobody waits."""
    lane = lane_in(reverse)
    assert all(park(reverse, child, 50, lane) for child in (1, 2))
    assert park(reverse, 3, 1, lane)

    assert 3 == reverse.waiting
    assert {1, 2} == {reverse.take_child(50), reverse.take_child(50)}
    assert reverse.take_child(50) is None
    assert [1, 3] == [engine_hash for engine_hash, _ in reverse.take_run(1, 9)]
    assert [2] == [engine_hash for engine_hash, _ in reverse.take_run(2, 9)]
    assert (0, {}) == (reverse.waiting, reverse.children)


def test_a_run_of_parked_blocks_ends_where_it_forks_or_changes_lanes(reverse: ReverseMap) -> None:
    """Or where it is long enough."""
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    for child in range(1, 9):
        park(reverse, child, child - 1, gpu)
    park(reverse, 99, 3, gpu)
    park(reverse, 9, 8, cpu)

    assert 1 == reverse.take_child(0)
    assert [1, 2, 3] == [engine_hash for engine_hash, _ in reverse.take_run(1, 50)]
    assert {99, 4} == {reverse.take_child(3), reverse.take_child(3)}
    assert [4, 5] == [engine_hash for engine_hash, _ in reverse.take_run(4, 2)]
    assert 6 == reverse.take_child(5)
    assert [6, 7, 8] == [engine_hash for engine_hash, _ in reverse.take_run(6, 50)]
    assert {9, 99} == set(reverse.orphans)


def test_counts_are_cut_into_pieces_like_the_maps(reverse: ReverseMap) -> None:
    """So that none grows for long; and what no lane has yet is shared, and stays empty."""
    one, other = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    for number in range(6_400):
        one.again(number, count_copies=True)
        one.one_alias_more(number)

    for pieces in (one.copies, one.aliases):
        assert SHARDS == len(pieces)
        assert 100 == max(map(len, pieces))
    assert [{}] * SHARDS == NONE == other.copies == other.aliases
    assert (2, 1, 1, 0) == (one.copies[5][5], one.alias_count(5), other.copies[5].get(5, 1), other.alias_count(5))


def test_copies_that_wait(reverse: ReverseMap) -> None:
    """Counted as those that are placed; each removal takes one, the last one the place."""
    lane = lane_in(reverse)
    for _ in range(3):
        park(reverse, 1, 50, lane)
        wait(reverse, 2, lane)
    assert (
        3 == reverse.copies_waited(reverse.orphans[1].waited) == reverse.copies_waited(reverse.unplaced[2][0, Tier.GPU])
    )

    for engine_hash in (1, 2):
        assert [True, True, True, False] == [reverse.drop_waiting(engine_hash, lane) for _ in range(4)]
    assert (0, {}, {}) == (reverse.waiting, reverse.children, reverse.unplaced)


def test_copies_that_wait_are_not_counted_where_told_so(reverse: ReverseMap) -> None:
    """As with those that are placed."""
    lane = lane_in(reverse)
    for _ in range(2):
        reverse.park(1, 50, b"", lane, count_copies=False)
        reverse.wait_for_tokens(2, lane, count_copies=False)

    assert [True, False, True, False] == [reverse.drop_waiting(h, lane) for h in (1, 1, 2, 2)]


def test_a_gap_makes_waiting_copies_doubtful(reverse: ReverseMap) -> None:
    """One from before: a removal ends it, a new announcement sets its count to one."""
    lane = lane_in(reverse)
    for engine_hash in (1, 2):
        park(reverse, engine_hash, 50, lane)
        park(reverse, engine_hash, 50, lane)
        wait(reverse, 10 + engine_hash, lane)
        wait(reverse, 10 + engine_hash, lane)

    reverse.forget_counts()

    assert 0 == reverse.copies_waited(reverse.orphans[1].waited)
    assert [True, False, True, False] == [reverse.drop_waiting(h, lane) for h in (1, 1, 11, 11)]
    park(reverse, 2, 50, lane)
    wait(reverse, 12, lane)
    assert 1 == reverse.copies_waited(reverse.orphans[2].waited)
    assert {(0, Tier.GPU): Waiting(1, 1)} == reverse.take_unplaced(12)
    park(reverse, 2, 50, lane)
    assert 2 == reverse.copies_waited(reverse.orphans[2].waited)


def test_a_parked_block_on_a_second_lane(reverse: ReverseMap) -> None:
    """Waits there too; when the first lane's copy goes the other one keeps what is known of it."""
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    park(reverse, 1, 50, gpu)
    park(reverse, 1, 50, cpu)
    park(reverse, 1, 50, cpu)
    assert ({1}, {1}) == (set(reverse.orphans), set(reverse.unplaced))

    assert reverse.drop_waiting(1, gpu)

    assert (cpu, 2, {}) == (reverse.orphans[1].lane, reverse.copies_waited(reverse.orphans[1].waited), reverse.unplaced)
    assert not reverse.drop_waiting(1, gpu)
    assert 1 == reverse.take_child(50)


def test_a_parked_block_on_three_lanes(reverse: ReverseMap) -> None:
    """Goes with the last of them."""
    lanes = [lane_in(reverse, tier=tier) for tier in (Tier.GPU, Tier.CPU, Tier.STORAGE)]
    for lane in lanes:
        park(reverse, 1, 50, lane)

    assert all(reverse.drop_waiting(1, lane) for lane in lanes)
    assert (0, {}, {}) == (reverse.waiting, reverse.children, reverse.unplaced)


def test_a_sibling_that_goes_leaves_the_others(reverse: ReverseMap) -> None:
    """And removals on lanes where nothing waits take nothing."""
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    park(reverse, 1, 50, gpu)
    park(reverse, 2, 50, gpu)
    wait(reverse, 3, cpu)
    wait(reverse, 3, gpu)

    assert not reverse.drop_waiting(1, cpu)
    assert reverse.drop_waiting(1, gpu)
    assert reverse.drop_waiting(3, gpu)
    assert [2] == list(reverse.children[50])
    assert {3: {(0, Tier.CPU): Waiting(1, 0)}} == reverse.unplaced


def test_the_bound_on_what_waits() -> None:
    """At the bound nothing new is kept; copies and second lanes of what waits already need no place."""
    reverse = ReverseMap(orphans_max=2)
    gpu, cpu = lane_in(reverse), lane_in(reverse, tier=Tier.CPU)
    assert park(reverse, 1, 50, gpu)
    assert wait(reverse, 2, gpu)

    assert [False, False] == [park(reverse, 3, 50, gpu), wait(reverse, 3, gpu)]
    assert [True, True, True] == [park(reverse, 1, 50, gpu), wait(reverse, 2, gpu), wait(reverse, 2, cpu)]
    assert not park(reverse, 1, 50, cpu)
    assert reverse.drop_waiting(2, gpu)
    assert reverse.drop_waiting(2, gpu)
    assert reverse.drop_waiting(2, cpu)
    assert park(reverse, 3, 50, gpu)


# -- freeing -----------------------------------------------------------------------------------------------------------


def test_a_dropped_map_is_freed_in_slices() -> None:
    """Each of them bounded in entries, whatever kind they are."""
    reverse = ReverseMap(orphans_max=10**6)
    each = 2 * FREED_AT_ONCE
    for tier in (Tier.GPU, Tier.CPU):
        lane = lane_in(reverse, tier=tier)
        for engine_hash in range(each):
            lane.maps[engine_hash % SHARDS][engine_hash] = engine_hash
        lane.pairs = each
        for number in range(each):
            lane.again(number, count_copies=True)
            lane.one_alias_more(number)
    for engine_hash in range(each):
        park(reverse, engine_hash, 10**6 + engine_hash, lane)
    assert not reverse.is_small

    slices, left = 0, entries_of(reverse)
    while reverse.free_slice():
        slices += 1
        before, left = left, entries_of(reverse)
        assert lane.count(each - 1) in {0, 1, 2}  # a view made in steps may still hold the lane
        assert before - left <= FREED_AT_ONCE + each // SHARDS

    assert slices >= 8 * each // FREED_AT_ONCE - 1
    assert (0, {}, {}, {}) == (entries_of(reverse), reverse.lanes, reverse.orphans, reverse.children)
    assert not reverse.free_slice()


def entries_of(reverse: ReverseMap) -> int:
    """All that its dicts hold."""
    lanes = reverse.lanes.values()
    held = sum(len(piece) for lane in lanes for piece in (*lane.maps, *lane.copies, *lane.aliases))
    return held + len(reverse.orphans) + len(reverse.children) + len(reverse.unplaced)


def test_a_small_map_needs_no_slices(reverse: ReverseMap) -> None:
    """It is freed as a whole."""
    assert reverse.is_small
    hold(lane_in(reverse), H, T)
    assert reverse.is_small
