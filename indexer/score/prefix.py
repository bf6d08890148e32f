"""From what a source holds to the numbers of its answer. Pure.

`matched`: blocks of the unbroken prefix. `tiers`: tokens of the matched blocks by each block's best tier. `score`:
their weighted share of the prompt, 0..1. `reusable`: what the engine would really skip; its last token is always
computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.model import Held, Run

Weights = tuple[float, float, float, float, float]
DEFAULT_WEIGHTS: Weights = (1.0, 0.8, 0.5, 0.5, 0.0)
"""gpu, cpu, storage, remote, unknown: no weight may exceed 1, so that a score never does."""


def blocks_by_tier(held: Held, runs: Sequence[Run], slot: int) -> tuple[int, int, int, int, int]:
    """Matched blocks by best tier: gpu, cpu, storage, remote, unknown."""
    matched = held.matched
    if held.views[0] == matched:
        return (matched, 0, 0, 0, 0)
    counts = [0, 0, 0, 0, 0]
    for record, start, end in runs:
        if start >= matched:
            break
        counts[_best(record.views, slot)] += min(end, matched) - start
    return (counts[0], counts[1], counts[2], counts[3], counts[4])


def _best(views: Sequence[int], slot: int) -> int:
    for tier, view in enumerate(views):
        if view >> slot & 1:
            return tier
    return len(views)


def score_of(
    by_tier: Sequence[int], block_size: int, prompt_tokens: int, weights: Weights, factor: float = 1.0
) -> float:
    """Weighted share of the prompt that is held. `factor` discounts a suspect source."""
    if not prompt_tokens:
        return 0.0
    gpu, cpu, storage, remote, unknown = by_tier
    weighted = gpu * weights[0]
    if cpu or storage or remote or unknown:
        weighted += cpu * weights[1] + storage * weights[2] + remote * weights[3] + unknown * weights[4]
    return min(1.0, weighted * block_size / prompt_tokens) * factor


def reusable_blocks(matched: int, block_size: int, prompt_tokens: int, *, partial: bool) -> int:
    """Blocks the engine would skip: it always computes the last token, unless the prompt goes on (`partial`)."""
    if partial:
        return matched
    return min(matched, max(0, prompt_tokens - 1) // block_size)
