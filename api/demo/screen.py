"""The demo's facts as a live table for a terminal. Draws, decides nothing."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from api.demo.show import LookupFacts, Show

STATE_STYLES: Final = {
    "new": "dim",
    "syncing": "cyan",
    "live": "green",
    "suspect": "yellow",
    "stale": "yellow",
    "down": "bold red",
    "exact": "green",
    "degraded": "yellow",
    "no_signal": "dim",
}
PHASES: Final = {
    "playing": "engines at work",
    "settling": "engines pause until all is indexed",
    "checking": "answers held against the engines' own",
    "resting": "recording at its end, engines restart soon",
    "restarting": "engines restarted as new processes, their caches are empty",
}
BAR_WIDTH: Final = 16


def draw(show: Show, url: str) -> RenderableType:
    """The whole screen, as it is now."""
    totals = show.totals
    title = Text.assemble(
        ("round ", "dim"),
        str(totals.rounds),
        ("   ", ""),
        (f"{show.progress:4.0%}", "bold"),
        ("   ", ""),
        PHASES[show.phase],
    )
    return Panel(
        Group(title, Text(), _engines(show), Text(), _lookups(show), Text(), _totals(show)),
        title=f"kvindexer demo  {url}",
        subtitle="Ctrl-C ends",
        border_style="blue",
        padding=(0, 1),
    )


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    for title, right in columns:
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    return table


def _engines(show: Show) -> Table:
    table = _table(
        ("engine", False),
        ("state", False),
        ("bound", False),
        ("sent", True),
        ("indexed", True),
        ("lag ms", True),
        ("blocks", True),
        ("", False),
    )
    most = max((sum(facts.blocks.values()) for facts in show.sources.values()), default=0)
    for pod, sent in show.sent.items():
        facts = show.sources.get(pod)
        if facts is None:
            table.add_row(Text(pod), Text("unknown", style="dim"), "", _number(sent), "", "", "", "")
            continue
        blocks = sum(facts.blocks.values())
        table.add_row(
            Text(pod),
            _state(facts.state),
            _state(facts.bound),
            _number(sent),
            _number(facts.sequence),
            _number(facts.lag_ms),
            _number(blocks),
            ProgressBar(total=max(most, 1), completed=blocks, width=BAR_WIDTH),
        )
    return table


def _lookups(show: Show) -> Table:
    table = _table(
        ("prompt", True),
        ("best engine", False),
        ("hit", True),
        ("score", True),
        ("answer", False),
        ("us", True),
        ("reusable, by engine", False),
    )
    for lookup in show.lookups:
        table.add_row(
            _number(lookup.prompt_tokens),
            Text(lookup.best_pod or "-"),
            _number(lookup.matched_tokens),
            f"{lookup.score:.2f}",
            _state(lookup.state),
            _number(lookup.took_us),
            _comparison(lookup),
        )
    for _ in range(show.lookups.maxlen - len(show.lookups) if show.lookups.maxlen else 0):
        table.add_row()
    return table


def _comparison(lookup: LookupFacts) -> Text:
    """Tokens that each engine would skip; with a mark where the engines themselves were asked at this moment."""
    got = " ".join(map(str, lookup.got))
    if lookup.expected is None:
        return Text(f"  {got}", style="dim")
    if lookup.agrees:
        return Text.assemble(("✓ ", "bold green"), got)
    return Text.assemble(("✗ ", "bold red"), got, (" not ", "bold red"), " ".join(map(str, lookup.expected)))


def _totals(show: Show) -> Text:
    totals = show.totals
    all_agree = totals.agreeing == totals.compared
    took = f"{statistics.median(totals.took_us):.0f} us" if totals.took_us else "-"
    return Text.assemble(
        (f"{totals.lookups:,}", "bold"),
        f" lookups, median {took}   ",
        (f"{totals.agreeing:,} of {totals.compared:,}", "bold green" if all_agree else "bold red"),
        " compared answers agree with the engines\n",
        (f"{totals.messages:,}", "bold"),
        f" batches published, {totals.lost} of them lost on the way and fetched again",
    )


def _state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
