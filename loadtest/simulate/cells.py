"""The targets: every trace over fleets and caches of every size, each beside round robin.

In each cell the blend at its defaults must hit as many blocks as round robin does, within `HITS_POINTS`, and its 90th
percentile of times to the first token must be no more than `TTFT_RATIO` of round robin's. It is played twice, with
loads that are told at once and with loads read from metrics each second, and the worse of the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from loadtest.report import Target
from loadtest.simulate.fleet import Fleet, replay
from loadtest.simulate.strategies import NAMES, strategy
from loadtest.simulate.traces import TRACES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtest.report import Row
    from loadtest.simulate.figures import Figures

PUBLIC: Final = ("conversation", "synthetic", "weka")
PODS: Final = (4, 8, 16)
BLOCKS: Final = (500, 2_000, 8_000, None)
UTILISATION: Final = 0.65
"""Of what the fleet can compute in a second, what comes in a second while a trace is busy, were nothing ever hit."""
SCRAPE_S: Final = 1.0
SCRAPED: Final = "blend, metrics"
"""The blend with loads from metrics, which are `SCRAPE_S` apart."""
HITS_POINTS: Final = 0.2
TTFT_RATIO: Final = 1.02
CHOSEN: Final = ("conversation", 8, 2_000)
CHOSEN_HITS: Final = 25.0
CHOSEN_IMBALANCE: Final = 1.1


class Cell(NamedTuple):
    """One trace over one fleet, with what came of each strategy."""

    trace: str
    fleet: Fleet
    figures: Mapping[str, Figures]
    whole: bool = True
    """Not only the beginning of the trace."""

    @property
    def is_chosen(self) -> bool:
        """The one that has targets of its own."""
        return (self.trace, self.fleet.pods, self.fleet.blocks) == CHOSEN

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.trace}, {self.fleet.pods} pods, {self.fleet.cache}"

    def row(self, figure: str, digits: int) -> Row:
        """That figure of each strategy."""
        size = "unlimited" if self.fleet.blocks is None else self.fleet.blocks
        head: Row = {"trace": self.trace, "pods": self.fleet.pods, "blocks a pod": size}
        told = {name: round(_FIGURES[figure](each), digits) for name, each in self.figures.items()}
        return head | told

    def rows(self) -> list[Row]:
        """Every figure, a strategy a row."""
        return [figures.row(name) for name, figures in self.figures.items()]

    def targets(self) -> list[Target]:
        """As the worse of both ways to know loads has them."""
        blends, robin = [self.figures["blend"], self.figures[SCRAPED]], self.figures["round robin"]
        hits = 100 * (min(blend.hit_share for blend in blends) - robin.hit_share)
        ratio = max(blend.ttft_p90_s for blend in blends) / robin.ttft_p90_s
        targets = [
            Target(f"{self.name}: hits beyond round robin's, points", hits, -HITS_POINTS),
            Target(f"{self.name}: TTFT p90, of round robin's", ratio, TTFT_RATIO, at_least=False),
        ]
        if self.whole and self.is_chosen:
            least, most = min(blend.hit_share for blend in blends), max(blend.imbalance for blend in blends)
            targets += [
                Target(f"{self.name}: block hits, %", 100 * least, CHOSEN_HITS),
                Target(f"{self.name}: imbalance", most, CHOSEN_IMBALANCE, at_least=False),
            ]
        return targets


_FIGURES: Final = {
    "hits": lambda figures: 100 * figures.hit_share,
    "imbalance": lambda figures: figures.imbalance,
    "p90": lambda figures: figures.ttft_p90_s,
}


@dataclass(frozen=True, slots=True)
class Grid:
    """Which cells. `requests`: of each trace, from its beginning on; None: all."""

    traces: Sequence[str] = PUBLIC
    pods: Sequence[int] = PODS
    blocks: Sequence[int | None] = BLOCKS
    requests: int | None = None
    utilisation: float = UTILISATION

    def __len__(self) -> int:
        return len(self.traces) * len(self.pods) * len(self.blocks)


def cells(grid: Grid, names: Sequence[str] = NAMES) -> Iterator[Cell]:
    """One after the other, with these strategies and the blend that reads metrics."""
    for name in grid.traces:
        trace = TRACES[name](grid.requests)
        for pods in grid.pods:
            fleet = Fleet(pods, None)
            workload = trace.at_rate(grid.utilisation * pods * fleet.prefill_tokens_s)
            for blocks in grid.blocks:
                told = replace(fleet, blocks=blocks)
                figures = {each: replay(workload, told, strategy(each, pods)) for each in names}
                figures[SCRAPED] = replay(workload, replace(told, scrape_s=SCRAPE_S), strategy("blend", pods))
                yield Cell(name, told, figures, whole=grid.requests is None)
