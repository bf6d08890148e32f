"""How long a routed prompt takes to show in its engine's events, and so how long its blocks are expected. Pure.

Twice the 95th percentile of what was seen, so that hardly any hint ends before its event. Of the source itself, where
that is known; else of the sources of its model, which do the same work; else the longest, since a hint that ends too
early is lost, and one that ends late still names what the engine was asked to compute (decisions/0030).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

    from indexer.model import SourceId

TTL_MIN_S: Final = 0.5
TTL_MAX_S: Final = 10.0
TIMES: Final = 2
SAMPLES_KEPT: Final = 64
SAMPLES_MIN: Final = 8
"""Fewer say too little of the slowest of twenty."""
MODELS_MAX: Final = 1_024
"""Models are named by whoever registers; of more, their sources go by what is known of themselves."""


class _Samples:
    """The latest of one source or model."""

    __slots__ = ("_p95_s", "_seconds")

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._p95_s: float | None = None

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._p95_s = None

    def p95_s(self) -> float | None:
        """None where there are too few."""
        if self._p95_s is None and len(self._seconds) >= SAMPLES_MIN:
            ranked = sorted(self._seconds)
            self._p95_s = ranked[-(-95 * len(ranked) // 100) - 1]
        return self._p95_s


class Delays:
    """Seconds from the word that a prompt was routed to the event of its last block."""

    def __init__(self) -> None:
        self._of_source: dict[SourceId, _Samples] = {}
        self._of_model: dict[str | None, _Samples] = {}

    def seen(self, source: SourceId, model: str | None, seconds: float) -> None:
        """One prompt."""
        self._of_source.setdefault(source, _Samples()).add(seconds)
        if model in self._of_model or len(self._of_model) < MODELS_MAX:
            self._of_model.setdefault(model, _Samples()).add(seconds)

    def ttl_s(self, source: SourceId, model: str | None) -> float:
        """So long blocks are expected of that source."""
        for samples in (self._of_source.get(source), self._of_model.get(model)):
            p95_s = None if samples is None else samples.p95_s()
            if p95_s is not None:
                return min(max(TIMES * p95_s, TTL_MIN_S), TTL_MAX_S)
        return TTL_MAX_S

    def forget_others(self, sources: Container[SourceId]) -> None:
        """Of sources that are gone."""
        for source in [each for each in self._of_source if each not in sources]:
            del self._of_source[source]
