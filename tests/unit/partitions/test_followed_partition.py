"""What a follower makes of the journal and of what it reads, step by step, without a store."""

from __future__ import annotations

import pytest

from indexer.model import SourceId
from indexer.partitions.followed import PIECE
from indexer.partitions.reading import Superseded
from indexer.store.entries import (
    Changed,
    Moved,
    Position,
    Reasserted,
    SourceChange,
    Ticked,
    Turned,
    encode_entry,
    pack_presence,
)
from indexer.store.layout import source_name
from indexer.store.loading import SourceState
from tests.support.fed_partition import EPOCH, Fed, fields_of
from tests.support.hand_owner import FACTS, facts_of
from tests.support.owning import POD
from tests.support.steps import done

OTHER = SourceId("pod-2", 1)
NAME = source_name(POD)
STATE = SourceState(generation=7, cursor=4, facts=facts_of(), copy=0, segments=1, complete=True)


def loaded() -> Fed:
    """A source in generation 7, at sequence 4, that holds two blocks and lives."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1, 2: 3})
    fed.tick(7, 4)
    return fed


def test_a_source_is_listed_before_it_is_read() -> None:
    """And says that it is being read."""
    fed = Fed()
    fed.begin(POD)

    assert ("syncing", {}) == (fed.state(), fed.shown())
    fed.read(7, 4, {1: 1, 2: 3})
    fed.tick(7, 4)
    assert ("live", "exact", {1: 1, 2: 3}) == (fed.state(), fed.bound(), fed.shown())
    assert (7, 4) == (fed.source().facts.generation, fed.source().facts.sequence)


def test_without_a_tick_nothing_is_said_to_live() -> None:
    """What stands in the store says nothing of now."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1})

    assert "down" == fed.state()


def test_what_the_journal_tells_is_entered() -> None:
    """Lanes from now on, whatever they were."""
    fed = loaded()
    fed.change(7, 5, {2: 0, 3: 2, 1: 2})

    assert {1: 2, 3: 2} == fed.shown()
    assert 5 == fed.source().facts.sequence


@pytest.mark.parametrize("blocks", [1, PIECE, PIECE + 1, 4 * PIECE])
def test_a_change_is_seen_whole_or_said_to_be_in_part(blocks: int) -> None:
    """Others have turns while a large one is entered: what they see then is of no sequence, and never `live`."""
    fed = loaded()
    told = dict.fromkeys(range(100, 100 + blocks), 1)
    whole = ((4, fed.shown()), (5, {**fed.shown(), **told}))
    entry = Changed([SourceChange(NAME, 7, 5, FACTS, *pack_presence(list(told.items())))])
    entry_id = str(fed.partition.position.next).encode()
    in_part = 0

    for _ in fed.partition.hear([(entry_id, {b"e": encode_entry(entry)})], fed.now):
        if (fed.source().facts.sequence, fed.shown()) not in whole:
            in_part += 1
            assert "syncing" == fed.state()

    assert (blocks - 1) // PIECE == in_part
    assert ("live", *whole[1]) == (fed.state(), fed.source().facts.sequence, fed.shown())


def test_what_is_left_of_a_change_is_not_entered_into_a_later_generation() -> None:
    """A clear between two of its parts: P4."""
    fed = loaded()
    told = dict.fromkeys(range(100, 100 + 4 * PIECE), 1)
    entry = Changed([SourceChange(NAME, 7, 5, FACTS, *pack_presence(list(told.items())))])
    steps = fed.partition.sources.by_name[NAME].change(entry.changes[0])
    next(steps)
    assert "syncing" == fed.state()

    fed.partition.sources.by_name[NAME].turned(8)
    done(steps)

    assert ({}, 8, False) == (fed.shown(), fed.source().facts.generation, fed.source().facts.in_part)


def test_what_is_told_while_a_map_is_read_is_entered_behind_it() -> None:
    """A step that was read before the change, and came after it, must not undo it."""
    fed = Fed()
    fed.begin(POD)
    reading = fed.reading()
    reading.begin(POD, b"", STATE)
    fed.change(7, 5, {1: 0, 3: 1})
    reading.take(POD, fields_of({1: 1, 2: 1}))
    fed.was_read(reading)

    assert {2: 1, 3: 1} == fed.shown()
    assert 5 == fed.source().facts.sequence


def test_it_stands_only_once_the_journal_is_as_far_as_what_was_read() -> None:
    """Until then some blocks would be of an earlier moment than others."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 6, {1: 1, 2: 1}, until=Position(EPOCH, 3))

    assert ("syncing", {}) == (fed.state(), fed.shown())
    fed.change(7, 5, {1: 0, 2: 1})
    assert ("syncing", {}) == (fed.state(), fed.shown())
    fed.change(7, 6, {1: 1})
    fed.tick(7, 6)
    assert ("live", {1: 1, 2: 1}) == (fed.state(), fed.shown())
    assert 6 == fed.source().facts.sequence


def test_facts_of_before_are_not_taken_for_those_that_were_read() -> None:
    """A change from before a lane was used knows fewer lanes."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 6, {1: 3}, until=Position(EPOCH, 3), facts=facts_of())
    fed.change(7, 5, {1: 1}, facts=facts_of(lanes=1))
    fed.change(7, 6, {1: 3}, facts=facts_of())

    assert {1: 3} == fed.shown()


def test_facts_come_with_changes() -> None:
    """They name lanes, and say how far the source can be trusted."""
    fed = loaded()
    fed.change(7, 5, {}, facts=facts_of("gap"))

    assert ("suspect", "estimate") == (fed.state(), fed.bound())
    fed.change(7, 6, {}, facts=b"")
    assert "estimate" == fed.bound()
    fed.change(7, 7, {}, facts=facts_of())
    assert "exact" == fed.bound()


def test_a_generation_begins_with_nothing_and_at_once() -> None:
    """And nothing of before comes back, though it was on its way (P4)."""
    fed = loaded()
    slot = fed.source().slot
    fed.hear(Turned(NAME, 8))

    assert (8, {}, "new") == (fed.source().facts.generation, fed.shown(), fed.state())
    assert not fed.mirror.live_slots >> slot & 1
    fed.change(7, 5, {9: 1})
    assert {} == fed.shown()
    fed.change(8, 0, {5: 1})
    fed.tick(8, 0)
    assert ({5: 1}, "live") == (fed.shown(), fed.state())


def test_lanes_of_another_engine_process_may_have_another_order() -> None:
    """They are told anew in each generation."""
    fed = loaded()
    fed.hear(Turned(NAME, 8))
    fed.change(8, 0, {5: 1}, facts=facts_of(lanes=1))

    assert {5: 1} == fed.shown()


def test_a_generation_that_was_read_is_not_begun_again() -> None:
    """The journal tells of it afterwards, as it was followed from before."""
    fed = Fed()
    fed.begin(POD)
    fed.read(8, 0, {5: 1}, until=Position(EPOCH, 3))
    fed.hear(Turned(NAME, 8))
    fed.change(8, 0, {5: 1})

    assert {5: 1} == fed.shown()


def test_a_generation_that_begins_while_the_one_before_is_read() -> None:
    """What was read is of no use."""
    fed = Fed()
    fed.begin(POD)
    reading = fed.reading()
    reading.begin(POD, b"", STATE)
    fed.hear(Turned(NAME, 8))
    with pytest.raises(Superseded):
        reading.take(POD, fields_of({1: 1}))
    fed.was_read(reading)
    fed.change(8, 0, {5: 1})

    assert {5: 1} == fed.shown()


def test_a_map_that_is_laid_anew_is_read_anew() -> None:
    """Meanwhile what was known answers as stale, and other sources go on."""
    fed = Fed()
    fed.begin(POD, OTHER)
    fed.read(7, 4, {1: 1, 2: 3})
    fed.read(3, 1, {8: 1}, of=OTHER)
    fed.hear(Reasserted(NAME, 7, 5))
    fed.tick(7, 4)
    fed.tick(3, 1, of=OTHER)

    assert ("stale", {1: 1, 2: 3}) == (fed.state(), fed.shown())
    reading = fed.reading()
    reading.begin(POD, b"", SourceState(generation=7, cursor=9, facts=facts_of(), copy=5, segments=1, complete=True))
    reading.take(POD, fields_of({3: 1}))
    fed.change(3, 2, {9: 1}, of=OTHER)
    fed.change(7, 10, {4: 1})
    assert ("stale", {1: 1, 2: 3}) == (fed.state(), fed.shown())
    assert ("live", {8: 1, 9: 1}) == (fed.state(OTHER), fed.shown(OTHER))
    slot = fed.source().slot
    fed.was_read(reading)
    assert ("live", {3: 1, 4: 1}) == (fed.state(), fed.shown())
    assert not fed.mirror.live_slots >> slot & 1
    assert 10 == fed.source().facts.sequence


def test_a_copy_that_was_read_already_is_not_read_again() -> None:
    """The journal tells of it afterwards."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1}, copy=5, until=Position(EPOCH, 2))
    fed.hear(Reasserted(NAME, 7, 5))

    assert fed.followed().whole
    assert [] == fed.partition.sources.take_wanted()


def test_a_copy_that_is_laid_while_the_one_before_is_read() -> None:
    """It is read in its turn: what was read may lack what the new one has."""
    fed = Fed()
    fed.begin(POD)
    reading = fed.reading()
    reading.begin(POD, b"", STATE)
    fed.hear(Reasserted(NAME, 7, 5))
    fed.was_read(reading)

    assert not fed.followed().whole
    fed.read(7, 9, {3: 1}, copy=5)
    assert {3: 1} == fed.shown()


@pytest.mark.parametrize("told", ["while_it_is_read", "afterwards"])
def test_a_new_copy_has_more_than_was_told_before_it(told: str) -> None:
    """What came between was never told: a change of before must not undo it."""
    fed = Fed()
    fed.begin(POD)
    reading = fed.reading()
    reading.begin(POD, b"", SourceState(generation=7, cursor=9, facts=facts_of(), copy=5, segments=1, complete=True))
    reading.take(POD, fields_of({3: 1}))
    if told == "while_it_is_read":
        fed.change(7, 5, {1: 1, 3: 0})
        fed.hear(Reasserted(NAME, 7, 5))
        fed.was_read(reading)
    else:
        fed.was_read(reading, until=Position(EPOCH, 3))
        fed.change(7, 5, {1: 1, 3: 0})
        fed.hear(Reasserted(NAME, 7, 5))

    assert ({3: 1}, 9) == (fed.shown(), fed.source().facts.sequence)


@pytest.mark.parametrize("told", ["while_it_is_read", "afterwards"])
def test_a_new_copy_at_the_batch_that_was_told_last(told: str) -> None:
    """The same: what changed without a batch was not told either."""
    fed = Fed()
    fed.begin(POD)
    reading = fed.reading()
    state = SourceState(generation=7, cursor=5, facts=facts_of(), copy=5, segments=1, complete=True)
    reading.begin(POD, b"", state)
    reading.take(POD, fields_of({3: 1}))
    if told == "while_it_is_read":
        fed.change(7, 5, {1: 1})
        fed.hear(Reasserted(NAME, 7, 5))
        fed.was_read(reading)
    else:
        fed.was_read(reading, until=Position(EPOCH, 3))
        fed.change(7, 5, {1: 1})
        fed.hear(Reasserted(NAME, 7, 5))
        assert not fed.followed().whole
        fed.read(7, 5, {3: 1}, copy=5)

    assert {3: 1} == fed.shown()


def test_a_copy_that_is_laid_while_the_one_before_catches_up() -> None:
    """The same."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1}, until=Position(EPOCH, 3))
    fed.hear(Reasserted(NAME, 7, 5))
    fed.change(7, 5, {2: 1})

    assert not fed.followed().whole
    fed.read(7, 5, {2: 1}, copy=5)
    assert {2: 1} == fed.shown()


def test_a_map_that_moved_is_the_same() -> None:
    """Nothing that was told differs."""
    fed = loaded()
    fed.hear(Moved(NAME, 7, 5))
    fed.change(7, 5, {3: 1})

    assert ("live", {1: 1, 2: 3, 3: 1}) == (fed.state(), fed.shown())


def test_a_later_copy_in_a_later_generation_ends_the_one_before() -> None:
    """It stands in the store; nothing of before counts (P4), and nothing else yet."""
    fed = loaded()
    fed.hear(Reasserted(NAME, 9, 5))

    assert ({}, "syncing") == (fed.shown(), fed.state())
    fed.read(9, 0, {6: 1}, copy=5)
    fed.tick(9, 0)
    assert ({6: 1}, "live") == (fed.shown(), fed.state())


def test_a_change_of_an_unknown_generation_ends_the_one_before() -> None:
    """Its map is read."""
    fed = loaded()
    fed.change(9, 3, {6: 1})

    assert {} == fed.shown()
    fed.read(9, 3, {6: 1})
    fed.tick(9, 3)
    assert ({6: 1}, "live") == (fed.shown(), fed.state())


def test_what_has_no_whole_copy_is_never_live() -> None:
    """Registered, and not begun; then begun."""
    fed = Fed()
    fed.begin(POD)
    fed.has_no_copy(None)
    assert "new" == fed.state()
    fed.tick(7, None)
    assert "new" == fed.state()

    fed.hear(Turned(NAME, 7))
    fed.change(7, 0, {1: 1})
    fed.tick(7, 0)
    assert ("live", {1: 1}) == (fed.state(), fed.shown())


def test_a_source_whose_state_is_gone_stands_as_stale() -> None:
    """It expired, or the store was emptied: its owner asserts it anew."""
    fed = loaded()
    fed.begin(POD)
    fed.has_no_copy(None)
    fed.tick(7, 4)

    assert ("stale", {1: 1, 2: 3}) == (fed.state(), fed.shown())
    fed.hear(Reasserted(NAME, 7, 5))
    fed.read(7, 5, {2: 1}, copy=5)
    assert ("live", {2: 1}) == (fed.state(), fed.shown())


def test_a_generation_that_was_raised_while_nobody_listened() -> None:
    """A clear: nothing of before is scored from the moment it is known."""
    fed = loaded()
    fed.begin(POD)
    fed.has_no_copy(SourceState(generation=8))

    assert (8, {}, "new") == (fed.source().facts.generation, fed.shown(), fed.state())
    fed.hear(Turned(NAME, 8))
    fed.change(8, 0, {5: 1})
    assert {5: 1} == fed.shown()


def test_a_store_that_went_back_does_not_bring_back_what_ended() -> None:
    """Its copy is of a generation that ended; whoever owns it now may know better, and then it counts."""
    fed = loaded()
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {5: 1})
    fed.begin(POD, position=Position(EPOCH + 1, 1))
    fed.read(7, 4, {1: 1})
    fed.tick(9, 0)

    assert ("stale", {5: 1}) == (fed.state(), fed.shown())
    fed.tick(7, 4)
    fed.read(7, 4, {1: 1})
    assert (7, {1: 1}, "live") == (fed.source().facts.generation, fed.shown(), fed.state())


def test_a_store_that_went_back_and_is_put_right_while_it_is_read() -> None:
    """What was read is of no use, and what the journal told meanwhile is read at once."""
    fed = loaded()
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {5: 1})
    fed.begin(POD, position=Position(EPOCH + 1, 1))
    reading = fed.reading()
    reading.begin(POD, b"", STATE)
    fed.hear(Reasserted(NAME, 9, 5))
    fed.was_read(reading)
    fed.read(9, 1, {6: 1}, copy=5)

    assert {6: 1} == fed.shown()


@pytest.mark.parametrize("what", ["turned", "reasserted"])
def test_a_store_that_went_back_and_an_owner_that_asserts(what: str) -> None:
    """The owner has the later generation in memory, and says so."""
    fed = loaded()
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {5: 1})
    fed.begin(POD, position=Position(EPOCH + 1, 1))
    fed.read(7, 4, {1: 1})
    if what == "turned":
        fed.hear(Turned(NAME, 10))
        fed.change(10, 0, {6: 1})
    else:
        fed.hear(Reasserted(NAME, 9, 5))
        fed.read(9, 1, {6: 1}, copy=5)

    assert {6: 1} == fed.shown()
    assert fed.followed().whole


@pytest.mark.parametrize(
    ("entry_id", "fields", "why"),
    [
        (b"5-3", {b"e": b""}, "hole"),
        (b"6-1", {b"a": b"5-9"}, "other_history"),
        (b"5-2", {b"e": b"?"}, "damaged"),
    ],
)
def test_a_journal_that_does_not_go_on_is_followed_anew(entry_id: bytes, fields: dict[bytes, bytes], why: str) -> None:
    """All is read beside what stands, which answers as stale until then."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1})
    fed.hear_raw(entry_id, fields)
    assert fed.partition.follower is None
    assert {why: 1} == fed.partition.reloads

    assert 1 == fed.partition.lost_in_a_row

    fed.begin(POD, position=Position(6, 5))
    fed.tick(7, 9)
    assert 0 == fed.partition.lost_in_a_row
    assert ("stale", {1: 1}, 4) == (fed.state(), fed.shown(), fed.source().facts.sequence)
    fed.read(7, 9, {2: 1})
    fed.tick(7, 9)
    assert ("live", {2: 1}, 9) == (fed.state(), fed.shown(), fed.source().facts.sequence)


def test_a_new_owner_goes_on() -> None:
    """Its first entry names ours."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1})
    fed.hear_raw(b"9-1", {b"a": b"5-1"})
    fed.change(7, 5, {2: 1})

    assert (Position(9, 2), {1: 1, 2: 1}) == (fed.partition.position, fed.shown())


def test_a_large_change_is_entered_in_steps() -> None:
    """Ten thousand blocks take several milliseconds."""
    fed = loaded()
    held = {1_000 + n: 1 for n in range(10_000)}
    fed.change(7, 5, held)

    assert {1: 1, 2: 3, **held} == fed.shown()


def test_what_is_left_stays_as_it_is() -> None:
    """Its new owner has the sources now."""
    fed = loaded()
    fed.partition.leave()
    fed.hear_raw(b"5-3", {})

    assert {1: 1, 2: 3} == fed.shown()
    assert [] == fed.shelves.left


def test_nothing_is_left_behind_in_the_mirror() -> None:
    """Slots of readings that came to nothing, and of generations that ended, are scrubbed and given out again."""
    fed = loaded()
    for generation in range(8, 12):
        fed.hear(Turned(NAME, generation))
        fed.change(generation, 0, {generation: 1})
        fed.hear(Reasserted(NAME, generation, 5))
        fed.reading().begin(POD, b"", STATE)
    fed.begin(POD)
    fed.read(11, 0, {11: 1})
    while fed.mirror.tidy_slice():
        pass

    assert 1 == fed.mirror.live_slots.bit_count()
    assert 0 == fed.mirror.retired_slots()
    assert 1 == fed.mirror.table.live
    assert {11: 1} == fed.shown()


def test_a_command_is_in_force_once_both_have_obeyed_it() -> None:
    """Read here, and told by a tick of the owner; what an owner of before had obeyed is not known of the next."""
    fed = loaded()
    command = Position(1, 1)
    fed.obey("clear", 8)
    assert not fed.partition.has_obeyed(command)
    fed.hear(Ticked(1, [], b"1-0"))
    assert not fed.partition.has_obeyed(command)
    fed.hear(Ticked(1, [], b"1-1"))
    assert fed.partition.has_obeyed(command)
    assert not fed.partition.has_obeyed(Position(1, 2))
    fed.hear(Ticked(1, [], b"1-2"))
    assert not fed.partition.has_obeyed(Position(1, 2))

    fed.partition.registry_due = True
    assert not fed.partition.has_obeyed(command)
    fed.partition.registry_due = False
    fed.hear(Ticked(1, []))
    assert not fed.partition.has_obeyed(command)
    fed.hear(Ticked(1, [], b"1-1"))
    fed.partition.lose("hole")
    assert not fed.partition.has_obeyed(command)
    fed.begin(POD)
    fed.obey("clear", 8)
    assert not fed.partition.has_obeyed(Position(0, 1))


def test_what_counts_as_a_clear_is_told() -> None:
    """By the nonce of its command; others are not."""
    fed = loaded()
    fields = {b"v": b"clear", b"s": NAME, b"g": b"9", b"d": b""}
    done(fed.partition.obey([(b"1-1", fields), (b"1-2", fields | {b"c": b"n1"})]))
    assert [b"n1"] == fed.shelves.cleared
