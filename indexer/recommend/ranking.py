"""From what is known of each candidate to its total, term by term. Pure.

A column for each thing that is known: a fleet of hundreds is ranked with each request, and one candidate after the
other that takes longer than to look up what all of them hold. Penalties, all there are:

    crowded   it got more than its share of the prompt's prefix and nothing is known of loads: behind all who did not
    full      its KV cache is taken by requests under way to nine tenths or more: up to as much as load can count
    silent    nothing was heard of it for a while (`stale`): what its load would count for it, since that is old, too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights, headrooms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]

FULL_FROM: Final = 0.9
"""Share of a KV cache taken by requests under way, from which on new ones soon wait, or push others out."""


class Columns(NamedTuple):
    """What is known of candidates; NaN where nothing is of one. None: of none, or of none that it matters for."""

    score: Numbers
    expected: Numbers | None = None
    """Shares of the prompt that are on their way there."""
    requests: Numbers | None = None
    kv_usage: Numbers | None = None
    silent: Flags | None = None
    crowded: Flags | None = None

    def at(self, places: NDArray[np.intp]) -> Columns:
        """Of these alone, in that order."""
        return Columns(
            self.score[places],
            None if self.expected is None else self.expected[places],
            None if self.requests is None else self.requests[places],
            None if self.kv_usage is None else self.kv_usage[places],
            None if self.silent is None else self.silent[places],
            None if self.crowded is None else self.crowded[places],
        )


class Sums(NamedTuple):
    """What each candidate is worth: its terms, weighted, and what they come to."""

    total: Numbers
    prefix: Numbers
    load: Numbers
    speculative: Numbers
    penalty: Numbers


def sums(known: Columns, weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> Sums:
    """What each is worth beside the others, in their order."""
    nothing = np.zeros(len(known.score))
    prefix = weights.prefix * known.score
    load = nothing if known.requests is None else weights.load * headrooms(known.requests, floor)
    speculative = nothing if known.expected is None else weights.speculative * known.expected
    penalty = nothing
    if known.silent is not None:
        penalty = penalty + np.where(known.silent, load, 0.0)
    if known.crowded is not None:
        penalty = penalty + np.where(known.crowded, sum(weights) or 1.0, 0.0)
    if known.kv_usage is not None:
        beyond = np.nan_to_num(known.kv_usage, nan=0.0) - FULL_FROM
        penalty = penalty + weights.load * np.maximum(beyond, 0.0) / (1 - FULL_FROM)
    return Sums(prefix + load + speculative - penalty, prefix, load, speculative, penalty)
