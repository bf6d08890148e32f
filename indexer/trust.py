"""How far a source could be trusted at one moment, in one byte: its state, its bound and the age of the newest proof.

Pure. What is remembered of each answer holds one of each source listed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple, get_args

from indexer.model import Bound, SourceState

STATES: Final[tuple[SourceState, ...]] = get_args(SourceState)
BOUNDS: Final[tuple[Bound, ...]] = get_args(Bound)
AGE_EDGES_MS: Final = (100, 1_000, 5_000, 60_000)
AGE_CLASSES: Final = ("under_100ms", "under_1s", "under_5s", "under_1m", "older", "unknown")
"""Of the newest proof that nothing is missing (`lag_ms`)."""
_UNKNOWN: Final = len(AGE_EDGES_MS) + 1
_STATE_CODES: Final = {state: len(AGE_CLASSES) * len(BOUNDS) * code for code, state in enumerate(STATES)}
_BOUND_CODES: Final = {bound: len(AGE_CLASSES) * code for code, bound in enumerate(BOUNDS)}


class Trust(NamedTuple):
    """The same in words. `age`: one of `AGE_CLASSES`."""

    state: SourceState
    bound: Bound
    age: str


def trust_of(state: SourceState, bound: Bound, lag_ms: int | None) -> int:
    """0..143."""
    age = _UNKNOWN if lag_ms is None else bisect_right(AGE_EDGES_MS, lag_ms)
    return _STATE_CODES[state] + _BOUND_CODES[bound] + age


def in_words(trust: int) -> Trust:
    """What the byte says."""
    rest, age = divmod(trust, len(AGE_CLASSES))
    state, bound = divmod(rest, len(BOUNDS))
    return Trust(STATES[state], BOUNDS[bound], AGE_CLASSES[age])
