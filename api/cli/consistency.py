"""`kvindexer report consistency`: what was answered beside what engines really reused."""

from __future__ import annotations

import argparse
import sys
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.report import asked

WINDOW: Final = "1h"
"""Shown where none is named."""
TREND_FROM_S: Final = 3_600
"""Before, the last day is the last hour."""


class Cause(msgspec.Struct, kw_only=True):
    """How often."""

    samples: int = 0
    tokens: int = 0


class Figures(msgspec.Struct, kw_only=True):
    """Of one window."""

    samples: int = 0
    exact_share: float | None = None
    predicted_tokens: int = 0
    real_tokens: int = 0
    false_hit_tokens: int = 0
    lost_hit_tokens: int = 0
    regret_tokens: int = 0
    unjoined: int = 0
    causes: dict[str, Cause] = {}


class Trend(msgspec.Struct, kw_only=True):
    """The last hour beside the last day."""

    change: float | None = None


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one source; the rest is for `--json` and `--csv`."""

    pod: str
    dp_rank: int = 0
    state: str = "?"
    drifted: bool = False
    trend: Trend = msgspec.field(default_factory=Trend)
    windows: dict[str, Figures] = {}


class Kept(msgspec.Struct, kw_only=True):
    """What is remembered of answers."""

    count: int = 0
    oldest_s: float = 0.0
    forgotten_early: int | None = None


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of a report."""

    seen_s: int = 0
    answers: Kept = msgspec.field(default_factory=Kept)
    sources: list[Row]


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    window = arguments.window or (None if arguments.csv or arguments.json else WINDOW)
    shown = asked(arguments, Shown, tenant=arguments.tenant, window=window)
    if shown is None:
        return 0
    if arguments.pod is not None and not shown.sources:
        why = "nobody goes by that name, or nothing was reported of it"
        print(f"kvindexer: no source named {arguments.pod} is in the report: {why}", file=sys.stderr)
    print_report(shown, window or WINDOW, output.console())
    return 0


def print_report(shown: Shown, window: str, console: Console) -> None:
    """A table, a sum, and why answers were wrong."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("pod", "rank", "state"):
        table.add_column(title)
    for title in ("samples", "exact", "trend", "said", "reused", "false", "lost", "regret", "unjoined"):
        table.add_column(title, justify="right")
    for row in shown.sources:
        figures = row.windows.get(window, Figures())
        tokens = (
            figures.predicted_tokens,
            figures.real_tokens,
            figures.false_hit_tokens,
            figures.lost_hit_tokens,
            figures.regret_tokens,
            figures.unjoined,
        )
        change = row.trend.change if shown.seen_s > TREND_FROM_S else None
        shares = (_share(figures.exact_share), _share(change, sign="+"))
        cells = (row.pod, row.dp_rank, row.state, figures.samples, *shares, *tokens)
        table.add_row(*map(str, cells))
    console.print(table)
    kept, sources = shown.answers, output.counted(len(shown.sources), "source")
    early = f", {kept.forgotten_early} were forgotten early" if kept.forgotten_early else ""
    console.print(
        f"\n{sources} with reports, window {window}; {output.counted(kept.count, 'answer')} remembered, the oldest for "
        f"{kept.oldest_s:.0f} s{early}"
    )
    for row in shown.sources:
        told = [
            f"{name} {cause.samples} ({cause.tokens} tokens)"
            for name, cause in row.windows.get(window, Figures()).causes.items()
        ]
        if row.drifted:
            told.insert(0, "drifted: it kept reusing something else than was claimed of it")
        if told:
            console.print(f"{row.pod}#{row.dp_rank}: {'; '.join(told)}")


def _share(share: float | None, sign: str = "") -> str:
    return "-" if share is None else f"{share:{sign}.2%}"
