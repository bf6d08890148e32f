"""What came of one replay, in numbers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.report import Row


class Figures(NamedTuple):
    """Hits and imbalance as ratios, times to the first token in seconds."""

    requests: int
    blocks: int
    hit_blocks: int
    uncached: tuple[int, ...]
    """Tokens that each pod had to compute."""
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float

    @property
    def hit_share(self) -> float:
        """Of all blocks asked for, those that were held where they were asked for."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0

    @property
    def imbalance(self) -> float:
        """What the pod that computed most did, over the mean of all: 1 is even, the number of pods is one for all."""
        total = sum(self.uncached)
        return max(self.uncached) * len(self.uncached) / total if total else 1.0

    def row(self, name: str) -> Row:
        """For a table."""
        return {
            "strategy": name,
            "block hits %": round(100 * self.hit_share, 1),
            "imbalance": round(self.imbalance, 2),
            "TTFT mean s": rounded(self.ttft_mean_s),
            "p50 s": rounded(self.ttft_p50_s),
            "p90 s": rounded(self.ttft_p90_s),
            "p99 s": rounded(self.ttft_p99_s),
        }


def summed(blocks: int, hit_blocks: int, uncached: Sequence[int], ttfts_s: Sequence[float]) -> Figures:
    """Of at least one request. A percentile is the smallest time that as many requests do not exceed."""
    times = np.asarray(ttfts_s)
    p50, p90, p99 = np.quantile(times, (0.5, 0.9, 0.99), method="inverted_cdf")
    mean = float(times.mean())
    return Figures(len(times), blocks, hit_blocks, tuple(uncached), mean, float(p50), float(p90), float(p99))


def rounded(seconds: float) -> float:
    """To what a table shows of it."""
    return float(f"{seconds:.3g}")
