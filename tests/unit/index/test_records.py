"""Records: equal presence is one record, masks say who holds what, unused records leave and their ids come back."""

from __future__ import annotations

import random

import pytest

from indexer.index.records import LANE_BITS, LANES_MAX, LaneTable, RecordBook
from indexer.model import Tier

GPU, CPU, STORAGE, REMOTE, UNKNOWN = Tier
NOTHING = (False,) * 5


def lane_table(*lanes: tuple[int, Tier], main: tuple[int, ...] = (0,)) -> LaneTable:
    """Lanes numbered in this order."""
    table = LaneTable()
    table.set_main_groups(main)
    for group, tier in lanes:
        table.number(group, tier)
    return table


def ref(slot: int, lane: int) -> int:
    """How a lane of a slot is named."""
    return slot << LANE_BITS | lane


def book_of(**tables: LaneTable) -> RecordBook:
    """Slots s0, s1, … with these lanes."""
    book = RecordBook()
    for name, table in tables.items():
        book.tables[int(name[1:])] = table
    return book


# -- lanes -------------------------------------------------------------------------------------------------------------


def test_lanes_are_numbered_on_first_use_and_end_at_sixteen() -> None:
    """A number stays; the seventeenth lane has none."""
    table = LaneTable()

    numbers = [table.number(group, GPU) for group in range(LANES_MAX + 2)]

    assert [*range(LANES_MAX), None, None] == numbers
    assert 3 == table.number(3, GPU) == table.known(3, GPU)
    assert table.known(3, CPU) is None


@pytest.mark.parametrize(
    ("held", "views"),
    [
        ([], NOTHING),
        ([0], (True, True, True, True, True)),
        ([1], (True, False, True, True, True)),
        ([2], (True, False, False, True, True)),
        ([3], (True, False, False, False, True)),
        ([4], (True, False, False, False, False)),
        ([0, 4], (True, True, True, True, True)),
        ([2, 4], (True, False, False, True, True)),
    ],
)
def test_views_are_cumulative(held: list[int], views: tuple[bool, ...]) -> None:
    """Any tier, GPU, and down to CPU, storage, remote: by the best tier."""
    table = lane_table((0, GPU), (0, CPU), (0, STORAGE), (0, REMOTE), (0, UNKNOWN))

    assert views == table.held(sum(1 << lane for lane in held))


def test_all_main_groups_must_hold_a_block() -> None:
    """The worst group decides the tier; other groups decide nothing."""
    table = lane_table((0, GPU), (1, GPU), (1, CPU), (2, GPU), main=(0, 1))

    assert NOTHING == table.held(0b0001) == table.held(0b1001) == table.held(0b1000)
    assert (True, True, True, True, True) == table.held(0b0011)
    assert (True, False, True, True, True) == table.held(0b0101)
    assert {0, 1, 2} == table.groups_held(0b1101)
    assert set() == table.groups_held(0)


def test_without_a_main_group_nothing_is_held() -> None:
    """Until a store tells which group that is."""
    table = lane_table((0, GPU), main=())
    assert NOTHING == table.held(1)

    assert table.set_main_groups((0,))
    assert not table.set_main_groups((0,))

    assert (True,) * 5 == table.held(1)


# -- records -----------------------------------------------------------------------------------------------------------


def test_equal_presence_is_one_record() -> None:
    """Whatever way led there; adding what is there and taking what is not changes nothing."""
    book = book_of(s0=lane_table((0, GPU), (0, CPU)), s1=lane_table((0, GPU)))

    one = book.with_ref(book.with_ref(book.empty, ref(0, 0)), ref(1, 0))
    other = book.with_ref(book.with_ref(book.empty, ref(1, 0)), ref(0, 0))

    assert one is other
    assert one is book.with_ref(one, ref(1, 0))
    assert one is book.without_ref(one, ref(0, 1))
    assert one is book.without_ref(book.with_ref(one, ref(0, 1)), ref(0, 1))
    assert book.empty is book.without_ref(book.without_ref(one, ref(0, 0)), ref(1, 0))
    assert (0b01, 0b01, 0) == (one.lanes_of(0), one.lanes_of(1), one.lanes_of(2))
    assert one is book.records[one.rid]


def test_masks() -> None:
    """Per view, a bit a slot; plain where everybody holds it in GPU memory."""
    book = book_of(s0=lane_table((0, GPU), (0, CPU)), s1=lane_table((0, CPU)), s5=lane_table((0, GPU)))
    record = book.intern({0: 0b11, 1: 0b1, 5: 0b1, 9: 0b1})  # slot 9 has no lanes: it is gone

    assert (0b100011, (0b100001, 0b100011, 0b100011, 0b100011)) == (record.any, record.views)
    assert not record.plain
    assert book.intern({0: 0b01, 5: 0b1}).plain
    assert (0, True) == (book.empty.any, book.empty.plain)


def test_masks_follow_what_is_learnt_of_groups() -> None:
    """A second full-attention group turns up: blocks that only the first holds are held no more."""
    table = lane_table((0, GPU), (1, GPU))
    book = book_of(s0=table, s1=lane_table((0, GPU)))
    half, whole, other = book.intern({0: 0b01, 1: 1}), book.intern({0: 0b11}), book.intern({1: 1})

    table.set_main_groups((0, 1))
    book.refresh_slot(0)

    assert (0b10, 0b01, 0b10) == (half.any, whole.any, other.any)


def test_slots_that_died_are_taken_out() -> None:
    """The record without them; the same one where it names none of them."""
    book = book_of(s0=lane_table((0, GPU)), s1=lane_table((0, GPU)))
    both = book.intern({0: 1, 1: 1})

    assert both is book.without_slots(both, 0b100)
    assert book.intern({1: 1}) is book.without_slots(both, 0b001)
    assert book.empty is book.without_slots(both, 0b011)


def test_unused_records_leave_oldest_first() -> None:
    """Those with blocks stay, and so does what they lead to; ids are given out again."""
    book = book_of(**{f"s{slot}": lane_table((0, GPU)) for slot in range(40)})
    used = book.with_ref(book.empty, ref(0, 0))
    used.blocks = 1
    idle = [book.with_ref(used, ref(slot, 0)) for slot in range(1, 10)]

    book.trim(4)

    assert [None] * 5 + idle[5:] == [used.add.get(ref(slot, 0)) for slot in range(1, 10)]
    assert used is book.records[used.rid]
    assert all(book.records[record.rid] is book.empty for record in idle[:5])
    reused = book.with_ref(used, ref(20, 0))
    assert reused.rid in {record.rid for record in idle[:5]}
    assert reused is book.records[reused.rid]
    book.trim(0)
    assert 2 == len(book)
    assert {} == used.add


def test_a_record_that_is_used_again_is_not_idle() -> None:
    """Released, taken up, released: it leaves once, when it has no blocks."""
    book = book_of(s0=lane_table((0, GPU)))
    record = book.with_ref(book.empty, ref(0, 0))
    book.released(record)
    record.blocks = 3

    book.trim(0)
    assert record is book.with_ref(book.empty, ref(0, 0))

    record.blocks = 0
    book.released(record)
    book.trim(0)
    assert 1 == len(book)
    assert record is not book.with_ref(book.empty, ref(0, 0))


def test_the_empty_record_never_leaves() -> None:
    """Not even when told that it is unused."""
    book = RecordBook()
    book.released(book.empty)
    book.trim(0)

    assert book.empty is book.records[0]
    assert 1 == len(book)


def test_links_stay_right_under_churn() -> None:
    """`a.add[r] is b` exactly when `b.sub[r] is a`, and no record links to one that left."""
    draw = random.Random(4)
    book = book_of(**{f"s{slot}": lane_table((0, GPU), (0, CPU)) for slot in range(8)})
    records = [book.empty]
    for step in range(6_000):
        record = draw.choice(records)
        change = book.with_ref if draw.random() < 0.6 else book.without_ref
        records.append(change(record, ref(draw.randrange(8), draw.randrange(2))))
        if step % 50 == 0:
            book.trim(20)
            alive = set(map(id, book.records))
            records = [record for record in records if id(record) in alive] or [book.empty]
    known = [record for record in book.records if record is not book.empty] + [book.empty]

    for record in known:
        assert all(larger.sub[r] is record or larger is record for r, larger in record.add.items())
        assert all(smaller.add[r] is record for r, smaller in record.sub.items())
        assert all(other in known for other in (*record.add.values(), *record.sub.values()))
    assert len(known) == len(book)


def test_a_slot_that_no_record_names_costs_no_look_at_the_others() -> None:
    """Who names a slot is known without looking, whatever comes and goes."""
    book = book_of(s0=lane_table((0, GPU)), s1=lane_table((0, GPU)))
    one = book.with_ref(book.empty, ref(0, 0))
    both = book.with_ref(one, ref(1, 0))
    assert {0: 2, 1: 1} == book.named
    one.blocks = 1

    book.trim(0)

    assert book.records[both.rid] is book.empty
    assert {0: 1} == book.named
    one.blocks = 0
    book.released(one)
    book.trim(0)
    assert {} == book.named


def test_unused_records_of_many_holders_are_few() -> None:
    """A block that thousands come to hold leaves a record behind each of them: their holders are bounded together."""
    book = RecordBook()
    record = book.empty
    for slot in range(800):
        book.tables[slot] = lane_table((0, GPU))
        record = book.with_ref(record, ref(slot, 0))
        record.blocks += 1
        if slot:
            smaller = book.without_ref(record, ref(slot, 0))
            smaller.blocks -= 1
            book.released(smaller)
            book.trim()

    assert book.holders <= 65_536 + 800
    assert len(book) < 200
    assert sum(len(each.key) for each in book.records) == book.holders
