"""The mirror: who holds which block on which lane, through growth, moves, retired slots and their scrub."""

from __future__ import annotations

import random

import numpy as np
import pytest

from indexer.index.mirror import ADD_CHUNK, Mirror
from indexer.index.records import LaneTable
from indexer.index.table import CAPACITY_MIN, MOVE_SLOTS, PAD
from indexer.model import Tier
from tests.support.core import check_mirror, table_holders

GPU, CPU = 0, 1


def lanes() -> LaneTable:
    """Lane 0 in GPU memory, lane 1 in CPU memory, one group."""
    table = LaneTable()
    table.set_main_groups((0,))
    assert (GPU, CPU) == (table.number(0, Tier.GPU), table.number(0, Tier.CPU))
    return table


def mirror_with(slots: int, shift: int = 0) -> Mirror:
    """So many open slots, numbered from 0."""
    mirror = Mirror(shift)
    assert list(range(slots)) == [mirror.open_slot(lanes()) for _ in range(slots)]
    return mirror


def add(mirror: Mirror, slot: int, lane: int, hashes: list[int]) -> list[int]:
    """With each hash minus one as parent."""
    return mirror.add(slot, lane, hashes, [each - 1 for each in hashes])


def tidy(mirror: Mirror) -> None:
    """All housekeeping there is."""
    slices = 0
    while mirror.tidy_slice():
        slices += 1
        assert slices < 10_000


def hashes(count: int, seed: int = 1) -> list[int]:
    """As random as hashes are."""
    draw = random.Random(seed)
    return [draw.getrandbits(64) for _ in range(count)]


def test_add_and_remove() -> None:
    """Each lane by itself; the block is held while any lane holds it; its parent is known."""
    mirror = mirror_with(2)

    assert [] == add(mirror, 0, GPU, [10, 20])
    assert [] == add(mirror, 0, CPU, [20])
    assert [] == add(mirror, 1, GPU, [20])
    assert [20] == add(mirror, 0, GPU, [20, 30])

    assert [True, False] == [mirror.holds(0, 10), mirror.holds(1, 10)]
    assert [(0, Tier.GPU), (0, Tier.CPU)] == mirror.lanes(0, 20)
    assert [] == mirror.lanes(1, 10)
    assert (9, 19, 0) == (mirror.table.parent(10), mirror.table.parent(20), mirror.table.parent(99))
    mirror.remove(0, GPU, [20, 99])
    assert [(0, Tier.CPU)] == mirror.lanes(0, 20)
    mirror.remove(0, GPU, [20])
    mirror.remove(0, CPU, [20])
    assert [False, True] == [mirror.holds(0, 20), mirror.holds(1, 20)]
    mirror.remove(1, GPU, [20])
    assert 2 == mirror.table.live
    check_mirror(mirror)


def test_twice_in_one_call() -> None:
    """The second one was held already."""
    mirror = mirror_with(1)

    assert [5, 5] == add(mirror, 0, GPU, [5, 6, 5, 5])
    check_mirror(mirror)


def test_more_blocks_than_a_chunk() -> None:
    """In one call, with the table growing meanwhile."""
    mirror = mirror_with(2, shift=4)
    many = hashes(20 * ADD_CHUNK)

    assert [] == add(mirror, 0, GPU, many)
    assert many == add(mirror, 0, GPU, many)
    assert [] == add(mirror, 1, CPU, many)

    assert len(many) == mirror.table.live
    assert all(mirror.holds(0, each) and mirror.holds(1, each) for each in many)
    check_mirror(mirror)
    mirror.remove(0, GPU, many)
    assert not any(mirror.holds(0, each) for each in many)
    mirror.remove(1, CPU, many)
    tidy(mirror)
    assert (0, CAPACITY_MIN) == (mirror.table.live, mirror.table.current.capacity)
    check_mirror(mirror)


def test_slots_are_used_again_only_after_a_scrub() -> None:
    """What a dead slot held is in no walk at once, and in no record when another gets its bit."""
    mirror = mirror_with(3)
    for slot in range(3):
        add(mirror, slot, GPU, [10, 20 + slot])
    mirror.retire(1)

    assert (0b101, 1) == (mirror.live_slots, mirror.retired_slots())
    assert 3 == mirror.open_slot(lanes())
    tidy(mirror)
    assert 0 == mirror.retired_slots()
    assert 1 == mirror.open_slot(lanes())
    assert [True, False, True] == [mirror.holds(slot, 10) for slot in range(3)]
    assert 3 == mirror.table.live
    check_mirror(mirror)


def test_a_slot_that_dies_during_a_scrub_waits_for_the_next() -> None:
    """A pass serves the slots that were dead when it began."""
    mirror = mirror_with(2)
    for slot in range(2):
        add(mirror, slot, GPU, hashes(3_000, seed=slot))
    while mirror.table.moving():
        mirror.tidy_slice()
    mirror.retire(0)
    assert mirror.tidy_slice()
    mirror.retire(1)
    assert 2 == mirror.open_slot(lanes())

    tidy(mirror)

    assert 0 == mirror.table.live
    assert [0, 1] == [mirror.open_slot(lanes()), mirror.open_slot(lanes())]
    assert 1 == len(mirror.book)
    check_mirror(mirror)


def test_a_scrub_begins_again_when_entries_move() -> None:
    """Blocks added during the pass make the table grow: none of the dead slot's entries escapes."""
    mirror = mirror_with(2)
    add(mirror, 0, GPU, hashes(2_000))
    mirror.retire(0)
    for round_ in range(12):
        mirror.tidy_slice()
        add(mirror, 1, GPU, hashes(800, seed=10 + round_))
        check_mirror(mirror)

    tidy(mirror)

    assert 12 * 800 == mirror.table.live
    assert 0 == mirror.retired_slots()
    check_mirror(mirror)


def test_a_removal_during_a_scrub_moves_nothing_past_it() -> None:
    """A cluster that lies across the scrub's cursor: what is taken out before it must not draw dead entries there."""
    mirror = mirror_with(2)
    home = MOVE_SLOTS - 20  # the first slice of a scrub ends in the middle of the cluster
    cluster = [home * 2 + number * 2 * CAPACITY_MIN for number in range(40)]
    add(mirror, 0, GPU, cluster[:20])
    add(mirror, 1, GPU, cluster[20:])
    mirror.retire(1)
    assert mirror.tidy_slice()

    mirror.remove(0, GPU, cluster[:15])
    tidy(mirror)

    assert set(cluster[15:20]) == set(table_holders(mirror))
    assert (0, [True] * 5) == (mirror.retired_slots(), [mirror.holds(0, key) for key in cluster[15:20]])
    check_mirror(mirror)
    assert 1 == mirror.open_slot(lanes())
    assert not any(mirror.holds(1, key) for key in cluster)
    mirror.remove(0, GPU, cluster)
    assert 0 == mirror.table.live


def test_a_crowd_at_the_end_of_the_table() -> None:
    """Keys of one home fill the pad; the table doubles inside `add` and again inside `remove` while it moves."""
    mirror = mirror_with(2)
    crowd = [(CAPACITY_MIN - 1 << 1) | (number * 2 * CAPACITY_MIN) for number in range(1, PAD + 60)]
    add(mirror, 0, GPU, crowd[: PAD - 12])
    check_mirror(mirror)
    mirror.table.begin_move()
    while mirror.table.old is None:
        mirror.table.move_slice()
    add(mirror, 1, GPU, crowd[PAD - 12 : PAD])
    assert mirror.table.old is not None

    mirror.remove(0, GPU, crowd[: PAD - 13])

    assert CAPACITY_MIN < mirror.table.current.capacity
    check_mirror(mirror)
    assert {crowd[PAD - 13], *crowd[PAD - 12 : PAD]} == set(table_holders(mirror))
    add(mirror, 0, CPU, crowd)
    check_mirror(mirror)
    assert len(crowd) == mirror.table.live
    mirror.remove(0, CPU, crowd)
    assert 13 == mirror.table.live
    check_mirror(mirror)


class Churn:
    """A mirror and a dict that are told the same."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.mirror = mirror_with(0, shift=self.draw.choice([0, 9]))
        near_end = [CAPACITY_MIN - 1 - self.draw.randrange(3) for _ in range(400)]
        self.pool = [home * 2 + number * 2 * CAPACITY_MIN for number, home in enumerate(near_end, 1)] + hashes(
            4_000, seed
        )
        self.held: dict[int, set[tuple[int, int]]] = {key: set() for key in self.pool}
        self.slots: list[int] = []

    def open(self) -> None:
        self.slots.append(self.mirror.open_slot(lanes()))

    def retire(self) -> None:
        gone = self.slots.pop(self.draw.randrange(len(self.slots)))
        self.mirror.retire(gone)
        for who in self.held.values():
            who.difference_update({(gone, GPU), (gone, CPU)})

    def add(self) -> None:
        slot, lane, some = self._some()
        some = list(dict.fromkeys(some))
        assert [key for key in some if (slot, lane) in self.held[key]] == add(self.mirror, slot, lane, some)
        for key in some:
            self.held[key].add((slot, lane))

    def remove(self) -> None:
        slot, lane, some = self._some()
        self.mirror.remove(slot, lane, some)
        for key in some:
            self.held[key].discard((slot, lane))

    def tidy_some(self) -> None:
        for _ in range(self.draw.randrange(6)):
            self.mirror.tidy_slice()

    def check_some(self) -> None:
        for key in self.draw.sample(self.pool, 30):
            holders = {slot for slot, _ in self.held[key]}
            assert [slot in holders for slot in self.slots] == [self.mirror.holds(slot, key) for slot in self.slots]

    def _some(self) -> tuple[int, int, list[int]]:
        start = self.draw.randrange(len(self.pool))
        count = self.draw.choice([1, 20, 700])
        return self.draw.choice(self.slots), self.draw.choice([GPU, CPU]), self.pool[start : start + count]


@pytest.mark.parametrize("seed", range(4))
def test_random_churn_against_a_dict(seed: int) -> None:
    """Adds, removals, retired slots and slices of housekeeping in any order, with crowded and with random keys."""
    churn = Churn(seed)
    mirror = churn.mirror
    steps = [churn.add] * 45 + [churn.remove] * 35 + [churn.tidy_some] * 15 + [churn.open] * 3 + [churn.retire] * 2
    churn.open()

    for _ in range(400):
        step = churn.draw.choice(steps if len(churn.slots) > 1 else steps[:-2])
        step()
        churn.check_some()
    tidy(mirror)

    assert {key for key, who in churn.held.items() if who} == set(table_holders(mirror))
    check_mirror(mirror)
    for slot in churn.slots:
        mirror.retire(slot)
    tidy(mirror)
    assert (0, 1, {}) == (mirror.table.live, len(mirror.book), mirror.book.tables)
    check_mirror(mirror)


@pytest.mark.parametrize("seed", range(12))
def test_many_at_once_are_as_one_after_the_other(seed: int) -> None:
    """Through growth, moves, dead slots and their scrub; with keys of one home, some twice and some known before."""
    draw = random.Random(seed)
    one, all_at_once = mirror_with(3, shift=seed % 3), mirror_with(3, shift=seed % 3)
    both = (one, all_at_once)
    known: list[int] = []
    for _ in range(40):
        slot, lane = draw.randrange(3), draw.choice((GPU, CPU))
        fresh = [draw.getrandbits(64) for _ in range(draw.choice((1, 70, 700, 3_000)))]
        crowd = [draw.getrandbits(20) << 44 | draw.randrange(4) << 2 for _ in range(draw.choice((0, 5)))]
        again = draw.sample(known, min(len(known), draw.choice((0, 10, 500))))
        some = [*fresh, *crowd, *again, *fresh[:3]]
        draw.shuffle(some)
        known += fresh
        parents = [key ^ 1 for key in some]
        already = one.add(slot, lane, some, parents)
        assert sorted(already) == sorted(
            all_at_once.add_array(slot, lane, np.array(some, np.uint64), np.array(parents, np.uint64))
        )
        gone = draw.sample(known, min(len(known), draw.choice((0, 0, 400, 4_000))))
        is_retired, slices = draw.random() < 0.1, draw.randrange(6)
        for mirror in both:
            mirror.remove(slot, lane, gone)
            if is_retired:
                mirror.retire(0)
                tidy(mirror)
                assert 0 == mirror.open_slot(lanes())
            for _ in range(slices):
                mirror.tidy_slice()
            check_mirror(mirror)
        held = table_holders(one)
        assert held.keys() == table_holders(all_at_once).keys()
        for key in draw.sample(sorted(held), min(len(held), 300)):
            assert all(one.lanes(n, key) == all_at_once.lanes(n, key) for n in range(3))
            assert key ^ 1 == one.table.parent(key) == all_at_once.table.parent(key)


def test_nothing_and_one_at_once() -> None:
    """Nothing is entered, and one is."""
    mirror = mirror_with(1)

    assert [] == mirror.add_array(0, GPU, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    assert [] == mirror.add_array(0, GPU, np.array([5], np.uint64), np.array([4], np.uint64))
    assert [5] == mirror.add_array(0, GPU, np.array([5], np.uint64), np.array([4], np.uint64))
    assert (1, 4) == (mirror.table.live, mirror.table.parent(5))
    check_mirror(mirror)
