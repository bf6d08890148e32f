"""`kvindexer explain`: ask a running service why engines hold no more of one prompt, and show what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.client import answer_as, client_of
from api.cli.lookup import prompt_of

UNKNOWN: Final = "pod_unknown"
"""Of a name that no source goes by: it has no state."""


class Finding(msgspec.Struct, kw_only=True):
    """What else should be known."""

    code: str
    why: str
    advice: str = ""


class Missing(msgspec.Struct, kw_only=True):
    """The first block that is not held."""

    block: int
    first_token: int
    end_token: int
    hash: str


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one entry; other fields are for `--json`."""

    pod: str
    code: str
    why: str
    advice: str
    dp_rank: int = 0
    state: str = "?"
    bound: str = "?"
    matched_tokens: int = 0
    reusable_tokens: int = 0
    missing: Missing | None = None
    further: list[Finding] = []


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of an answer."""

    state: str
    prompt_tokens: int
    pods: list[Row]
    model: str | None = None
    reason: str | None = None
    nearest_model: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    question = prompt_of(arguments)
    asked = {
        "model": arguments.model,
        "lora_name": arguments.lora_name,
        "pod": arguments.pod,
        "dp_rank": arguments.rank,
    }
    question |= {name: value for name, value in asked.items() if value is not None}
    answer = client_of(arguments).request("POST", "/v1/explain", question)
    if arguments.json:
        output.as_it_came(answer)
        return 0
    print_answer(answer_as(answer, Shown, "no explanation"), output.console())
    return 0


def print_answer(shown: Shown, console: Console) -> None:
    """A line about the whole, a table, best first, and each entry in words."""
    why = "" if shown.reason is None else f" ({shown.reason})"
    nearest = "" if shown.nearest_model is None else f", nearest known model: {shown.nearest_model}"
    asked = "any model" if shown.model is None else f"model {shown.model}"
    console.print(f"{shown.state}{why}: {shown.prompt_tokens} prompt tokens, {asked}{nearest}")
    if not shown.pods:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("pod", "rank", "state", "bound"):
        table.add_column(title)
    for title in ("matched", "reusable", "missing block", "from token"):
        table.add_column(title, justify="right")
    for title in ("its hash", "because"):
        table.add_column(title)
    for row in shown.pods:
        held = (str(row.matched_tokens), str(row.reusable_tokens))
        missing = row.missing
        gap = ("-", "-", "-") if missing is None else (str(missing.block), str(missing.first_token), missing.hash)
        trust = ("-", "-") if row.code == UNKNOWN else (row.state, row.bound)
        table.add_row(row.pod, str(row.dp_rank), *trust, *held, *gap, row.code)
    console.print(table)
    for said, names in _alike(shown.pods).items():
        console.print(f"\n{', '.join(names)}: {said[0]}")
        for line in said[1:]:
            console.print(f"  {line}")


def _alike(rows: Sequence[Row]) -> dict[tuple[str, ...], list[str]]:
    """What is to be said in words, and of whom: of many engines it is often the same."""
    told: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        lines = [f"{row.code}: {row.why}", f"to do: {row.advice}"]
        for finding in row.further:
            lines.append(f"also {finding.code}: {finding.why}")
            if finding.advice and finding.advice != row.advice:
                lines.append(f"  to do: {finding.advice}")
        told.setdefault(tuple(lines), []).append(f"{row.pod}#{row.dp_rank}")
    return told
