"""The walk: longest unbroken prefixes of any number of slots, with holes, tiers and tables on the move."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from indexer.index import walk as module
from indexer.index.mirror import Mirror
from indexer.index.records import LaneTable
from indexer.index.walk import VECTOR_BLOCKS_MIN, Walk, walk
from indexer.model import Held, Tier

TIERS = list(Tier)


def lanes(main: tuple[int, ...] = (0,)) -> LaneTable:
    """Lane number = tier of group 0, then tier of group 1."""
    table = LaneTable()
    table.set_main_groups(main)
    for group in (0, 1):
        for tier in TIERS:
            table.number(group, tier)
    return table


def hold(mirror: Mirror, slot: int, hashes: list[int], *, lane: int = 0) -> None:
    """The slot's lane holds these."""
    mirror.add(slot, lane, hashes, [0] * len(hashes))


def u64(hashes: list[int]) -> np.ndarray:
    """As lookups have them."""
    return np.array(hashes, np.uint64)


def naive(mirror: Mirror, hashes: list[int], start: int) -> dict[int, Held]:
    """Slot by slot, block by block, from what the mirror says of each."""
    out: dict[int, Held] = {}
    for slot in range(start.bit_length()):
        if not start >> slot & 1:
            continue
        main = mirror.book.tables[slot].main_groups
        best: list[Tier] = []
        for each in hashes:
            on = mirror.lanes(slot, each)
            tiers = [min((tier for group, tier in on if group == wanted), default=None) for wanted in main]
            if None in tiers:
                break
            best.append(max(tier for tier in tiers if tier is not None))
        views = tuple(
            next((i for i, tier in enumerate(best) if tier > worst), len(best))
            for worst in (Tier.GPU, Tier.CPU, Tier.STORAGE, Tier.REMOTE)
        )
        if best:
            out[slot] = Held(len(best), views)
    return out


@pytest.mark.parametrize("blocks", [8, VECTOR_BLOCKS_MIN + 8])
def test_each_slot_counts_from_the_first_block_on(blocks: int) -> None:
    """A slot that lacks block 0 holds nothing, whatever else it has; others end where theirs ends."""
    mirror = Mirror()
    for _ in range(4):
        mirror.open_slot(lanes())
    hashes = list(range(100, 100 + blocks))
    hold(mirror, 0, hashes)
    hold(mirror, 1, hashes[:3])
    hold(mirror, 2, hashes[1:])
    hold(mirror, 3, hashes[:5] + hashes[6:])

    found = walk(mirror, u64(hashes), 0b1111)

    assert {0: blocks, 1: 3, 3: 5} == {slot: held.matched for slot, held in found.held.items()}
    assert {1: 3} == {slot: held.matched for slot, held in walk(mirror, u64(hashes), 0b0110).held.items()}
    hold(mirror, 3, [hashes[5]])
    assert blocks == walk(mirror, u64(hashes), 0b1000).held[3].matched


@pytest.mark.parametrize("blocks", [8, VECTOR_BLOCKS_MIN + 8])
def test_runs_are_stretches_of_one_presence(blocks: int) -> None:
    """They cover the prompt from its start to where the last holder ends."""
    mirror = Mirror()
    for _ in range(2):
        mirror.open_slot(lanes())
    hashes = list(range(100, 100 + blocks))
    hold(mirror, 0, hashes[:6])
    hold(mirror, 1, hashes[:2])

    runs = walk(mirror, u64(hashes), 0b11).runs

    assert [(0b11, 0, 2), (0b01, 2, 6)] == [(run.record.any, run.start, run.end) for run in runs]
    assert [(0, 2)] == [(run.start, run.end) for run in walk(mirror, u64(hashes), 0b10).runs]


def test_nothing_to_walk() -> None:
    """No hashes, no slot, nobody."""
    mirror = Mirror()
    mirror.open_slot(lanes())
    hold(mirror, 0, [5])

    assert Walk({}, []) == walk(mirror, u64([]), 1) == walk(mirror, u64([5]), 0)
    assert Walk({}, []) == walk(mirror, u64([6, 5]), 1)
    assert Walk({}, []) == walk(mirror, u64([6] * VECTOR_BLOCKS_MIN), 1)
    assert Walk({}, []) == walk(mirror, u64([5]), 0b10)
    assert Walk({}, []) == walk(mirror, u64([5] * VECTOR_BLOCKS_MIN), 0b10)


def test_a_retired_slot_is_in_no_walk() -> None:
    """Walks begin with the slots that live; the scrub may come whenever it likes."""
    mirror = Mirror()
    for _ in range(2):
        mirror.open_slot(lanes())
        hold(mirror, _, [5, 6])
    mirror.retire(0)

    assert {1: 2} == {slot: held.matched for slot, held in walk(mirror, u64([5, 6]), mirror.live_slots).held.items()}


@pytest.mark.parametrize("blocks", [5, VECTOR_BLOCKS_MIN + 5])
def test_tier_views(blocks: int) -> None:
    """GPU alone, then down to remote: each its own unbroken prefix; unknown counts in `matched` alone."""
    mirror = Mirror()
    mirror.open_slot(lanes())
    hashes = list(range(100, 100 + blocks))
    for tier in TIERS:
        hold(mirror, 0, [hashes[tier]], lane=int(tier))
    hold(mirror, 0, hashes[5:])
    hold(mirror, 0, [hashes[1]], lane=int(Tier.STORAGE))

    assert Held(blocks, (1, 2, 3, 4)) == walk(mirror, u64(hashes), 1).held[0]


def test_all_main_groups_count() -> None:
    """A block that one full-attention group lacks ends the prefix; the worse tier of the two counts."""
    mirror = Mirror()
    mirror.open_slot(lanes((0, 1)))
    hold(mirror, 0, [5, 6, 7], lane=0)
    hold(mirror, 0, [5], lane=5)
    hold(mirror, 0, [6], lane=6)

    assert Held(2, (1, 2, 2, 2)) == walk(mirror, u64([5, 6, 7]), 1).held[0]


def scattered(draw: random.Random, prompt: list[int], slots: int) -> Mirror:
    """Many slots that hold parts of the prompt with holes, on many lanes."""
    mirror = Mirror(shift=draw.choice([0, 17]))
    for slot in range(slots):
        mirror.open_slot(lanes((0, 1) if slot % 5 == 0 else (0,)))
        end = draw.randrange(len(prompt))
        for lane in [*draw.sample(range(10), 4), 0, 5]:
            first = draw.choice([0, 0, draw.randrange(end + 1)])
            hold(mirror, slot, [each for each in prompt[first:end] if draw.random() > 0.01], lane=lane)
    return mirror


def states(mirror: Mirror, draw: random.Random) -> Iterator[None]:
    """The same presence in a settled table, in two tables, and in a larger settled one."""
    yield
    hold(mirror, 0, [draw.getrandbits(64) for _ in range(3_000)])
    while mirror.table.old is None:
        mirror.table.move_slice()
    yield
    while mirror.tidy_slice():
        pass
    yield


@pytest.mark.parametrize("seed", range(3))
def test_every_way_gives_the_naive_answer(seed: int) -> None:
    """Scalar, vector and across two tables, for more slots than a machine word has bits."""
    draw = random.Random(seed)
    prompt = [draw.getrandbits(64) for _ in range(VECTOR_BLOCKS_MIN + 60)]
    mirror = scattered(draw, prompt, slots=70)
    start = draw.getrandbits(70)

    for _ in states(mirror, draw):
        for blocks in (1, 40, len(prompt)):
            part = prompt[:blocks]
            found = walk(mirror, u64(part), start)
            assert naive(mirror, part, start) == found.held
            ends = [held.matched for held in found.held.values()]
            assert max(ends, default=0) == (found.runs[-1].end if ends else 0)  # lookups take it for the longest match
            assert (
                module._runs_scalar(mirror, part, start) == module._runs_vector(mirror, u64(part), start) == found.runs
            )
