"""From what is known of each candidate to its total, term by term. Pure. For few; columns.py is the same for many.

Penalties, all there are:

    crowded   it got more than its share of the prompt's prefix and nothing is known of loads: behind all who did not
    full      its KV cache is taken by requests under way to nine tenths or more: up to as much as load can count
    silent    nothing was heard of it for a while (`stale`): what its load would count for it, since that is old, too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights, headrooms

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL_FROM: Final = 0.9
"""Share of a KV cache taken by requests under way, from which on new ones soon wait, or push others out."""


class Known(NamedTuple):
    """Of one candidate."""

    score: float = 0.0
    expected: float = 0.0
    """Share of the prompt that is on its way there."""
    requests: float | None = None
    kv_usage: float | None = None
    silent: bool = False
    crowded: bool = False


class Worth(NamedTuple):
    """Of one candidate: its terms, weighted, and what they come to."""

    total: float
    prefix: float
    load: float
    speculative: float
    penalty: float


def worths(known: Sequence[Known], weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> list[Worth]:
    """What each of these is worth beside the others, in their order."""
    free = headrooms([each.requests for each in known], floor)
    most = sum(weights) or 1.0
    out: list[Worth] = []
    for (score, expected, _, kv_usage, silent, crowded), headroom in zip(known, free, strict=True):
        prefix, load, speculative = weights.prefix * score, weights.load * headroom, weights.speculative * expected
        penalty = 0.0
        if silent or crowded or (kv_usage is not None and kv_usage > FULL_FROM):
            penalty += load if silent else 0.0
            penalty += most if crowded else 0.0
            penalty += weights.load * max(0.0, (kv_usage or 0.0) - FULL_FROM) / (1 - FULL_FROM)
        out.append(Worth(prefix + load + speculative - penalty, prefix, load, speculative, penalty))
    return out
