"""The ring of removals: who, what, when and why, the newest first to be found, and never more than it holds."""

from __future__ import annotations

from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.removals import GATHERED, Removal, Removals, Why
from indexer.model import Tier


def ring(kept: int, *slots: int) -> Removals:
    """With a life begun in each of these slots at moment 0."""
    removals = Removals(kept)
    for slot in slots:
        removals.begin_life(slot)
    return removals


def test_the_newest_removal_of_a_block_is_told() -> None:
    """With lane, reason and moment, to a tenth of a second; of that slot alone."""
    removals = ring(100, 0, 1)
    removals.now = 10.25
    removals.note(0, 2, [7, 8], Why.REMOVED)
    removals.now = 20.5
    removals.note(0, 3, [7], Why.EXPIRED)

    assert Removal(3, Why.EXPIRED, 20.5) == removals.newest(0, 7)
    assert Removal(2, Why.REMOVED, 10.2) == removals.newest(0, 8)
    assert None is removals.newest(0, 9)
    assert None is removals.newest(1, 7)
    assert 0.0 == removals.known_since(0)


def test_where_nothing_went_nothing_is_kept() -> None:
    """Messages that remove nothing come as often as an engine likes, and take no room."""
    removals = ring(100, 0)
    for _ in range(100):
        removals.note(0, 0, [], Why.REMOVED)
    removals.note(0, 0, [7], Why.REMOVED)

    assert 3 == len(removals._runs)
    assert removals.newest(0, 7) is not None


def test_what_went_in_an_earlier_life_is_not_of_this_one() -> None:
    """Whether the slot goes on or was given to another source."""
    removals = ring(100, 0)
    removals.note(0, 0, [7], Why.REMOVED)
    removals.begin_life(0)
    assert None is removals.newest(0, 7)
    removals.note(0, 0, [7], Why.GIVEN_UP)
    assert Why.GIVEN_UP is (removals.newest(0, 7) or Removal(0, Why.UNNOTED, 0)).why
    removals.end_life(0)
    assert None is removals.newest(0, 7)


def test_the_oldest_go_and_that_is_known() -> None:
    """However many come at once."""
    for size in (1, 3, GATHERED, 3 * GATHERED):
        removals = ring(GATHERED + 1, 0)
        for first in range(0, 4 * GATHERED, size):
            removals.now = float(first)
            removals.note(0, 0, range(first + 1, min(first + size, 4 * GATHERED) + 1), Why.REMOVED)
        last = 4 * GATHERED
        assert last - GATHERED - 1 == removals.forgotten
        assert [True, True, False] == [
            removals.newest(0, each) is not None for each in (last, last - GATHERED, last - GATHERED - 1)
        ]
        oldest = removals.newest(0, last - GATHERED)
        assert oldest is not None
        assert oldest.at == removals.known_since(0)
        assert removals.has_forgotten(0)
        removals.begin_life(0)
        assert not removals.has_forgotten(0), "nothing of this life"


def test_none_is_kept_where_none_is_wanted() -> None:
    """Nor counted as forgotten."""
    removals = ring(0, 0)
    removals.note(0, 0, [7], Why.REMOVED)

    assert (None, 0, float("inf")) == (removals.newest(0, 7), removals.forgotten, removals.known_since(0))


def test_what_ends_with_its_life_takes_nobodys_place() -> None:
    """A clear is no removal of each block."""
    removals = ring(10, 0)
    removals.note(0, 0, range(1, 100), Why.UNNOTED)
    assert 0 == removals.forgotten


def test_hashes_of_the_largest_numbers_and_times_of_years() -> None:
    """Both fit."""
    removals = ring(10, 0)
    removals.now = 5.0 * 365 * 86_400
    removals.note(0, 15, [2**64 - 1], Why.GIVEN_UP)
    removals.now += 3_600

    assert Removal(15, Why.GIVEN_UP, 5.0 * 365 * 86_400) == removals.newest(0, 2**64 - 1)


def test_the_mirror_notes_what_it_is_told_to_take_out() -> None:
    """By lane, and each generation's slot as a life of its own."""
    mirror, lanes = Mirror(), LaneTable()
    lanes.set_main_groups((0,))
    gpu = lanes.number(0, Tier.GPU)
    assert gpu is not None
    slot = mirror.open_slot(lanes)
    mirror.add(slot, gpu, [5, 6], [0, 5])
    mirror.removals.now = 1.0
    mirror.remove(slot, gpu, [6])

    assert Removal(gpu, Why.REMOVED, 1.0) == mirror.removals.newest(slot, 6)
    mirror.remove(slot, gpu, [5], Why.UNNOTED)
    mirror.reopen_slot(slot, lanes)
    assert None is mirror.removals.newest(slot, 6)
