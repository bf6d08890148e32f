"""`kvindexer plan`: how much a deployment takes, with how each figure comes about."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Final

import msgspec
from rich.table import Table

from api.cli import output
from indexer.sizing.formulas import Item, Plan, Wanted, planned
from indexer.sizing.measured import MEASURED, Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

IMPOSSIBLE: Final = 1
_WIDTH: Final = 120
_GIB_FROM_MIB: Final = 1_024
_TENTHS_BELOW: Final = 100


class Report(msgspec.Struct, kw_only=True):
    """For programs."""

    plan: Plan
    measured: Measured


def run(arguments: argparse.Namespace) -> int:
    """Reckon and print; 1 where it cannot be done so."""
    names = {field.name for field in msgspec.structs.fields(Wanted)}
    wanted = Wanted(**{name: value for name, value in vars(arguments).items() if name in names})
    plan = planned(wanted, MEASURED)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(Report(plan=plan, measured=MEASURED)).decode() + "\n")
    else:
        print_plan(plan, output.console())
    return IMPOSSIBLE if plan.trouble else 0


def print_plan(plan: Plan, console: Console) -> None:
    """What there should be, figures with their formulas, settings, and what stands behind all that."""
    wanted = plan.wanted
    if plan.deployments > 1:
        console.print(f"{plan.deployments} deployments, each of:")
    console.print(
        f"{output.counted(wanted.engines, 'engine')} × {wanted.blocks:,} blocks, {wanted.rate:,g} a second each: "
        + output.counted(plan.replicas, "replica")
        + (f", {plan.partitions} partitions, a store" if wanted.store else ", no store")
    )
    for trouble in plan.trouble:
        _say(console, f"cannot be done so: {trouble}")
    _print_items("each replica", plan.each_replica, console)
    if plan.store:
        _print_items("the store", plan.store, console)
    console.print("\nsettings")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for setting in plan.settings:
        table.add_row(f"  {setting.key}", setting.value, setting.why)
    console.print(table if plan.settings else "  the defaults do")
    console.print("\nassumed")
    for line in plan.assumptions:
        _say(console, line)
    console.print(f"\nmeasured ({_conditions()}); --json has every constant and where it comes from")


def _print_items(title: str, items: Sequence[Item], console: Console) -> None:
    console.print(f"\n{title}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for item in items:
        table.add_row(f"  {item.name}", _shown(item), item.how)
    console.print(table)


def _shown(item: Item) -> str:
    if item.unit == "MiB" and item.value >= _GIB_FROM_MIB:
        return f"{item.value / _GIB_FROM_MIB:,.1f} GiB"
    if item.unit == "cores":
        return f"{item.value:.2f} cores"
    digits = 1 if item.value < _TENTHS_BELOW and item.unit != "files" else 0
    return f"{item.value:,.{digits}f} {item.unit}"


def _say(console: Console, line: str) -> None:
    width = min(console.width, _WIDTH)
    console.print(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="  "), soft_wrap=True)


def _conditions() -> str:
    of_all = list(MEASURED.conditions.values())
    machines = sorted({f"{each['cpu']}, {each['cores']} cores, Python {each['python']}" for each in of_all})
    dates = sorted({str(each["date"]) for each in of_all})
    return f"{'; '.join(machines)}; {dates[0]} to {dates[-1]}"
