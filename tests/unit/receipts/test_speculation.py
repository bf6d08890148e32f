"""What is expected, against a naive model, over random courses of receipts, events, ends and time."""

from __future__ import annotations

import random
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
"""Hashes of their blocks; the second begins as the first does."""
PROMPTS[1][:4] = PROMPTS[0][:4]
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
        shown += course.speculation.blocks
    assert shown
    course.now += 20
    course._tidy()
    assert course.speculation.is_empty
    assert [] == course.reached


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
