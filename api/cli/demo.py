"""`kvindexer demo`: the whole thing on one machine, for a person to look at. Plain lines where nobody looks."""

from __future__ import annotations

import argparse
import contextlib
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
from api.demo.publisher import VLLM_NOW, Wire
from api.demo.screen import draw
from api.demo.service import ServiceFailed, ServiceProcess
from api.demo.show import Show
from api.demo.store import StoreFailed, StoreProcess
from api.demo.trace import Trace, read_truth

if TYPE_CHECKING:
    from collections.abc import Callable

TO_TRY_TOKENS: Final = 33
"""Two blocks and a token, as an engine always computes the last one: short enough to be copied."""
REQUEST_MAX_S: Final = 5.0
REPLAY_STEPS: Final = 64
"""Batches that an engine can replay where there is a store: more than it publishes while the service is away, and a
fifth of what it publishes in a round."""

_STEP_S: Final = 0.02
_DRAW_EVERY_S: Final = 0.125
_LINE_EVERY_S: Final = 2.0


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Show until `stop` is set or the time is over. 0, or 1 when an answer differed from the engines' own."""
    package = files("api.demo")
    trace, truth = Trace(package / "demo.kvt.gz"), read_truth(package / "demo.truth.gz")
    wire = Wire(buffer_steps=REPLAY_STEPS) if arguments.redis else VLLM_NOW
    fleet = TraceFleet(trace.header, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", wire=wire)
    ends_at = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    try:
        with contextlib.ExitStack() as running:
            running.callback(fleet.close)
            fleet.start()
            store = running.enter_context(StoreProcess()) if arguments.redis else None
            url = "" if store is None else store.url
            service = running.enter_context(ServiceProcess(arguments.port, fleet.source_flags(), url))
            client = ServiceClient(service.url, timeout_s=REQUEST_MAX_S)
            killable = None if store is None else service
            show = Show(trace, truth, fleet, client, time.monotonic, killable=killable)
            _introduce(show, service.url, store)
            _course(show, service, stop, ends_at)
    except StoreFailed as failed:
        raise CommandFailed(str(failed), 2) from failed
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
        lines = _Lines(show)
        _steps(show, service, stop, ends_at, (_LINE_EVERY_S, lines.tell))


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


def _introduce(show: Show, url: str, store: StoreProcess | None) -> None:
    """A line to try from another terminal. Not in the live part: there it could not be copied."""
    question = json.dumps({"model": show.model, "token_ids": show.popular_prefix(TO_TRY_TOKENS)}, separators=(",", ":"))
    if store is not None:
        print(f"The service keeps what it knows in a store, {store.program} at {store.url}.")
        print(f"On the way it is killed and started again. The engines replay only their last {REPLAY_STEPS} batches:")
        print("what is older comes out of the store, or not at all.\n")
    print("Three engines replay recorded vLLM traffic; from another terminal, try:\n")
    print(f"curl -s {url}/v1/lookup -H 'content-type: application/json' -d '{question}'\n")
    print(f"kvindexer sources --url {url}", *([] if store is None else [f"kvindexer partitions --url {url}"]), sep="\n")
    print(flush=True)


class _Lines:
    """The course of events in lines, for whoever reads a pipe."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._told = 0

    def tell(self) -> None:
        """What happened since, and how it stands."""
        show, totals = self._show, self._show.totals
        for sentence in show.said[self._told :]:
            print(sentence)
        self._told = len(show.said)
        states = ", ".join(f"{pod} {facts.state} {facts.bound}" for pod, facts in show.sources.items())
        print(
            f"round {totals.rounds} {show.progress:4.0%}  {'no service' if show.away else states}  "
            f"lookups {totals.lookups}  agree with the engines {totals.agreeing} of {totals.compared}",
            flush=True,
        )


def _farewell(show: Show) -> int:
    totals = show.totals
    print(
        f"{totals.lookups} lookups, {totals.messages} batches ({totals.lost} lost on the way); "
        f"{totals.agreeing} of {totals.compared} compared answers agreed with the engines",
        flush=True,
    )
    judged = [outage for outage in show.outages if outage.kept is not None]
    anew = sum(not outage.kept for outage in judged)
    if judged:
        how = f"{anew} times engines began anew" if anew else "each time every engine went on where it stood"
        print(f"the service was killed and started again {len(judged)} times: {how}", flush=True)
    if totals.unsettled:
        print(f"{totals.unsettled} times the service had not applied all within the time", file=sys.stderr)
    return 0 if totals.agreeing == totals.compared and not totals.unsettled and not anew else 1
