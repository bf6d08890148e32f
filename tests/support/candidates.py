"""What candidates are worth, one after the other and by the words of the design: what columns are compared with.

Also the way from such a list to columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from indexer.recommend.ranking import FULL_FROM, Columns, sums

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def ranked(known: Sequence[Known], weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> list[Worth]:
    """As the service does it."""
    columns = Columns(
        score=np.array([each.score for each in known]),
        expected=np.array([each.expected for each in known]),
        requests=np.array([each.requests for each in known], np.float64),
        kv_usage=np.array([each.kv_usage for each in known], np.float64),
        silent=np.array([each.silent for each in known], np.bool_),
        crowded=np.array([each.crowded for each in known], np.bool_),
    )
    return [Worth(*row) for row in zip(*(column.tolist() for column in sums(columns, weights, floor)), strict=True)]


def plainly(known: Sequence[Known], weights: BlendWeights, floor: float) -> list[Worth]:
    """As the design has it."""
    told = [each.requests for each in known if each.requests is not None]
    least, most, mean = min(told, default=0.0), max(told, default=0.0), sum(told) / len(told) if told else 0.0
    out: list[Worth] = []
    for each in known:
        requests = mean if each.requests is None else each.requests
        prefix, speculative = weights.prefix * each.score, weights.speculative * each.expected
        load = weights.load * (1 - (requests - least) / max(most - least, floor)) if told else 0.0
        penalty = load if each.silent else 0.0
        penalty += (sum(weights) or 1.0) if each.crowded else 0.0
        penalty += weights.load * max(0.0, (each.kv_usage or 0.0) - FULL_FROM) / (1 - FULL_FROM)
        out.append(Worth(prefix + load + speculative - penalty, prefix, load, speculative, penalty))
    return out
