"""`kvindexer partitions`: which replicas there are, and what a running service does with each partition."""

from __future__ import annotations

import argparse
import sys
import threading

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.client import ServiceClient, answer_as, client_of

EVERY_S: float = 1.0
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
    standby: str | None = None
    position: str | None = None
    age_ms: int | None = None
    pending_bytes: int | None = None
    sources: int = 0
    standby_bytes: int | None = None
    standby_dropped: int | None = None


class ReplicaRow(msgspec.Struct, kw_only=True):
    """What is shown of one replica."""

    name: str
    address: str = ""
    state: str = "?"
    owned: int = 0
    standby: int = 0
    age_ms: int | None = None
    me: bool = False


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of an answer."""

    mode: str
    trouble: str | None = None
    partitions: list[Row]
    replicas: list[ReplicaRow] = []


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    _print(client_of(arguments), arguments, output.console())
    return 0


def watch(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """The same each second, until `stop` is set."""
    client, console = client_of(arguments), output.console()
    while True:
        console.clear()
        _print(client, arguments, console)
        if stop.wait(EVERY_S):
            return 0


def _print(client: ServiceClient, arguments: argparse.Namespace, console: Console) -> None:
    answer = client.request("GET", "/v1/partitions")
    if arguments.json:
        output.as_it_came(answer)
        sys.stdout.flush()
        return
    print_partitions(answer_as(answer, Shown, "no list of partitions"), console)


def print_partitions(shown: Shown, console: Console) -> None:
    """Tables of replicas and partitions; in memory mode the reason why there are none."""
    if shown.mode == "memory":
        console.print(MEMORY)
        return
    if shown.trouble:
        console.print(f"{shown.trouble}: what is told of others is of before\n", markup=False, highlight=False)
    if shown.replicas:
        console.print(_replicas(shown.replicas))
        console.print()
    console.print(_partitions(shown.partitions))


def _replicas(rows: list[ReplicaRow]) -> Table:
    table = _table(("replica", "state"), ("owned", "standby", "seen ms ago"), ("address",))
    for row in rows:
        name = f"{row.name} (asked)" if row.me else row.name
        table.add_row(name, row.state, str(row.owned), str(row.standby), _or_dash(row.age_ms), row.address or "-")
    return table


def _partitions(rows: list[Row]) -> Table:
    """What is kept here of engines that are only listened to stands there where anything is."""
    listens = any(row.standby_bytes is not None for row in rows)
    kept = ("kept bytes", "dropped") if listens else ()
    words = ("role", "state", "owner", "standby", "position")
    table = _table((), ("partition",), words, ("age ms", "pending bytes", "sources", *kept))
    for row in rows:
        told = [row.partition, row.role, row.state, row.owner, row.standby, row.position]
        told += [row.age_ms, row.pending_bytes, row.sources]
        told += [row.standby_bytes, row.standby_dropped] if listens else []
        table.add_row(*map(_or_dash, told))
    return table


def _table(*titles: tuple[str, ...]) -> Table:
    """Words at the left and numbers at the right, in turns."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for turn, group in enumerate(titles):
        for title in group:
            table.add_column(title, justify="right" if turn % 2 else "left")
    return table


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
