"""`kvindexer sources history POD`: what happened to it, the newest first."""

from __future__ import annotations

import argparse
import sys
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.client import ServiceClient, answer_as

PAGE: Final = 1_000
"""Items the service gives at once."""
INCOMPLETE: Final = (
    "incomplete: the store did not answer, or has entries of another version; this is what the replica that was asked "
    "saw itself, or could read"
)


class Item(msgspec.Struct, kw_only=True):
    """What is shown of one thing that happened; other fields are for `--json`."""

    at: str
    dp_rank: int
    what: str
    cause: str | None = None
    count: int = 1
    numbers: dict[str, int | str] = {}
    replica: str | None = None


class Page(msgspec.Struct, kw_only=True):
    """One page."""

    items: list[msgspec.Raw]
    next: str | None = None
    complete: bool = True


_BY_ITSELF: Final = {"clear": "operator"}
"""What has one cause only names none."""


def run(client: ServiceClient, arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    items, complete = _asked(client, arguments)
    if arguments.json:
        whole = {"pod": arguments.pod, "items": items, "complete": complete}
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
        return 0
    shown = [answer_as(item, Item, "no history") for item in items]
    print_history(shown, output.console(), complete=complete)
    return 0


def _asked(client: ServiceClient, arguments: argparse.Namespace) -> tuple[list[msgspec.Raw], bool]:
    """As many as are wanted, page by page."""
    items: list[msgspec.Raw] = []
    complete, after = True, None
    while len(items) < arguments.limit:
        limit = min(PAGE, arguments.limit - len(items))
        given = {"dp_rank": arguments.rank, "limit": limit, "after": after}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        answer = client.request("GET", f"/v1/sources/{quote(arguments.pod, safe='')}/history?{query}")
        page = answer_as(answer, Page, "no history")
        items.extend(page.items)
        complete, after = complete and page.complete, page.next
        if after is None or not page.items:
            break
    return items, complete


def print_history(items: list[Item], console: Console, *, complete: bool) -> None:
    """A table; the ranks only where there are several."""
    ranked = len({item.dp_rank for item in items}) > 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("at", *(["rank"] if ranked else []), "what", "cause"):
        table.add_column(title)
    table.add_column("times", justify="right")
    for title in ("numbers", "replica"):
        table.add_column(title)
    for item in items:
        table.add_row(
            item.at,
            *([str(item.dp_rank)] if ranked else []),
            item.what,
            item.cause or _BY_ITSELF.get(item.what, "-"),
            str(item.count),
            " ".join(f"{name}={value}" for name, value in item.numbers.items()),
            item.replica or "-",
        )
    console.print(table)
    if not complete:
        console.print(INCOMPLETE, style="yellow")
