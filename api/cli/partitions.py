"""`kvindexer partitions`: what a running service does with each partition of its store."""

from __future__ import annotations

import argparse
import sys

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.client import CommandFailed, ServiceClient

MEMORY: str = (
    "memory mode: the service has no store, so there are no partitions, and what it knows ends with its process "
    "(serve --redis-url)"
)


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one partition."""

    partition: int
    role: str = "?"
    state: str = "?"
    owner: str | None = None
    position: str | None = None
    age_ms: int | None = None
    pending_bytes: int | None = None
    sources: int = 0


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of an answer."""

    mode: str
    partitions: list[Row]


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    answer = ServiceClient(arguments.url, arguments.token).request("GET", "/v1/partitions")
    if arguments.json:
        sys.stdout.write(answer.decode().rstrip("\n") + "\n")
        return 0
    try:
        shown = msgspec.json.decode(answer, type=Shown)
    except msgspec.MsgspecError as error:
        raise CommandFailed(f"the answer is no list of partitions ({error}): is this the service?") from error
    print_partitions(shown, output.console())
    return 0


def print_partitions(shown: Shown, console: Console) -> None:
    """A table; in memory mode the reason why there is none."""
    if shown.mode == "memory":
        console.print(MEMORY)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("partition", justify="right")
    for title in ("role", "state", "owner", "position"):
        table.add_column(title)
    for title in ("age ms", "pending bytes", "sources"):
        table.add_column(title, justify="right")
    for row in shown.partitions:
        table.add_row(
            str(row.partition),
            row.role,
            row.state,
            _or_dash(row.owner),
            _or_dash(row.position),
            _or_dash(row.age_ms),
            _or_dash(row.pending_bytes),
            str(row.sources),
        )
    console.print(table)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
