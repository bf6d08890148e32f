"""Which pods got more than their share of a prefix: for where nothing is known of loads. Pure; time is given.

Where many prompts begin alike, one pod holds that beginning first and so draws them all. Nothing that is known of
prefixes speaks against it: so those who ask are counted, by the prefix that decides and the pod that was recommended.
A conversation that goes on decides by another, longer prefix each time, and stays where it is.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from indexer.model import SourceId

WINDOW_S: Final = 30.0
SHARES: Final = 2
"""More than so many times its share of a prefix's requests is too much."""
KEPT_MAX: Final = 65_536
"""Recommendations that are remembered; beyond, the oldest go early, and are counted as such."""
FORGOTTEN_AT_ONCE: Final = 64
"""With each question, which brings one: after a busy time the last of it counts a little longer."""
LIMIT: Final = "recommend.hot_prefixes"


class HotPrefixes:
    """Recommendations of the last 30 s."""

    def __init__(self, reached: Callable[[str], None], kept_max: int = KEPT_MAX) -> None:
        self._reached = reached
        self._kept_max = kept_max
        self._lately: deque[tuple[float, Hashable, SourceId]] = deque()
        self._counts: dict[Hashable, Counter[SourceId]] = {}

    def __len__(self) -> int:
        return len(self._lately)

    def note(self, prefix: Hashable, pod: SourceId, now: float) -> None:
        """A prompt whose place that prefix decides goes there."""
        self._forget(now)
        if len(self._lately) >= self._kept_max:
            self._reached(LIMIT)
            self._drop()
        self._lately.append((now, prefix, pod))
        self._counts.setdefault(prefix, Counter())[pod] += 1

    def crowded(self, prefix: Hashable, candidates: int, at_least: float, now: float) -> frozenset[SourceId]:
        """Who got more than `SHARES` times an even share of the prefix's requests, and more than `at_least`."""
        self._forget(now)
        counts = self._counts.get(prefix)
        if counts is None:
            return frozenset()
        most = max(SHARES * counts.total() / max(1, candidates), at_least)
        return frozenset(pod for pod, count in counts.items() if count > most)

    def _forget(self, now: float) -> None:
        for _ in range(FORGOTTEN_AT_ONCE):
            if not self._lately or self._lately[0][0] > now - WINDOW_S:
                return
            self._drop()

    def _drop(self) -> None:
        _, prefix, pod = self._lately.popleft()
        counts = self._counts[prefix]
        counts[pod] -= 1
        if not counts[pod]:
            del counts[pod]
            if not counts:
                del self._counts[prefix]
