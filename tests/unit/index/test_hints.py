"""Hints of where keys lie: never more than hints, however the table changed since they were taken."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest

from indexer.index.hints import RUN, SlotHints
from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.table import AWAY_MAX, CAPACITY_MIN, MANY
from indexer.model import Tier
from indexer.recent import Recent


def keys_of(count: int, draw: random.Random, homes: int = CAPACITY_MIN) -> list[int]:
    """Different keys; the fewer `homes`, the more of them lie behind others."""
    keys: dict[int, None] = {}
    while len(keys) < count:
        keys[draw.randrange(homes) * 2 | draw.getrandbits(20) << 32 | 1] = None
    return list(keys)


class Held:
    """A mirror in which one source holds some keys, and the same as a plain dict."""

    def __init__(self) -> None:
        self.mirror, lanes = Mirror(), LaneTable()
        lanes.number(0, Tier.GPU)
        self.slot = self.mirror.open_slot(lanes)
        self.keys: dict[int, None] = {}

    def add(self, keys: list[int]) -> None:
        """The source holds these, too."""
        self.mirror.add(self.slot, 0, keys, [0] * len(keys))
        self.keys |= dict.fromkeys(keys)

    def remove(self, keys: list[int]) -> None:
        """And these no more."""
        self.mirror.remove(self.slot, 0, keys)
        for key in keys:
            self.keys.pop(key, None)

    def check(self, prompt: list[int]) -> None:
        """The prefix ends where it should, and every id is that of its key."""
        held = next((at for at, key in enumerate(prompt) if key not in self.keys), len(prompt))
        table = self.mirror.table
        rids = table.prefix(np.array(prompt, np.uint64)).tolist()
        leading = next((at for at, rid in enumerate(rids) if not rid), len(rids))  # a table that moves shows 0
        assert held == leading
        assert [table.get(key) for key in prompt[:held]] == rids[:held]


def test_a_run_is_found_by_its_last_key() -> None:
    """Only where all runs before it are known, and only whole ones."""
    hints = SlotHints()
    keys, slots = np.arange(1, 3 * RUN + 6, dtype=np.uint64), np.arange(500, 503 + 3 * RUN, dtype=np.int64)
    hints.learn(keys, slots)

    assert slots[: 3 * RUN].tolist() == hints.leading(keys).tolist()
    assert slots[: 2 * RUN].tolist() == hints.leading(keys[: 3 * RUN - 1]).tolist()
    assert [] == hints.leading(keys[1:]).tolist()
    assert [] == hints.leading(keys[: RUN - 1]).tolist()


def test_what_moved_is_learnt_anew_by_runs() -> None:
    """Of the runs of these numbers alone."""
    hints = SlotHints()
    keys, slots = np.arange(1, 3 * RUN + 1, dtype=np.uint64), np.arange(3 * RUN, dtype=np.int64)
    hints.learn(keys, slots)
    hints.learn(keys, slots + 1, [1])

    expected = [*slots[:RUN], *(slots[RUN : 2 * RUN] + 1), *slots[2 * RUN :]]
    assert expected == hints.leading(keys).tolist()


@pytest.mark.parametrize("homes", [CAPACITY_MIN, 600, 40])
@pytest.mark.parametrize("seed", range(3))
def test_prefixes_stay_right_while_blocks_come_and_go(homes: int, seed: int) -> None:
    """Prompts are asked for again and again: at rest, after removals that move neighbours, while the table grows."""
    draw = random.Random(seed)
    held = Held()
    prompts = [keys_of(length, draw, homes) for length in (RUN, 70, 100, 3 * RUN, MANY + 3 * RUN, 300)]
    for prompt in prompts:
        held.add(prompt)
    for _ in range(60):
        held.check(draw.choice(prompts))
        match draw.randrange(5):
            case 0:
                held.remove(draw.sample(draw.choice(prompts), draw.choice((1, 2, 30))))
            case 1:
                held.add(draw.choice(prompts)[: draw.randrange(300)])
            case 2:
                held.add(keys_of(draw.choice((1, 40)), draw, homes))
            case 3:
                others = [key for key in held.keys if all(key not in prompt for prompt in prompts)]
                held.remove(draw.sample(others, len(others) // 2))
            case _:
                while draw.randrange(4) and held.mirror.tidy_slice():
                    held.check(draw.choice(prompts))


def test_a_prompt_most_of_which_moved_is_looked_for_as_a_whole() -> None:
    """All of a crowd's keys moved back by those that lay before them."""
    held, draw = Held(), random.Random(1)
    before = keys_of(2 * AWAY_MAX, draw, homes=1)
    prompt = keys_of(3 * RUN, draw, homes=1)
    held.add(before)
    held.add(prompt)
    held.check(prompt)
    held.check(prompt)
    held.remove(before)

    held.check(prompt)
    held.check(prompt)


def test_keys_asked_for_in_another_order_are_answered_as_asked() -> None:
    """Callers may ask by any hashes: what ends with the same key need not be the same run."""
    held, draw = Held(), random.Random(2)
    prompt = keys_of(4 * RUN, draw)
    held.add(prompt)
    held.check(prompt)
    for _ in range(5):
        mixed = draw.sample(prompt, len(prompt))
        mixed[RUN - 1 :: RUN] = prompt[RUN - 1 :: RUN]
        held.check(list(dict.fromkeys(mixed)))
        held.check(prompt)


@pytest.mark.parametrize("homes", [CAPACITY_MIN, 300, 4])
def test_nothing_is_found_behind_a_zero(homes: int) -> None:
    """No block's hash is 0, but an empty slot's is: a question that names it is one that nobody holds from there on."""
    held, draw = Held(), random.Random(homes)
    prompt = keys_of(8 * RUN, draw, homes)
    held.add(prompt)
    held.add([key & ~(2**40) for key in keys_of(40, draw, 40)] + [1])  # slots around the home of 0 are taken
    for _ in range(300):
        asked = prompt[: draw.randrange(8 * RUN)] + keys_of(draw.choice((0, 3, 120)), draw, homes)
        for _ in range(draw.choice((1, 1, 3))):
            asked.insert(draw.choice((0, draw.randrange(len(asked) + 1))), 0)
        held.check(asked)
        table = held.mirror.table
        assert [table.get(key) if key else 0 for key in asked] == table.get_many(np.array(asked, np.uint64)).tolist()


def test_arrays_that_were_replaced_are_let_go() -> None:
    """A table that shrank holds nothing of the larger one, whether anybody asks or not."""
    held, draw = Held(), random.Random(3)
    prompt = keys_of(4 * RUN, draw)
    held.add(prompt)
    held.add(keys_of(30_000, draw, 2**30))
    while held.mirror.tidy_slice():
        pass
    held.check(prompt)
    arrays = weakref.ref(held.mirror.table.current.rows)
    held.remove(list(held.keys))
    while held.mirror.tidy_slice():
        pass

    assert arrays() is None


def test_hints_are_bounded() -> None:
    """The oldest are forgotten."""
    recent: Recent[int, bytes] = Recent(2)
    hints = SlotHints()
    hints._runs = recent
    keys = np.arange(1, 20 * RUN + 1, dtype=np.uint64)
    hints.learn(keys, np.arange(20 * RUN, dtype=np.int64))

    assert 4 >= len(recent.young) + len(recent.old)
    hints.forget()
    assert [] == hints.leading(keys).tolist()
    assert not recent.young
    assert not recent.old
