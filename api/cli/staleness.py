"""`kvindexer report staleness`: how each source is doing, how old what is known of it was, and what went wrong."""

from __future__ import annotations

import argparse
import sys

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.report import asked


class Ages(msgspec.Struct, kw_only=True):
    """Percentiles of one window."""

    p50: int | None = None
    p99: int | None = None


class Age(msgspec.Struct, kw_only=True, rename={"ten_minutes": "10m"}):
    """An age now and lately."""

    now: int | None = None
    ten_minutes: Ages = msgspec.field(default_factory=Ages)


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one source; the rest is for `--json` and `--csv`."""

    pod: str
    dp_rank: int = 0
    state: str = "?"
    since: str | None = None
    why: str | None = None
    bound: str = "?"
    lag_ms: Age = msgspec.field(default_factory=Age)
    event_age_ms: Age = msgspec.field(default_factory=Age)
    counted: bool = True
    gaps: dict[str, int] = {}
    replays: dict[str, int] = {}
    restarts: int = 0
    owner: str | None = None
    warnings: list[str] = []


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of a report."""

    seen_s: int = 0
    states: dict[str, int] = {}
    sources: list[Row]


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    shown = asked(arguments, Shown, state=arguments.state)
    if shown is None:
        return 0
    if arguments.pod is not None and not shown.sources:
        print(f"kvindexer: no source named {arguments.pod} is in the report", file=sys.stderr)
    print_report(shown, output.console())
    return 0


def print_report(shown: Shown, console: Console) -> None:
    """A table, a sum, and what needs attention."""
    owned = any(row.owner for row in shown.sources)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("pod", "rank", "state", "since", "bound"):
        table.add_column(title)
    for title in ("lag ms", "p50 10m", "p99 10m", "event ms", "gaps", "unhealed", "replays", "restarts"):
        table.add_column(title, justify="right")
    if owned:
        table.add_column("owner")
    for row in shown.sources:
        lag = row.lag_ms
        numbers = (lag.now, lag.ten_minutes.p50, lag.ten_minutes.p99, row.event_age_ms.now)
        counts: tuple[int | None, ...] = (None,) * 4
        if row.counted:
            counts = (row.gaps.get("noticed", 0), row.gaps.get("unhealed", 0), sum(row.replays.values()), row.restarts)
        cells = (
            row.pod,
            row.dp_rank,
            row.state,
            row.since,
            row.bound,
            *numbers,
            *counts,
            *([row.owner] if owned else []),
        )
        table.add_row(*["-" if cell is None else str(cell) for cell in cells])
    console.print(table)
    states = ", ".join(f"{count} {state}" for state, count in shown.states.items()) or "none"
    console.print(f"\n{output.counted(len(shown.sources), 'source')}: {states}; seen for {shown.seen_s} s")
    for row in shown.sources:
        for remark in [*([row.why] if row.why else []), *row.warnings]:
            console.print(f"{row.pod}#{row.dp_rank}: {remark}")
