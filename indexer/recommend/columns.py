"""The same as ranking.py for many candidates at once: a column for each thing that is known of them. Pure.

A fleet of hundreds is ranked with each request; one candidate after the other that takes longer than to look up what
all of them hold. Columns of what is known of nobody are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from indexer.recommend.ranking import FULL_FROM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from indexer.recommend.blend import BlendWeights

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]


class Columns(NamedTuple):
    """As `Known`; NaN where nothing is known of one. None: of none, or of none that it matters for."""

    score: Numbers
    expected: Numbers | None = None
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
    """As `Worth`."""

    total: Numbers
    prefix: Numbers
    load: Numbers
    speculative: Numbers
    penalty: Numbers


def sums(known: Columns, weights: BlendWeights, floor: float) -> Sums:
    """What each is worth beside the others, in their order."""
    nothing = np.zeros(len(known.score))
    prefix = weights.prefix * known.score
    load = nothing if known.requests is None else weights.load * _headrooms(known.requests, floor)
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


def _headrooms(requests: Numbers, floor: float) -> Numbers:
    """As `headrooms`."""
    known = requests[~np.isnan(requests)]
    if not len(known):
        return np.zeros(len(requests))
    least, most = known.min(), known.max()
    filled = requests if len(known) == len(requests) else np.where(np.isnan(requests), known.mean(), requests)
    headroom: Numbers = 1.0 - (filled - least) / max(most - least, floor)
    return headroom
