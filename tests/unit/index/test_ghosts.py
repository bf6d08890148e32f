"""Ghosts: after a kept gap, which entries beyond an engine's capacity are given up, and which never."""

from __future__ import annotations

import pytest

from indexer.index.ghosts import LOOKS_MAX, REST_PARTS, TURNOVERS, Ghosts
from indexer.index.lane import SHARDS, Lane
from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.model import Tier
from tests.support.core import Core, Speaker
from tests.support.core_events import BLOCK, removed, stored

CAPACITY = 8


class Engine:
    """One lane of one slot: engine hash h is token hash 1000 + h."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        table = LaneTable()
        table.set_main_groups((0,))
        self.slot = self.mirror.open_slot(table)
        self.lane = Lane(table.number(0, Tier.GPU) or 0, 0, Tier.GPU)
        self.ghosts = Ghosts(self.lane)

    def hold(self, engine_hash: int, parent: int = 0) -> None:
        """`parent`: engine hash, 0 for a root."""
        self.lane.maps[engine_hash % SHARDS][engine_hash] = 1000 + engine_hash
        self.lane.pairs += 1
        self.mirror.add(self.slot, self.lane.number, [1000 + engine_hash], [1000 + parent if parent else 0])

    def forget(self, engine_hash: int) -> None:
        self.lane.drop_copies([engine_hash], {})
        self.mirror.remove(self.slot, self.lane.number, [1000 + engine_hash])

    def surplus(self) -> list[int]:
        return sorted(self.ghosts.surplus(self.slot, self.mirror, CAPACITY))

    def store_elsewhere(self, blocks: int) -> None:
        """So many others were announced."""
        self.ghosts.note_stored([10**6 + number for number in range(blocks)], CAPACITY)


@pytest.fixture
def engine() -> Engine:
    """Holds 1..10 in one chain, all from before the gap: two more than it can."""
    made = Engine()
    for number in range(1, 11):
        made.hold(number, number - 1)
    made.lane.forget_counts()
    return made


def test_within_its_capacity_nothing_is_given_up(engine: Engine) -> None:
    """Whatever is in doubt."""
    engine.forget(10)
    engine.forget(9)
    engine.store_elsewhere(100)

    assert [] == engine.surplus()


def test_a_chain_without_a_break_is_not_given_up_at_once(engine: Engine) -> None:
    """Nothing tells its blocks from others until the engine has turned over."""
    assert [] == engine.surplus()


def test_entries_whose_parent_is_not_held_go_first(engine: Engine) -> None:
    """No walk reaches them; not more than are too many."""
    engine.hold(20)
    engine.forget(5)

    assert [6] == engine.surplus()[:1]
    assert 2 == engine.lane.pairs - CAPACITY


def test_what_was_not_seen_for_two_turnovers_goes(engine: Engine) -> None:
    """An engine would have evicted it; what was named as a parent meanwhile, and all before it, stays."""
    for _ in range(TURNOVERS):
        engine.store_elsewhere(CAPACITY)
        engine.ghosts.confirm(engine.slot, 1004, engine.mirror)

    assert [] == [each for each in engine.surplus() if each <= 4]
    assert 2 == len(engine.surplus())


def test_seen_means_seen_lately(engine: Engine) -> None:
    """Two turnovers after it was last named it goes, too."""
    engine.ghosts.confirm(engine.slot, 1010, engine.mirror)
    for _ in range(TURNOVERS):
        engine.store_elsewhere(CAPACITY)
    assert [] == engine.surplus()

    engine.store_elsewhere(CAPACITY)

    assert 2 == len(engine.surplus())


def test_what_was_announced_since_the_gap_is_no_ghost(engine: Engine) -> None:
    """Nor what another engine hash maps to."""
    for number in range(1, 9):
        engine.lane.again(number, count_copies=True)
    engine.lane.one_alias_more(1009)
    for _ in range(TURNOVERS + 1):
        engine.store_elsewhere(CAPACITY)

    assert [10] == engine.surplus()


def test_copies_take_room_too(engine: Engine) -> None:
    """What is too many is counted in blocks of memory."""
    engine.forget(10)
    engine.forget(9)
    for _ in range(3):
        engine.lane.again(1, count_copies=True)
    engine.lane.again(2, count_copies=True)
    for _ in range(TURNOVERS + 1):
        engine.store_elsewhere(CAPACITY)

    assert 2 == engine.lane.extra_copies
    assert 2 == len(engine.surplus())


def test_after_a_look_at_all_of_them_there_is_a_rest(engine: Engine) -> None:
    """Until a part of the capacity was stored: the look is not free."""
    assert [] == engine.surplus()
    engine.forget(5)
    assert [] == engine.surplus()

    engine.store_elsewhere(CAPACITY // REST_PARTS)

    assert [6] == engine.surplus()


def test_a_look_is_cut_into_pieces() -> None:
    """So many entries after each batch, and on from there."""
    engine = Engine()
    last = 3 * LOOKS_MAX + SHARDS - 1  # in the last piece of the map
    for number in range(1, last):
        engine.hold(number)
    engine.hold(last, 7)
    engine.lane.forget_counts()
    engine.forget(7)
    calls = 0
    while [last] != engine.surplus():
        calls += 1
        assert calls <= 3

    assert 3 == calls


# -- in the core -------------------------------------------------------------------------------------------------------


def chain(engine: Speaker, start: int, blocks: int, *, parent: int | None = None) -> None:
    """Store blocks start.. with hash = number, one event each."""
    for number in range(start, start + blocks):
        engine.say(stored([number], [number] * BLOCK, parent))


def roots_held(core: Core, numbers: range) -> list[int]:
    """Which one-block prompts are held."""
    return [number for number in numbers if core.ask([number] * BLOCK)["pod"].matched_tokens]


@pytest.mark.parametrize("told", [True, False])
def test_lost_removals_do_not_count_for_ever(told: bool) -> None:
    """Ten blocks, all evicted unheard; the capacity is told, or seen when the engine evicted."""
    core = Core()
    engine = core.engine(blocks_total=10 if told else None)
    chain(engine, 1, 10)
    engine.say(removed(10))
    chain(engine, 10, 1)
    engine.lose(*(removed(number) for number in range(1, 11)))
    engine.gap()

    chain(engine, 100, 10)
    assert list(range(1, 11)) == roots_held(core, range(1, 11))
    for start in (200, 300, 400):
        engine.say(*(removed(number) for number in range(start - 100, start - 90)))
        chain(engine, start, 10)

    assert [] == roots_held(core, range(1, 11))
    assert list(range(400, 410)) == roots_held(core, range(400, 410))
    assert 10 == engine.source.counters["ghosts_dropped"]


def test_what_was_announced_between_two_gaps_is_seen(engine: Engine) -> None:
    """The second gap makes it doubtful again, but not long unseen."""
    for number in (9, 10):
        engine.lane.again(number, count_copies=True)
    engine.ghosts.note_stored([1009, 1010], CAPACITY)
    engine.lane.forget_counts()

    def turn_over() -> None:
        engine.store_elsewhere(CAPACITY)
        engine.ghosts.confirm(engine.slot, 1008, engine.mirror)

    for _ in range(TURNOVERS):
        turn_over()
    assert [] == engine.surplus()
    turn_over()
    assert [9, 10] == engine.surplus()


@pytest.mark.parametrize("doubt", ["truncated", "unknown event"])
def test_a_capacity_that_was_seen_in_doubt_is_none(doubt: str) -> None:
    """What an engine holds at most is learnt while all of it is known."""
    core = Core()
    engine = core.engine()
    if doubt == "truncated":
        engine.next_sequence = 3
    else:
        engine.say({"type": "New"})
    chain(engine, 1, 3)
    engine.say(removed(3))
    engine.lose()
    engine.gap()

    assert engine.source.capacity is None


def test_without_a_known_capacity_nothing_is_given_up() -> None:
    """The engine never evicted: how much it can hold is not known."""
    core = Core()
    engine = core.engine()
    chain(engine, 1, 10)
    engine.lose(removed(1))
    engine.gap()
    chain(engine, 100, 100)

    assert list(range(1, 11)) == roots_held(core, range(1, 11))


def test_a_named_parent_and_all_before_it_come_back() -> None:
    """Their announcement was lost, but an engine computes a block on top of what it holds."""
    core = Core()
    other, engine = core.engine("other"), core.engine()
    tokens = list(range(16))
    other.say(stored([91, 92, 93, 94], tokens))
    engine.say(stored([1, 2, 3], tokens[:12]))
    engine.say(removed(3), removed(2), removed(1))
    engine.lose(stored([1, 2, 3], tokens[:12]))
    engine.gap()
    assert 0 == core.ask(tokens)["pod"].matched_tokens

    engine.say(stored([4], tokens[12:], parent=3))

    assert 16 == core.ask(tokens)["pod"].matched_tokens
    assert (3, "estimate") == (engine.source.counters["revived"], core.ask(tokens)["pod"].bound)
    engine.say(removed(2))
    assert 4 == core.ask(tokens)["pod"].matched_tokens


def test_ancestors_whose_hashes_nobody_remembers_stay_away() -> None:
    """Nothing is claimed that a removal could not take back."""
    core = Core()
    engine = core.engine()
    tokens = list(range(12))
    engine.say(stored([1, 2], tokens[:8]))
    engine.say(removed(2), removed(1))
    engine.lose(stored([1, 2], tokens[:8]))
    engine.gap()

    engine.say(stored([3], tokens[8:], parent=2))

    assert 0 == core.ask(tokens)["pod"].matched_tokens
    assert 1 == engine.source.counters["revived"]


def test_a_parent_that_is_held_elsewhere_needs_no_reviving() -> None:
    """It lies in CPU memory: the walk counts it as it is."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], range(4)), stored([1], (), block_size=0, medium="CPU"), removed(1))
    engine.lose(removed(7))
    engine.gap()

    engine.say(stored([2], range(4, 8), parent=1))

    assert 0 == engine.source.counters["revived"]
    assert (8, 4) == (core.ask(range(9))["pod"].matched_tokens, core.ask(range(9))["pod"].tiers.cpu)


def test_what_was_seen_is_kept_in_pieces_and_dropped_in_pieces(engine: Engine) -> None:
    """None grows for long, and after the turnovers each takes there is no more of it than there was."""
    for start in range(0, 64_000, 640):
        engine.ghosts.note_stored(range(start, start + 640), capacity=6_400)

    pieces = [piece for seen in engine.ghosts._seen for piece in seen]
    assert (TURNOVERS + 1) * SHARDS == len(pieces)
    assert 100 == max(map(len, pieces))
    for turnover in range(1_000):
        engine.ghosts.note_stored([turnover], capacity=1)
        assert len(engine.ghosts._dropped) <= 9 * SHARDS
    for _ in range(9 * SHARDS):
        engine.ghosts.note_stored([1], capacity=10**9)
    assert [] == engine.ghosts._dropped
