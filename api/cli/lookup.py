"""`kvindexer lookup`: ask a running service about one prompt and show who holds how much of it."""

from __future__ import annotations

import argparse

import msgspec
from rich.console import Console
from rich.table import Table

from api.cli import output
from api.cli.client import answer_as, client_of
from api.cli.texts import read_messages, read_prompt
from api.cli.tokens import read_tokens


class Row(msgspec.Struct, kw_only=True):
    """What is shown of one entry; other fields are for `--json`."""

    pod: str
    dp_rank: int = 0
    matched_tokens: int = 0
    reusable_tokens: int = 0
    score: float = 0.0
    state: str = "?"
    bound: str = "?"
    lag_ms: int | None = None
    reason: str | None = None


class Shown(msgspec.Struct, kw_only=True):
    """What is shown of an answer."""

    state: str
    prompt_tokens: int
    pods: list[Row]
    model: str | None = None
    reason: str | None = None
    nearest_model: str | None = None
    took_us: int | None = None


def run(arguments: argparse.Namespace) -> int:
    """Ask and print. Raises `CommandFailed`."""
    question = prompt_of(arguments)
    for name in ("model", "lora_name", "pods"):
        value = getattr(arguments, name)
        if value is not None:
            question[name] = value
    answer = client_of(arguments).request("POST", "/v1/lookup", question)
    if arguments.json:
        output.as_it_came(answer)
        return 0
    print_answer(answer_as(answer, Shown, "none of a lookup"), output.console())
    return 0


def prompt_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The fields that tell the prompt, in whichever form it was given."""
    if arguments.messages is not None:
        return read_messages(arguments.messages)
    if arguments.prompt is not None:
        return {"prompt": read_prompt(arguments.prompt)}
    return {"token_ids": read_tokens(arguments.tokens, binary=arguments.binary)}


def print_answer(shown: Shown, console: Console) -> None:
    """A line about the whole, then a table, best first."""
    why = "" if shown.reason is None else f" ({shown.reason})"
    nearest = "" if shown.nearest_model is None else f", nearest known model: {shown.nearest_model}"
    asked = "any model" if shown.model is None else f"model {shown.model}"
    took = "" if shown.took_us is None else f", {shown.took_us} us"
    console.print(f"{shown.state}{why}: {shown.prompt_tokens} prompt tokens, {asked}{nearest}{took}")
    if not shown.pods:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("pod", "rank"):
        table.add_column(title)
    for title in ("matched", "reusable", "score", "lag ms"):
        table.add_column(title, justify="right")
    for title in ("state", "bound", "reason"):
        table.add_column(title)
    for row in shown.pods:
        table.add_row(
            row.pod,
            str(row.dp_rank),
            str(row.matched_tokens),
            str(row.reusable_tokens),
            f"{row.score:.3f}",
            "-" if row.lag_ms is None else str(row.lag_ms),
            row.state,
            row.bound,
            row.reason or "",
        )
    console.print(table)
