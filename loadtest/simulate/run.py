"""Scenario `simulate`: what the blend wins over round robin and others on public traces, in a model of a fleet."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from loadtest.report import begin
from loadtest.simulate.cells import Grid, cells
from loadtest.simulate.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.report import Result, Row
    from loadtest.simulate.cells import Cell

OTHER_LOADS: Final = (0.4, 0.5, 0.8, 0.95)
HITS: Final = "Block hits, %"
IMBALANCE: Final = "Imbalance: tokens computed by the pod that computes most, over the mean"
P90: Final = "TTFT p90, s"
LOADS: Final = "Cells that meet their targets, by what comes in a second of what the fleet could compute"


def run(*, grid: Grid | None = None, loads: Sequence[float] = OTHER_LOADS) -> Result:
    """Play every cell; then all of them at other rates, with round robin and the blend alone."""
    grid = grid or Grid()
    fleet = Fleet(1, None)
    result = begin(
        "simulate",
        {
            "traces": ", ".join(grid.traces),
            "requests of each": grid.requests or "all",
            "prefill tokens/s a pod": fleet.prefill_tokens_s,
            "s a token said": fleet.token_s,
            "utilisation without hits": grid.utilisation,
        },
    )
    done: list[Cell] = []
    began = time.monotonic()
    for number, cell in enumerate(cells(grid), start=1):
        done.append(cell)
        targets = cell.targets()
        result.targets += targets
        verdict = "met" if all(target.met for target in targets) else "MISSED"
        print(f"  [{number}/{len(grid)}] {_line(cell)}: {verdict}, {time.monotonic() - began:.0f} s", flush=True)
        if cell.is_chosen:
            result.tables[cell.name] = cell.rows()
    result.tables[HITS] = [cell.row("hits", 1) for cell in done]
    result.tables[IMBALANCE] = [cell.row("imbalance", 2) for cell in done]
    result.tables[P90] = [cell.row("p90", 2) for cell in done]
    if loads:
        result.tables[LOADS] = [_met(grid.utilisation, done), *(_at(grid, load) for load in loads)]
    return result


def _line(cell: Cell) -> str:
    robin, blend = cell.figures["round robin"], cell.figures["blend"]
    return (
        f"{cell.name}: hits {100 * blend.hit_share:.1f} % (round robin {100 * robin.hit_share:.1f}), "
        f"imbalance {blend.imbalance:.2f} ({robin.imbalance:.2f}), "
        f"TTFT p90 {blend.ttft_p90_s:.3g} s ({robin.ttft_p90_s:.3g})"
    )


def _at(grid: Grid, load: float) -> Row:
    row = _met(load, list(cells(replace(grid, utilisation=load), ("round robin", "blend"))))
    print(f"  {row}", flush=True)
    return row


def _met(load: float, done: Sequence[Cell]) -> Row:
    missed = [cell.name for cell in done if not all(target.met for target in cell.targets())]
    ratios = [cell.targets()[1].value for cell in done]
    return {
        "utilisation without hits": load,
        "met": len(done) - len(missed),
        "of": len(done),
        "TTFT p90 of round robin's, worst": round(max(ratios), 3),
        "median": round(sorted(ratios)[len(ratios) // 2], 3),
        "missed": "; ".join(missed) or None,
    }


def run_quickly() -> Result:
    """The beginning of each trace, over one fleet, at one rate."""
    return run(grid=Grid(pods=(8,), blocks=(2_000, None), requests=1_500), loads=())
