"""Whether an engine keeps reusing something else than what is claimed of it while nothing explains it. Pure.

Only the newest answers of the present generation count, given while the source was live and its bound exact: whatever
was known to be uncertain says nothing against what is known. Once so many are wrong, no single block is to blame: the
engine has long since computed and announced these very blocks. It is the source that is not believed any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from indexer.reports.causes import NOT_ITS_OWN

if TYPE_CHECKING:
    from indexer.reports.causes import Compared, MismatchCause


class DriftLimits(NamedTuple):
    """`share` of the last `samples` that may be wrong, or of the tokens in them that may be false hits."""

    samples: int
    share: float


class Drift:
    """Of one source."""

    __slots__ = ("_false", "_generation", "_inexact", "_newest", "_predicted")

    def __init__(self) -> None:
        self._generation: int | None = None
        self._begin(None)

    def take(self, compared: Compared, cause: MismatchCause | None, limits: DriftLimits) -> bool:
        """One more; whether that makes it drift."""
        said = compared.predicted
        certain = said.trust.state == "live" and said.trust.bound == "exact"
        if not certain or compared.generation != said.generation or cause in NOT_ITS_OWN:
            return False
        if said.generation != self._generation:
            self._begin(said.generation)
        sample = (said.reusable_tokens, compared.false_tokens, int(cause is not None))
        self._newest.append(sample)
        self._add(sample, 1)
        if len(self._newest) > limits.samples:
            self._add(self._newest.popleft(), -1)
        if len(self._newest) < limits.samples:
            return False
        false_share = self._false / self._predicted if self._predicted else 0.0
        drifts = max(false_share, self._inexact / len(self._newest)) > limits.share
        if drifts:
            self._begin(self._generation)  # what comes next is judged by itself
        return drifts

    def _begin(self, generation: int | None) -> None:
        self._generation = generation
        self._newest: deque[tuple[int, int, int]] = deque()
        self._predicted = self._false = self._inexact = 0

    def _add(self, sample: tuple[int, int, int], sign: int) -> None:
        predicted, false, inexact = sample
        self._predicted += sign * predicted
        self._false += sign * false
        self._inexact += sign * inexact
