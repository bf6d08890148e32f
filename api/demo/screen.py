"""The demo's facts as a live table for a terminal. Draws, decides nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from api.demo.facts import LookupFacts, SourceFacts
    from api.demo.show import Show

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
    "waiting": "engines wait until all is listening",
    "playing": "engines at work",
    "settling": "engines pause until all is indexed",
    "checking": "answers held against the engines' own",
    "resting": "recording at its end, engines restart soon",
    "killed": "the service was killed, engines go on",
    "starting": "the service starts again, engines go on",
    "restarting": "engines restarted as new processes, their caches are empty",
}
ECHO_WIDTH: Final = len("^C")
"""Left free at the right: a terminal writes this where the cursor stands, and a full line would break and leave its
other half above what is drawn next."""
BAR_WIDTH: Final = 16
WIDE: Final = 100
"""Columns of a terminal from which on everything has room."""
SAID_SHOWN: Final = 3
NARROW: Final = 74
"""Below it only the most important has."""


def draw(
    show: Show, url: str, width: int, *, replicas: RenderableType | None = None, said: Sequence[str] | None = None
) -> RenderableType:
    """The whole screen, as it is now, for a terminal of so many columns.

    `replicas`: a table of them, where there are several. `said`: what happened to the service or to them, where
    something does.
    """
    totals = show.totals
    title = Text.assemble(
        ("round ", "dim"),
        str(totals.rounds),
        ("   ", ""),
        (f"{show.progress:4.0%}", "bold"),
        ("   ", ""),
        PHASES[show.phase],
    )
    parts: list[RenderableType] = [
        title,
        Text(),
        *([] if replicas is None else [replicas, Text()]),
        _engines(show, width),
        Text(),
        _lookups(show, width),
        Text(),
        _totals(show),
    ]
    return Panel(
        Group(*parts, *_said(said)),
        title=f"kvindexer demo  {url}",
        subtitle="Ctrl-C ends",
        border_style="blue",
        padding=(0, 1),
        width=max(1, width - ECHO_WIDTH),
    )


class Column(NamedTuple):
    """Of a table: shown where the terminal has that many columns."""

    title: str
    right: bool = False
    width_min: int = 0


ENGINE_COLUMNS: Final = (
    Column("engine"),
    Column("state"),
    Column("bound", width_min=NARROW),
    Column("sent", right=True),
    Column("indexed", right=True),
    Column("lag ms", right=True, width_min=NARROW),
    Column("blocks", right=True),
    Column("", width_min=WIDE),
)
LOOKUP_COLUMNS: Final = (
    Column("prompt", right=True),
    Column("best engine"),
    Column("hit", right=True),
    Column("score", right=True, width_min=NARROW),
    Column("answer"),
    Column("us", right=True, width_min=NARROW),
    Column("reusable, by engine", width_min=WIDE),
)


def table(columns: Sequence[Column], rows: Iterable[Sequence[RenderableType]], width: int) -> Table:
    """Of these rows. Columns that find no room are left out whole: half a number is worse than none."""
    drawn = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    shown = [width >= column.width_min for column in columns]
    for column in compress(columns, shown):
        drawn.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*compress(row, shown))
    return drawn


def _engines(show: Show, width: int) -> Table:
    most = max((sum(facts.blocks.values()) for facts in show.sources.values()), default=0)
    rows = [_engine(pod, sent, show.sources.get(pod), most, away=show.away) for pod, sent in show.sent.items()]
    return table(ENGINE_COLUMNS, rows, width)


def _engine(pod: str, sent: int, facts: SourceFacts | None, most: int, *, away: bool) -> Sequence[RenderableType]:
    published = _number(sent) if sent >= 0 else "-"
    if facts is None:
        return (Text(pod), Text("unknown", style="dim"), "", published, "", "", "", "")
    if facts.sequence is not None and facts.sequence > sent:  # of the process before: the service has yet to notice
        return (Text(pod), Text("restarted", style="dim"), "", published, "-", "", "-", "")
    blocks = sum(facts.blocks.values())
    if away:  # as it stood, which is how it must come back
        stood = [Text(_number(value), style="dim") for value in (facts.sequence, None, blocks)]
        return (Text(pod), Text("no service", style="dim"), "", published, *stood, "")
    bar = ProgressBar(total=max(most, 1), completed=blocks, width=BAR_WIDTH)
    return (
        Text(pod),
        _state(facts.state),
        _state(facts.bound),
        published,
        _number(facts.sequence),
        _number(facts.lag_ms),
        _number(blocks),
        bar,
    )


def _lookups(show: Show, width: int) -> Table:
    rows: list[Sequence[RenderableType]] = [
        (
            _number(lookup.prompt_tokens),
            Text(lookup.best_pod or "-"),
            _number(lookup.matched_tokens),
            f"{lookup.score:.2f}",
            _state(lookup.state),
            _number(lookup.took_us),
            _comparison(lookup),
        )
        for lookup in show.lookups
    ]
    empty = [()] * ((show.lookups.maxlen or 0) - len(rows))
    return table(LOOKUP_COLUMNS, [*rows, *empty], width)


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
        f" compared answers agree with the engines, {totals.compared - totals.agreeing} wrong\n",
        (f"{totals.messages:,}", "bold"),
        f" batches published, {totals.lost} of them lost on the way and fetched again",
    )


def _said(sentences: Sequence[str] | None) -> list[RenderableType]:
    """What happened last; always so many lines, so that the picture does not jump."""
    if sentences is None:
        return []
    last = sentences[-SAID_SHOWN:]
    lines = [*last, *[""] * (SAID_SHOWN - len(last))]
    return [Text(), *(Text(line, style="cyan", overflow="ellipsis", no_wrap=True) for line in lines)]


def _state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
