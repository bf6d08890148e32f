"""`kvindexer sources`: show, add, remove, clear and cordon the engines a running service listens to; what happened."""

from __future__ import annotations

import argparse
import sys
from urllib.parse import quote, urlencode

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output, source_history
from api.cli.client import CommandFailed, ServiceClient, answer_as, client_of, decoded
from indexer.errors import SettingsError
from indexer.settings import parse_source_flag

PAGE: int = 1_000
LATE: str = "recorded, in force as soon as the replica that owns the source comes to it"
NAMED_MAX: int = 3
"""Sources named beside a warning that several have."""
WIDE: int = 160
"""Columns from which on the table has room for a sentence a source; else the sentences stand below it."""


class Load(msgspec.Struct, kw_only=True):
    """Of one source, as far as it is known."""

    running: float | None = None
    waiting: float | None = None
    unseen: int = 0

    @property
    def requests(self) -> float:
        """All of them."""
        return (self.running or 0) + (self.waiting or 0) + self.unseen


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one source; other fields are for `--json`."""

    pod: str
    dp_rank: int = 0
    state: str = "?"
    bound: str = "?"
    sequence: int | None = None
    lag_ms: int | None = None
    blocks: dict[str, int] = {}
    model: str | None = None
    origin: str = "?"
    cordoned: bool = False
    ready: bool = True
    why: str | None = None
    warnings: list[str] = []
    load: Load | None = None


class Page(msgspec.Struct):
    """One page of the list."""

    sources: list[msgspec.Raw]
    next: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says and print. Raises `CommandFailed`."""
    client = client_of(arguments)
    match arguments.action:
        case None | "list":
            return _list(client, arguments)
        case "add":
            return _add(client, arguments)
        case "history":
            return source_history.run(client, arguments)
        case "remove":
            answer = client.request("DELETE", _path(arguments))
        case "clear":
            answer = client.request("POST", _path(arguments, "/clear"))
        case _:
            answer = client.request("PATCH", _path(arguments), {"cordoned": arguments.action == "cordon"})
    _print_done(arguments, answer)
    return 0


def _list(client: ServiceClient, arguments: argparse.Namespace) -> int:
    rows: list[msgspec.Raw] = []
    after: str | None = None
    while True:
        given = {"state": arguments.state, "model": arguments.model, "limit": PAGE, "after": after}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        page = answer_as(client.request("GET", f"/v1/sources?{query}"), Page, "no list of sources")
        rows.extend(page.sources)
        after = page.next
        if after is None or not page.sources:
            break
    if arguments.json:
        sys.stdout.write(msgspec.json.encode({"sources": rows}).decode() + "\n")
        return 0
    print_sources([answer_as(row, Row, "no list of sources") for row in rows], output.console())
    return 0


def _add(client: ServiceClient, arguments: argparse.Namespace) -> int:
    try:
        descriptors = parse_source_flag(arguments.source, key="SOURCE", origin="api")
    except SettingsError as error:
        raise CommandFailed(str(error), 2) from error
    for descriptor in descriptors:
        fields = msgspec.structs.asdict(descriptor)
        body = {name: value for name, value in fields.items() if name != "origin" and value not in (None, (), {})}
        _print_done(arguments, client.request("POST", "/v1/sources", body))
    return 0


def _path(arguments: argparse.Namespace, suffix: str = "") -> str:
    narrow = "" if arguments.rank is None else f"?dp_rank={arguments.rank}"
    return f"/v1/sources/{quote(arguments.pod, safe='')}{suffix}{narrow}"


def _print_done(arguments: argparse.Namespace, answer: bytes) -> None:
    if arguments.json:
        sys.stdout.write((answer.decode().strip() or "{}") + "\n")
        return
    told = decoded(answer) if answer.strip() else {}
    facts = told if isinstance(told, dict) else {}
    late = f"; {LATE}" if facts.get("effect") == "accepted" else ""
    if "result" in facts:
        print(f"{facts.get('pod')} rank {facts.get('dp_rank')}: {facts['result']}{late}")
        for warning in facts.get("warnings") or ():
            print(f"kvindexer: warning: {facts.get('pod')} rank {facts.get('dp_rank')}: {warning}", file=sys.stderr)
    else:
        what = "accepted" if late else "done"
        print(f"{arguments.pod}: {arguments.action} {what}, sources reached: {facts.get('sources', '?')}{late}")


def print_sources(rows: list[Row], console: Console) -> None:
    """A table, and below it what needs attention."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("pod", "rank", "state", "bound"):
        table.add_column(title)
    is_known = any(row.load is not None for row in rows)
    for title in ("sequence", "blocks", "lag ms", *(["requests"] if is_known else [])):
        table.add_column(title, justify="right")
    wide = console.width >= WIDE
    for title in ("model", "origin", *(["why"] if wide else [])):
        table.add_column(title)
    for row in rows:
        table.add_row(
            row.pod,
            str(row.dp_rank),
            ", ".join([row.state, *(["cordoned"] if row.cordoned else []), *([] if row.ready else ["not ready"])]),
            row.bound,
            "-" if row.sequence is None else str(row.sequence),
            str(sum(row.blocks.values())) if row.blocks else "-",
            "-" if row.lag_ms is None else str(row.lag_ms),
            *(["-" if row.load is None else f"{row.load.requests:g}"] if is_known else []),
            row.model or "",
            row.origin,
            *([row.why or ""] if wide else []),
        )
    console.print(table)
    if not wide:
        states = [(row, f"{row.state}, {row.bound}: {row.why}") for row in rows if row.why]
        _print_below("why", states, console)
    warnings = [(row, warning) for row in rows for warning in row.warnings]
    _print_below("warning", warnings, console, style="yellow")


def _print_below(what: str, said: list[tuple[Row, str]], console: Console, style: str | None = None) -> None:
    """One line for each thing that is said, with the first of those of which it is."""
    holders: dict[str, list[str]] = {}
    for row, text in said:
        holders.setdefault(text, []).append(f"{row.pod} rank {row.dp_rank}")
    for text, sources in holders.items():
        more = f" and {len(sources) - NAMED_MAX} more" if len(sources) > NAMED_MAX else ""
        console.print(f"{what}: {text}: {', '.join(sources[:NAMED_MAX])}{more}", style=style)
