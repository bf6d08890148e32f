"""`kvindexer compare`: the same prompts to two services, and where their answers differ, by reason."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from api.cli import output
from api.cli.client import UNREADABLE, CommandFailed, Named, ServiceClient, client_at
from api.cli.compared import Difference, Held, Said, differences, said_by_dynamos, said_by_ours
from api.cli.prompts import read_prompts
from kvindexer_client import token_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOTHING_COMPARED: Final = 3
INTERRUPTED: Final = 130
IDS: Final = (("content-type", "application/octet-stream"),)
SHOWN_MAX: Final = 1_000
"""Differences that `--json` lists; all are counted."""
AGAIN_S: Final = 0.5
"""What differs is asked again after so long: two services that follow the same engines are not at the same batch."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it.

    `moved`: prompts whose answers differed at first, and not when they were asked again. `held`: prompts of which
    anybody holds anything; where that is 0, agreeing means little.
    """

    a: str
    b: str
    prompts: int
    asked: int = 0
    agreed: int = 0
    moved: int = 0
    held: int = 0
    differed: int = 0
    reasons: dict[str, int] = {}
    differences: list[Difference] = []


class _Side:
    """One of the two services, asked in its own words."""

    def __init__(self, client: ServiceClient, face: str, model: str | None) -> None:
        self._client = client
        self._face = face
        self._model = model

    def ask(self, tokens: Sequence[int]) -> Said:
        """Raises `CommandFailed`."""
        try:
            if self._face == "dynamo":
                body = {"model_name": self._model, "token_ids": tokens}
                return said_by_dynamos(self._client.request("POST", "/query", body))
            return said_by_ours(self._client.request("POST", self._path(), token_bytes(tokens), IDS))
        except UNREADABLE as error:
            raise CommandFailed(f"{self._client.url}: the answer is none of a lookup ({error})") from error

    def _path(self) -> str:
        from urllib.parse import urlencode

        return "/v1/lookup" if self._model is None else f"/v1/lookup?{urlencode({'model': self._model})}"


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """0: they agree. 1: they differ. 3: nobody holds anything, which compares nothing. Raises `CommandFailed`."""
    faces = arguments.face_a, arguments.face
    if "dynamo" in faces and arguments.model is None:
        raise CommandFailed("--model: the dynamo face wants one", 2)
    prompts = read_prompts(arguments.prompts)
    urls = Named(arguments.url_a, "URL_A"), Named(arguments.url_b, "URL_B")
    clients = [client_at(url, token, arguments) for url, token in zip(urls, tokens_shown(arguments), strict=True)]
    a, b = (_Side(client, face, arguments.model) for client, face in zip(clients, faces, strict=True))
    outcome = Outcome(a=clients[0].url, b=clients[1].url, prompts=len(prompts))
    with _progress(len(prompts)) as advance:
        for number, prompt in enumerate(prompts):
            if stop.is_set():
                break
            _compare(outcome, number, prompt, (a, b), dict(arguments.pod), stop)
            advance()
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    else:
        print_outcome(outcome, output.console())
    if outcome.asked < len(prompts):
        return INTERRUPTED
    if outcome.differed:
        return 1
    return 0 if outcome.held else NOTHING_COMPARED


def tokens_shown(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """To either service: `--token` to what speaks as ours, for another project's has no business with it."""
    a, b = (arguments.token if face == "kvindexer" else None for face in (arguments.face_a, arguments.face))
    return a, b if arguments.token_b is None else Named(arguments.token_b, "--token-b")


def _compare(
    outcome: Outcome,
    number: int,
    prompt: Sequence[int],
    sides: tuple[_Side, _Side],
    names: dict[str, str],
    stop: threading.Event,
) -> None:
    def found() -> list[Difference]:
        a, b = answers = [side.ask(prompt) for side in sides]
        held.extend(each for answer in answers for each in answer.held.values() if any(each[:3]))
        return differences(number, len(prompt), a, b, names)

    held: list[Held] = []
    first = found()
    last = found() if first and not stop.wait(AGAIN_S) else first
    outcome.asked += 1
    outcome.held += bool(held)
    if not last:
        outcome.agreed += 1
        outcome.moved += bool(first)
        return
    outcome.differed += 1
    for difference in last:
        outcome.reasons[difference.reason] = outcome.reasons.get(difference.reason, 0) + 1
        if len(outcome.differences) < SHOWN_MAX:
            outcome.differences.append(difference)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """A line about the whole, then a row a reason, the most frequent first, with an example."""
    prompts = output.counted(outcome.prompts, "prompt")
    asked = prompts if outcome.asked == outcome.prompts else f"{outcome.asked} of {prompts}, interrupted"
    moved = f" ({outcome.moved} when asked again)" if outcome.moved else ""
    held = f"of {outcome.held} somebody holds something"
    console.print(f"{asked}: {outcome.agreed} agree{moved}, {outcome.differed} differ; {held}")
    if outcome.asked and not outcome.held:
        console.print("nobody holds anything of them on either side, which compares nothing: is --model right?")
    if not outcome.reasons:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("reason")
    for title in ("numbers", "prompt", "tokens"):
        table.add_column(title, justify="right")
    for title in ("pod", "tier"):
        table.add_column(title)
    for title in ("a", "b"):
        table.add_column(title, justify="right")
    for reason, count in sorted(outcome.reasons.items(), key=lambda item: (-item[1], item[0])):
        shown = next((each for each in outcome.differences if each.reason == reason), None)
        table.add_row(reason, str(count), *_cells(shown))
    console.print(table)
    console.print("prompt, pod, tier, a, b: the first of its reason; prompts are counted from 0")


def _cells(shown: Difference | None) -> list[str]:
    if shown is None:
        return [""] * 6
    rank = "" if shown.dp_rank is None else f" rank {shown.dp_rank}"
    numbers = ["-" if each is None else str(each) for each in (shown.a, shown.b)]
    return [str(shown.prompt), str(shown.prompt_tokens), f"{shown.pod}{rank}", shown.tier, *numbers]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar for people who wait; nothing where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("asked"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("asked", total=total)
        yield lambda: bar.advance(task)
