"""How much each term of a recommendation counts, and the term for load. Pure; ranking.py adds them up.

    total = weights.prefix · score + weights.load · headroom + weights.speculative · expected - penalty

Headroom is measured between the least and the most busy of the candidates. A term that is clipped at some fixed load
says the same of all of them once all are past it, and then the longest match alone decides and draws every request to
one engine; this one goes on telling them apart however busy all are. The floor keeps a difference of a request or two
from counting as much as one of a hundred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOAD_FLOOR: Final = 4.0
"""Requests. Where the loads of all candidates differ by less, the headroom differs by the less."""


class BlendWeights(NamedTuple):
    """How much each term counts. `speculative`: of a part that is not held yet, but on its way."""

    prefix: float = 1.0
    load: float = 0.3
    speculative: float = 0.5


BLEND: Final = BlendWeights()


def headrooms(requests: NDArray[np.float64], floor: float = LOAD_FLOOR) -> NDArray[np.float64]:
    """1 for the least busy, 0 for the most busy where it is by `floor` requests or more.

    Of whom nothing is known (NaN) stands where the mean of the others does: neither drawn to nor kept from. Where
    nothing is known of anybody it is 0 for all.
    """
    known = requests[~np.isnan(requests)]
    if not len(known):
        return np.zeros(len(requests))
    least, most = known.min(), known.max()
    filled = requests if len(known) == len(requests) else np.where(np.isnan(requests), known.mean(), requests)
    headroom: NDArray[np.float64] = 1.0 - (filled - least) / max(most - least, floor)
    return headroom
