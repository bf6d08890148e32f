"""From presence to the numbers of an answer."""

from __future__ import annotations

import pytest

from indexer.index.records import Record
from indexer.model import Held, Run
from indexer.score.prefix import DEFAULT_WEIGHTS, blocks_by_tier, reusable_blocks, score_of


def run(start: int, end: int, best: int, slot: int = 3) -> Run:
    """Blocks that the slot holds in this tier at best: 0 gpu … 4 unknown."""
    record = Record(1, ((slot, 1),))
    record.views = tuple((1 << slot) * (view >= best) for view in range(4))
    return Run(record, start, end)


def test_blocks_by_their_best_tier() -> None:
    """Counted over the matched prefix alone; the sum is what matched."""
    runs = [run(0, 2, 0), run(2, 5, 1), run(5, 6, 2), run(6, 8, 3), run(8, 12, 4), run(12, 20, 0)]

    assert (2, 3, 1, 2, 2) == blocks_by_tier(Held(10, (2, 5, 6, 8)), runs, 3)
    assert (2, 3, 1, 2, 2) == blocks_by_tier(Held(10, (2, 5, 6, 8)), [*runs[:4], run(8, 10, 4)], 3)
    assert (2, 1, 0, 0, 0) == blocks_by_tier(Held(3, (2, 3, 3, 3)), runs, 3)


def test_all_in_gpu_memory_needs_no_look_at_the_runs() -> None:
    """The usual case."""
    assert (7, 0, 0, 0, 0) == blocks_by_tier(Held(7, (7, 7, 7, 7)), [], 3)


@pytest.mark.parametrize(
    ("by_tier", "expected"),
    [
        ((8, 0, 0, 0, 0), 1.0),
        ((0, 8, 0, 0, 0), 0.8),
        ((0, 0, 8, 0, 0), 0.5),
        ((0, 0, 0, 8, 0), 0.5),
        ((0, 0, 0, 0, 8), 0.0),
        ((1, 1, 1, 1, 1), (1 + 0.8 + 0.5 + 0.5) / 8),
        ((0, 0, 0, 0, 0), 0.0),
    ],
)
def test_score_is_the_weighted_share_of_the_prompt(by_tier: tuple[int, ...], expected: float) -> None:
    """Of 32 tokens in blocks of 4; weights as promised."""
    assert expected == pytest.approx(score_of(by_tier, 4, 32, DEFAULT_WEIGHTS))


def test_score_bounds() -> None:
    """Never above one, also where a caller's count of tokens is too small; zero for nothing; suspects discounted."""
    assert 1.0 == score_of((9, 0, 0, 0, 0), 4, 32, DEFAULT_WEIGHTS)
    assert 0.0 == score_of((0, 0, 0, 0, 0), 4, 0, DEFAULT_WEIGHTS)
    assert 0.25 == score_of((4, 0, 0, 0, 0), 4, 32, DEFAULT_WEIGHTS, factor=0.5)


@pytest.mark.parametrize(
    ("matched", "prompt_tokens", "partial", "expected"),
    [
        (2, 32, False, 1),  # wholly cached: the last block is computed again
        (2, 33, False, 2),
        (2, 31, False, 1),
        (2, 32, True, 2),  # the prompt goes on
        (1, 100, False, 1),
        (0, 0, False, 0),
        (0, 1, False, 0),
        (1, 16, False, 0),
        (1, 17, False, 1),
    ],
)
def test_the_last_token_is_always_computed(matched: int, prompt_tokens: int, partial: bool, expected: int) -> None:
    """Blocks of 16."""
    assert expected == reusable_blocks(matched, 16, prompt_tokens, partial=partial)
