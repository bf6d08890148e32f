"""How old something was, second by second, for an hour: percentiles over windows of it. Pure.

One byte a second and measure: ages on a logarithmic scale of 6 % a step, from 1 ms to beyond an hour. What is shown is
a step's upper edge: never younger than it was. All seconds are kept, not every tenth, since ages of an idle engine are
a saw tooth as long as `events.probe_interval_s`, of which a tenth would show one phase alone. 3.6 KB a source and
measure.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np

SECONDS: Final = 3_600
STEP: Final = 1.06
STEPS: Final = 261
EDGES_MS: Final = (0, *dict.fromkeys(round(STEP**n) for n in range(STEPS)))
"""Upper edges of the steps, in ms; code n + 1 stands for ages up to edge n, code 0 for no sample. The last is an hour:
what is older is shown as that."""
UNKNOWN: Final = 0


class Percentiles(NamedTuple):
    """Ages in ms that half, 95 and 99 of a hundred samples did not exceed; None where there is no sample."""

    p50: int | None
    p95: int | None
    p99: int | None


NOTHING: Final = Percentiles(None, None, None)


class Ages:
    """One measure of one source."""

    __slots__ = ("_codes", "_last")

    def __init__(self) -> None:
        self._codes = bytearray(SECONDS)
        self._last: int | None = None
        """The second of the newest sample."""

    def sample(self, second: int, age_ms: int | None) -> None:
        """The age at that second of a clock that only goes forward. Seconds passed over have no sample."""
        self._pass(second)
        self._codes[second % SECONDS] = UNKNOWN if age_ms is None else _code(age_ms)

    def over(self, window_s: int, second: int) -> Percentiles:
        """Of the samples in the last so many seconds, up to and with `second`."""
        self._pass(second)
        end = second % SECONDS + 1
        begin = end - min(window_s, SECONDS)
        codes = np.frombuffer(self._codes, np.uint8)
        counts = np.bincount(codes[max(0, begin) : end], minlength=256)
        if begin < 0:
            counts = counts + np.bincount(codes[begin:], minlength=256)
        counts[UNKNOWN] = 0
        reached = counts.cumsum()
        total = int(reached[-1])
        if not total:
            return NOTHING
        ranks = [-(-total * share // 100) for share in (50, 95, 99)]
        return Percentiles(*[EDGES_MS[int(at) - 1] for at in reached.searchsorted(ranks)])

    def _pass(self, second: int) -> None:
        """Seconds between the newest sample and this one were not seen."""
        if self._last is not None and second > self._last:
            for missed in range(max(self._last + 1, second - SECONDS + 1), second + 1):
                self._codes[missed % SECONDS] = UNKNOWN
        if self._last is None or second > self._last:
            self._last = second


def _code(age_ms: int) -> int:
    return min(bisect_left(EDGES_MS, age_ms), len(EDGES_MS) - 1) + 1
