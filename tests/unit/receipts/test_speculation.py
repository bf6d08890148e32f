"""What is expected, against a naive model, over random courses of receipts, events, ends and time."""

from __future__ import annotations

import random
import sys
from typing import Final

import numpy as np
import pytest

from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.walk import walk
from indexer.model import Tier
from indexer.receipts import speculation
from indexer.receipts.speculation import BUCKETS_A_SECOND, Speculation

PROMPTS: Final = [[trunk * 100 + block for block in range(1, 9)] for trunk in range(1, 4)]
"""Hashes of their blocks; the second begins as the first does, and the third names some twice, as only a caller can."""
PROMPTS[1][:4] = PROMPTS[0][:4]
PROMPTS[2][3:6] = [PROMPTS[2][0], PROMPTS[2][1], PROMPTS[2][0]]
SLOTS: Final = 3


class Course:
    """Three sources, and what is expected of each by the naive model: block to deadline."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.mirror = Mirror()
        self.now = 100.0
        self.reached: list[str] = []
        self.speculation = Speculation(self.mirror, blocks_max=1_000, reached=self.reached.append)
        self.tables = [LaneTable() for _ in range(SLOTS)]
        for table in self.tables:
            table.number(0, Tier.GPU)
            table.set_main_groups((0,))
        self.slots = [self.mirror.open_slot(table) for table in self.tables]
        self.deadlines: list[dict[int, float]] = [{} for _ in range(SLOTS)]
        self.held: list[set[int]] = [set() for _ in range(SLOTS)]

    def step(self) -> None:
        """Something happens."""
        what, source = self.chance.randrange(6), self.chance.randrange(SLOTS)
        prompt = self.chance.choice(PROMPTS)[: self.chance.randint(1, 8)]
        if what <= 1:
            self._expect(source, prompt, self.chance.choice([0.5, 2.0, 6.0]))
        elif what == 2:
            self._hold(source, prompt)
        elif what == 3:
            self._evict(source, self.chance.choice(prompt))
        elif what == 4 and not self.chance.randrange(4):
            self._restart(source)
        else:
            self.now += self.chance.choice([0.2, 1.0, 3.0])
        self._tidy()

    def _expect(self, source: int, prompt: list[int], ttl_s: float) -> None:
        missing = [each for each in prompt if each not in self.held[source]]
        receipt = self.speculation.expect(self.slots[source], self.now, ttl_s)
        self.speculation.add(receipt, missing)
        for each in missing:
            self.deadlines[source][each] = max(self.now + ttl_s, self.deadlines[source].get(each, 0.0))

    def _hold(self, source: int, prompt: list[int]) -> None:
        fresh = [each for each in prompt if each not in self.held[source]]
        self.mirror.add(self.slots[source], 0, fresh, [0] * len(fresh))
        self.held[source].update(fresh)

    def _evict(self, source: int, block: int) -> None:
        if block in self.held[source]:
            self.mirror.remove(self.slots[source], 0, [block])
            self.held[source].remove(block)

    def _restart(self, source: int) -> None:
        self.mirror.retire(self.slots[source])
        self.slots[source] = self.mirror.open_slot(self.tables[source])
        self.deadlines[source].clear()
        self.held[source].clear()

    def _tidy(self) -> None:
        while self.speculation.tidy_slice(self.now):
            pass
        while self.mirror.tidy_slice():
            pass

    def wrong(self) -> list[str]:
        """What a lookup would be told otherwise than the model has it; deadlines may be a tenth of a second late."""
        out = []
        mask = sum(1 << slot for slot in self.slots)
        for prompt in PROMPTS:
            hashes = np.array(prompt, np.uint64)
            held = walk(self.mirror, hashes, mask).held
            found = self.speculation.beyond(hashes, mask, held)
            for source, slot in enumerate(self.slots):
                early, late = (self._run(source, prompt, self.now - grace) for grace in (0.0, 1 / BUCKETS_A_SECOND))
                if not early <= found.get(slot, 0) <= late:
                    out.append(f"{prompt[0]} {source}: {found.get(slot, 0)}, model {early}..{late}")
        return out

    def taken(self) -> int:
        """How many blocks stand somewhere, each of one source."""
        return sum(len(part) for life in self.speculation._lives.values() for part in life.taken)

    def _run(self, source: int, prompt: list[int], now: float) -> int:
        held, due = self.held[source], self.deadlines[source]
        matched = next((n for n, each in enumerate(prompt) if each not in held), len(prompt))
        end = matched
        while end < len(prompt) and (prompt[end] in held or due.get(prompt[end], 0.0) > now):
            end += 1
        return end - matched


@pytest.mark.parametrize("seed", range(20))
def test_every_course_shows_what_the_model_has(seed: int) -> None:
    """Runs through held and expected blocks, deadlines moved by later receipts, slots given out again."""
    course = Course(seed)
    shown = 0
    for _ in range(120):
        course.step()
        assert [] == course.wrong()
        assert course.speculation.blocks == course.taken()
        shown += course.speculation.blocks
    assert shown
    course.now += 20
    course._tidy()
    assert course.speculation.is_empty
    assert [] == course.reached


def test_who_expects_other_blocks_costs_a_lookup_nothing() -> None:
    """As many calls, with two sources and with two hundred."""
    calls = dict.fromkeys((2, 200), 0)
    for sources in calls:
        mirror = Mirror()
        expecting = Speculation(mirror, blocks_max=1_000, reached=list[str]().append)
        slots = [mirror.open_slot(LaneTable()) for _ in range(sources)]
        for number, slot in enumerate(slots):
            expecting.add(expecting.expect(slot, 0.0, 1.0), [100 + number])
        every = sum(1 << slot for slot in slots)
        calls[sources] = _calls(expecting, every)

    assert calls[2] == calls[200] > 0


def _calls(expecting: Speculation, slots: int) -> int:
    """How many calls, of functions and of steps of generators, it takes to ask for a block."""
    seen = list[str]()
    sys.setprofile(lambda _frame, what, _of: seen.append(what))
    try:
        assert not expecting.expected_of_any(slots)(7)
    finally:
        sys.setprofile(None)
    return len([what for what in seen if what == "call"])


def test_where_it_is_full_what_is_due_next_goes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was named again since stays; what finds no room even so is not taken."""
    monkeypatch.setattr(speculation, "CLEARED_IN_A_SLICE", 1)
    mirror, reached = Mirror(), list[str]()
    slot = mirror.open_slot(LaneTable())
    full = Speculation(mirror, blocks_max=4, reached=reached.append)

    def name(blocks: list[int], at: float) -> None:
        full.add(full.expect(slot, at, 10.0), blocks)

    def named(block: int) -> bool:
        return full.expected_of_any(1 << slot)(block)

    name([1, 2], 0.0)
    name([3, 4], 1.0)
    name([1], 2.0)
    assert ([], 4) == (reached, full.blocks)
    name([5], 3.0)
    assert [True, False, True, True, True] == [named(block) for block in range(1, 6)]
    name([10, 11, 12, 13, 14, 15], 4.0)
    assert 4 == full.blocks
    assert {speculation.BLOCKS_LIMIT} == set(reached)


def test_blocks_named_twice_in_one_report_take_the_room_of_one() -> None:
    """And give it back: within a report, over reports, and where there is hardly any room."""
    mirror = Mirror()
    slot = mirror.open_slot(LaneTable())
    expecting = Speculation(mirror, blocks_max=4, reached=list[str]().append)
    for now in range(50):
        receipt = expecting.expect(slot, float(now), 0.5)
        expecting.add(receipt, [1, 1, 2, 1, 2])
        expecting.add(receipt, [2, 3, 3])
        expecting.watch(receipt)
        assert 3 == expecting.blocks
        while expecting.tidy_slice(now + 0.7):
            pass
        assert (0, 0) == (expecting.blocks, expecting.slots)
    while expecting.tidy_slice(100.0):
        pass
    assert expecting.is_empty


@pytest.mark.parametrize("sources", [1, 3, 200])
def test_a_block_that_is_expected_of_any_asked_about_is_told(sources: int) -> None:
    """Also of one of many, of none of those asked about, and of a life that is over."""
    mirror = Mirror()
    expecting = Speculation(mirror, blocks_max=1_000, reached=list[str]().append)
    slots = [mirror.open_slot(LaneTable()) for _ in range(sources)]
    for number, slot in enumerate(slots):
        expecting.add(expecting.expect(slot, 0.0, 1.0), [1, 100 + number])
    every, last = sum(1 << slot for slot in slots), slots[-1]

    asked = expecting.expected_of_any(every)
    assert [True, True, False] == [asked(each) for each in (1, 99 + sources, 99)]
    assert not expecting.expected_of_any(every & ~(1 << last))(99 + sources)
    assert expecting.expected_of_any(1 << last)(1)
    mirror.retire(last)
    asked = expecting.expected_of_any(every)
    assert [sources > 1, False] == [asked(1), asked(99 + sources)]
