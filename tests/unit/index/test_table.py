"""The table: what is put is found, also while it grows, shrinks, and where keys crowd at its end."""

from __future__ import annotations

import random

import numpy as np
import pytest

from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.table import CAPACITY_MIN, PAD, TOUCH_BYTES, WINDOW, PresenceTable
from indexer.model import Tier

END = CAPACITY_MIN - 1


def at_home(home: int, number: int, capacity: int = CAPACITY_MIN) -> int:
    """Different keys with one home, in a table of that capacity and shift 0."""
    return number * 2 * capacity + home * 2


def fill(table: PresenceTable, entries: dict[int, int]) -> None:
    """Put entries, each with its key + 1 as parent."""
    for key, rid in entries.items():
        table.put(key, rid, key + 1)
        table.live += 1


def check(table: PresenceTable, entries: dict[int, int]) -> None:
    """Every way to read gives these entries, and nothing for others."""
    keys = list(entries)
    absent = [key + 1 for key in keys if key + 1 not in entries]
    both = keys + absent
    found = table.get_many(np.array(both, np.uint64)).tolist()
    assert [entries.get(key, 0) for key in both] == found == [table.get(key) for key in both]
    assert [key + 1 for key in keys] == [table.parent(key) for key in keys]
    assert [table.parent(key) for key in both] == table.parents_of(both)
    assert [table.parent(key) for key in both[-1:]] == table.parents_of(both[-1:])
    assert keys == keys[: len(table.prefix(np.array(keys, np.uint64)))]
    assert list(entries.values()) == table.prefix(np.array(keys, np.uint64)).tolist()


def mirror_with_a_slot() -> tuple[Mirror, int]:
    """What removes from a table: the loop is the mirror's. With one source's slot, of one lane."""
    mirror, lanes = Mirror(), LaneTable()
    lanes.number(0, Tier.GPU)
    return mirror, mirror.open_slot(lanes)


def move(table: PresenceTable) -> None:
    """A whole move."""
    table.begin_move()
    while table.move_slice():
        pass


def random_entries(count: int, seed: int = 1) -> dict[int, int]:
    """Keys as hashes are."""
    draw = random.Random(seed)
    return {draw.getrandbits(64): draw.randrange(1, 2**31) for _ in range(count)}


@pytest.mark.parametrize("shift", [0, 11, 23])
def test_put_and_find(shift: int) -> None:
    """With any shift; a second put changes the record and keeps the parent."""
    table = PresenceTable(shift)
    entries = random_entries(1_000)
    fill(table, entries)
    check(table, entries)

    key = next(iter(entries))
    table.put(key, 7, 12345)

    assert (7, key + 1, 1_000) == (table.get(key), table.parent(key), table.current.used)
    assert 0 == table.parent(12345)


def test_keys_that_share_a_home_lie_behind_each_other() -> None:
    """Scalar, vector and prefix reads find them beyond the window too."""
    table = PresenceTable()
    entries = {at_home(9, number): number + 1 for number in range(3 * WINDOW)}
    fill(table, entries)

    check(table, entries)
    assert -1 == table.current.find(at_home(9, 99))
    assert [-1] == table.current.find_many(np.array([at_home(9, 99)], np.uint64)).tolist()
    assert [1, 2] == table.prefix(np.array([at_home(9, 0), at_home(9, 1), at_home(9, 99)], np.uint64)).tolist()
    assert [] == table.prefix(np.array([at_home(9, 99), at_home(9, 0)], np.uint64)).tolist()


def test_a_prefix_ends_at_the_first_absent_key() -> None:
    """Whether its home is empty or taken by another."""
    table = PresenceTable()
    fill(table, {at_home(5, 0): 1, at_home(6, 0): 2, at_home(8, 0): 3})

    assert [1, 2] == table.prefix(
        np.array([at_home(5, 0), at_home(6, 0), at_home(7, 0), at_home(8, 0)], np.uint64)
    ).tolist()
    assert [1] == table.prefix(np.array([at_home(5, 0), at_home(6, 1), at_home(8, 0)], np.uint64)).tolist()
    assert [] == table.prefix(np.array([at_home(7, 0)], np.uint64)).tolist()
    fill(table, {at_home(6, 1): 4})
    displaced = [at_home(5, 0), at_home(6, 1), at_home(6, 0), at_home(9, 0), at_home(8, 0)]
    assert [1, 4, 2] == table.prefix(np.array(displaced, np.uint64)).tolist()
    assert [] == table.prefix(np.array([], np.uint64)).tolist()


@pytest.mark.parametrize("taken", range(1, WINDOW + 1))
def test_no_key_is_zero(taken: int) -> None:
    """But an empty slot's is: asked for, it must not be taken for as many keys as its window has empty slots."""
    table = PresenceTable()
    fill(table, {at_home(home, 1): home + 1 for home in (*range(taken), *range(100, 200, 10))})
    for count in range(WINDOW + 1):
        absent = [at_home(home, 2) for home in range(100, 200, 10)][:count]
        for asked in ([*absent, 0], [0, *absent], [*absent, 0, 0]):
            wanted = np.array(asked, np.uint64)
            assert 0 == np.count_nonzero(table.prefix(wanted))
            assert [0] * len(asked) == table.get_many(wanted).tolist()


@pytest.mark.parametrize("homes", [[9] * 20, [9, 9, 10, 10, 9, 11, 12, 9, 30], [END] * 30, list(range(1, 41))])
def test_deleting_leaves_no_gap_that_ends_a_probe(homes: list[int]) -> None:
    """In every order, with neighbours of other homes between."""
    draw = random.Random(5)
    for _ in range(20):
        mirror, slot = mirror_with_a_slot()
        keys = [at_home(home, number) for number, home in enumerate(homes)]
        mirror.add(slot, 0, keys, [key + 1 for key in keys])
        entries = {key: mirror.table.get(key) for key in keys}
        for key in draw.sample(keys, len(keys)):
            mirror.remove(slot, 0, [key])
            del entries[key]
            check(mirror.table, entries)
        assert 0 == mirror.table.current.used
        assert not mirror.table.current.rows.any()


def test_growing_in_slices_hides_nothing() -> None:
    """Reads look in both tables; writes during the move win over what is moved."""
    table = PresenceTable(3)
    entries = random_entries(2_400)
    fill(table, entries)
    table.begin_move()
    assert table.moving()
    newer = random_entries(200, seed=2)
    draw = random.Random(3)
    slices = 0

    while table.move_slice():
        slices += 1
        for key in draw.sample(list(entries), 20):
            entries[key] = draw.randrange(1, 2**31)
            table.put(key, entries[key], key + 1)
        if newer and table.old is not None:
            key, rid = newer.popitem()
            entries[key] = rid
            fill(table, {key: rid})
        check(table, entries)

    assert slices > 2
    assert not table.moving()
    assert 2 * CAPACITY_MIN <= table.current.capacity
    check(table, entries)


def test_dead_keys_stay_behind() -> None:
    """A move takes along only what somebody holds."""
    table = PresenceTable()
    entries = random_entries(1_000)
    fill(table, entries)
    for key in list(entries)[:600]:
        table.put(key, 0, 0)
        del entries[key]
    table.live = len(entries)
    assert table.wants_to_move()

    move(table)

    assert (400, CAPACITY_MIN) == (table.current.used, table.current.capacity)
    assert not table.wants_to_move()
    check(table, entries)


def test_an_emptied_table_gives_its_memory_back() -> None:
    """Down to the smallest."""
    mirror, slot = mirror_with_a_slot()
    keys = list(random_entries(20_000))
    mirror.add(slot, 0, keys, [key + 1 for key in keys])
    while mirror.tidy_slice():
        pass
    table = mirror.table
    large = table.bytes_used()
    assert not table.wants_to_move()
    mirror.remove(slot, 0, keys[100:])
    kept = {key: table.get(key) for key in keys[:100]}
    assert (100, 100) == (table.live, table.current.used)
    assert table.wants_to_move()

    table.begin_move()
    while table.move_slice():
        assert not table.wants_to_move()
        check(table, kept)

    assert (CAPACITY_MIN, 100) == (table.current.capacity, table.current.used)
    assert table.bytes_used() < large / 10
    check(table, kept)


def test_touching_a_large_table_takes_slices() -> None:
    """Each touches a megabyte at most; until then the old arrays are used."""
    table = PresenceTable()
    table.live = 100_000
    table.begin_move()
    before = table.current
    slices = 0
    while table.current is before:
        assert table.old is None
        table.move_slice()
        slices += 1

    touched = table.current.rows.nbytes + table.current.parents_array.nbytes
    assert touched / TOUCH_BYTES <= slices <= touched / TOUCH_BYTES + 3


def test_a_cluster_that_would_run_past_the_end_makes_the_table_larger() -> None:
    """Keys of one home near the end: the pad takes some, then the table doubles until they fit."""
    table = PresenceTable()
    entries = {at_home(END, number): number + 1 for number in range(PAD + 40)}

    fill(table, entries)

    assert table.current.capacity > CAPACITY_MIN
    assert len(entries) == table.current.used
    check(table, entries)


@pytest.mark.parametrize("doublings", [0, 1, 2])
def test_a_move_that_meets_such_a_cluster(doublings: int) -> None:
    """Keys that lay apart in a large table crowd in a small one: it is made larger until they fit, nothing is lost."""
    table = PresenceTable()
    table.live = 20_000
    move(table)
    large = table.current.capacity
    table.live = 0
    crowded = CAPACITY_MIN << doublings  # up to this size all keys have the last home
    entries = {at_home(crowded - 1, number, crowded): number + 1 for number in range(PAD + 40)}
    fill(table, entries)
    assert large == table.current.capacity

    move(table)

    assert crowded < table.current.capacity
    assert not table.moving()
    check(table, entries)


def test_a_cluster_that_fills_while_the_table_moves() -> None:
    """Entries of both tables come together; what was changed since the move began wins."""
    table = PresenceTable()
    entries = {at_home(END, number): number + 1 for number in range(PAD - 20)}
    fill(table, entries)
    table.begin_move()
    while table.old is None:
        table.move_slice()
    changed = {key: rid + 1000 for key, rid in list(entries.items())[:100]}
    for key, rid in changed.items():
        table.put(key, rid, key + 1)
    more = {at_home(END, number): 5 for number in range(PAD, 2 * PAD)}
    fill(table, more)

    assert table.old is None
    check(table, {**entries, **changed, **more})


def test_keys_that_no_doubling_parts_for_long() -> None:
    """The table doubles as often as it takes."""
    table = PresenceTable()
    last = CAPACITY_MIN * 4 - 1  # the last home in tables up to that size
    entries = {at_home(last, number, CAPACITY_MIN * 4): number + 1 for number in range(PAD + 40)}

    fill(table, entries)

    assert table.current.capacity >= CAPACITY_MIN * 8
    check(table, entries)


def test_moving_nothing_is_nothing() -> None:
    """A slice of no move."""
    assert not PresenceTable().move_slice()


def test_remapping_in_slices() -> None:
    """Every record id that somebody holds is seen once, with its count in that slice; 0 stays 0."""
    table = PresenceTable()
    entries = dict.fromkeys(random_entries(300), 5) | dict.fromkeys(random_entries(200, seed=9), 6)
    fill(table, entries)
    seen: dict[int, int] = {}

    def remap(rid: int, count: int) -> int:
        seen[rid] = seen.get(rid, 0) + count
        return {5: 0, 6: 8}[rid]

    start, slices = 0, 0
    while start >= 0:
        start = table.remap_slice(start, remap)
        slices += 1

    assert {5: 300, 6: 200} == seen
    assert slices > 1
    check(table, {key: {5: 0, 6: 8}[rid] for key, rid in entries.items()})
