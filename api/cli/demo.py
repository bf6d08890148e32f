"""`kvindexer demo`: the whole thing on one machine, for a person to look at. Plain lines where nobody looks."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live

from api.cli.client import CommandFailed, ServiceClient
from api.demo.engine import EngineFailed
from api.demo.fleet import TraceFleet
from api.demo.screen import draw
from api.demo.service import ServiceFailed, ServiceProcess
from api.demo.show import Show
from api.demo.trace import Trace, read_truth

if TYPE_CHECKING:
    from collections.abc import Callable

TO_TRY_TOKENS: Final = 33
"""Two blocks and a token, as an engine always computes the last one: short enough to be copied."""
REQUEST_MAX_S: Final = 5.0

_STEP_S: Final = 0.02
_DRAW_EVERY_S: Final = 0.125
_LINE_EVERY_S: Final = 2.0


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Show until `stop` is set or the time is over. 0, or 1 when an answer differed from the engines' own."""
    package = files("api.demo")
    trace, truth = Trace(package / "demo.kvt.gz"), read_truth(package / "demo.truth.gz")
    fleet = TraceFleet(trace.header, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    ends_at = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    try:
        fleet.start()
        try:
            with ServiceProcess(arguments.port, fleet.source_flags()) as service:
                show = Show(trace, truth, fleet, ServiceClient(service.url, timeout_s=REQUEST_MAX_S), time.monotonic)
                _introduce(show, service.url)
                _course(show, service, stop, ends_at)
        finally:
            fleet.close()
    except ServiceFailed as failed:
        raise CommandFailed(str(failed), 2 if failed.exit_code == 2 else 1) from failed  # noqa: PLR2004  as `serve` ends
    except EngineFailed as failed:
        raise CommandFailed(str(failed)) from failed
    return _farewell(show)


def _course(show: Show, service: ServiceProcess, stop: threading.Event, ends_at: float | None) -> None:
    if sys.stdout.isatty():
        console = Console()
        with Live(console=console, auto_refresh=False, transient=False) as live:
            _steps(
                show,
                service,
                stop,
                ends_at,
                (_DRAW_EVERY_S, lambda: live.update(draw(show, service.url, console.width), refresh=True)),
            )
    else:
        _steps(show, service, stop, ends_at, (_LINE_EVERY_S, lambda: _line(show)))


def _steps(
    show: Show,
    service: ServiceProcess,
    stop: threading.Event,
    ends_at: float | None,
    report: tuple[float, Callable[[], None]],
) -> None:
    every_s, tell = report
    tell_at = time.monotonic() + every_s
    while not stop.wait(_STEP_S) and (ends_at is None or time.monotonic() < ends_at):
        try:
            show.step()
        except CommandFailed:
            service.check()  # it has ended: its own last word says more
            raise
        if time.monotonic() >= tell_at:
            tell()
            tell_at = time.monotonic() + every_s
    tell()


def _introduce(show: Show, url: str) -> None:
    """A line to try from another terminal. Not in the live part: there it could not be copied."""
    question = json.dumps({"model": show.model, "token_ids": show.popular_prefix(TO_TRY_TOKENS)}, separators=(",", ":"))
    print("Three engines replay recorded vLLM traffic; from another terminal, try:\n")
    print(f"curl -s {url}/v1/lookup -H 'content-type: application/json' -d '{question}'\n")
    print(f"kvindexer sources --url {url}\n", flush=True)


def _line(show: Show) -> None:
    totals = show.totals
    states = ", ".join(f"{pod} {facts.state} {facts.bound}" for pod, facts in show.sources.items())
    print(
        f"round {totals.rounds} {show.progress:4.0%}  {states}  lookups {totals.lookups}  "
        f"agree with the engines {totals.agreeing} of {totals.compared}",
        flush=True,
    )


def _farewell(show: Show) -> int:
    totals = show.totals
    print(
        f"{totals.lookups} lookups, {totals.messages} batches ({totals.lost} lost on the way); "
        f"{totals.agreeing} of {totals.compared} compared answers agreed with the engines",
        flush=True,
    )
    if totals.unsettled:
        print(f"{totals.unsettled} times the service had not applied all within the time", file=sys.stderr)
    return 0 if totals.agreeing == totals.compared and not totals.unsettled else 1
