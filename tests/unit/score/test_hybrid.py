"""The hit rule of hybrid models against a brute force written from its sentence."""

from __future__ import annotations

import random
from math import ceil, lcm

import pytest

from indexer.index.records import Record
from indexer.model import GroupInfo, Run
from indexer.score.hybrid import hybrid_tokens

BLOCK = 4
Held = dict[int, set[int]]
"""Group to the positions of the walk at which it holds a block."""


def runs_of(held: Held, blocks: int) -> list[Run]:
    """A run a block: the record's lanes are the bits of the groups that hold it."""
    runs = []
    for position in range(blocks):
        bits = sum(1 << group for group, positions in held.items() if position in positions)
        runs.append(Run(Record(1, ((7, bits),)), position, position + 1))
    return runs


def tokens(limit: int, held: Held, groups: dict[int, GroupInfo], blocks: int = 40) -> int:
    """The rule for slot 7, whose lane number is its group number."""
    return hybrid_tokens(
        limit,
        BLOCK,
        list(groups.items()),
        runs_of(held, blocks),
        7,
        lambda bits: {group for group in range(8) if bits >> group & 1},
    )


def brute_force(limit: int, held: Held, groups: dict[int, GroupInfo]) -> int:
    """The longest multiple L of the lcm such that each window group holds its last ceil((w-1)/b) blocks before L."""
    step = lcm(BLOCK, *(info.block_size for info in groups.values()))
    best = 0
    for length in range(step, limit + 1, step):
        fits = True
        for group, info in groups.items():
            size, window = info.block_size, info.window or 0
            needed = min(ceil((window - 1) / size), length // size)
            last = [length // size - 1 - back for back in range(needed)]
            fits = fits and all((block + 1) * size // BLOCK - 1 in held[group] for block in last)
        if fits:
            best = length
    return best


def window(size: int, tokens_seen: int) -> GroupInfo:
    """A sliding window group."""
    return GroupInfo("sliding_window", tokens_seen, size)


@pytest.mark.parametrize(
    ("limit", "positions", "seen", "expected"),
    [
        (32, range(8), 9, 32),  # holds all
        (32, range(6, 8), 9, 32),  # holds just the last two blocks before the end
        (32, [7], 9, 0),  # lacks one of them, and has no others
        (32, [2, 3, 7], 9, 16),  # an earlier end fits
        (32, [0], 9, 4),  # fewer blocks than the window looks back: all of them
        (32, [], 1, 32),  # a window of one token looks at no other block
        (32, [7], 2, 32),  # one block back
        (32, [7], 5, 32),  # still one
        (32, [7], 6, 0),  # two
        (0, range(8), 9, 0),
        (3, range(8), 9, 0),  # not a whole block
    ],
)
def test_one_window_group(limit: int, positions: list[int], seen: int, expected: int) -> None:
    """Only its last blocks before the end count."""
    assert expected == tokens(limit, {1: set(positions)}, {1: window(BLOCK, seen)})


def test_blocks_of_another_size_lie_at_their_ends() -> None:
    """A group whose blocks are twice as large: hits are multiples of the larger size."""
    groups = {1: window(2 * BLOCK, 9)}

    assert 24 == tokens(28, {1: {5}}, groups)
    assert 0 == tokens(28, {1: {4, 6}}, groups)
    assert 8 == tokens(15, {1: {1, 3}}, groups)


@pytest.mark.parametrize("size", [2, 6])
def test_blocks_that_have_no_place_in_the_walk(size: int) -> None:
    """Finer ones, or ones that end elsewhere: nothing is known of them, so nothing is claimed."""
    assert 0 == tokens(24, {1: set(range(40))}, {1: window(size, 9)})


def test_without_window_groups_only_the_block_counts() -> None:
    """Nothing else limits the hit."""
    assert 28 == tokens(31, {}, {})


def test_every_group_must_agree() -> None:
    """The longest end at which all of them hold their last blocks."""
    groups = {1: window(BLOCK, 5), 2: window(BLOCK, 9)}

    assert 12 == tokens(32, {1: {2, 7}, 2: {1, 2, 6}}, groups)


def test_groups_of_other_slots_count_for_nothing() -> None:
    """A record names many slots."""
    run = Run(Record(1, ((3, 0b10),)), 0, 8)

    assert 0 == hybrid_tokens(32, BLOCK, [(1, window(BLOCK, 5))], [run], 7, lambda bits: {1} if bits else set())


def test_runs_longer_than_the_limit() -> None:
    """Are cut at it."""
    run = Run(Record(1, ((7, 0b10),)), 0, 100)

    assert 32 == hybrid_tokens(32, BLOCK, [(1, window(BLOCK, 5))], [run, run], 7, lambda bits: {1} if bits else set())


@pytest.mark.parametrize("seed", range(5))
def test_against_brute_force(seed: int) -> None:
    """Random groups, sizes, windows and holes."""
    draw = random.Random(seed)
    for _ in range(200):
        groups = {
            group: window(BLOCK * draw.choice([1, 1, 2, 3]), draw.randrange(1, 40))
            for group in range(1, draw.randrange(1, 4))
        }
        density = draw.random()
        held = {group: {p for p in range(40) if draw.random() < density or p > 30} for group in groups}
        limit = draw.randrange(41) * BLOCK
        assert brute_force(limit, held, groups) == tokens(limit, held, groups)
