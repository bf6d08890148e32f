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
from api.demo.asked import Alone
from api.demo.cluster import Replicas
from api.demo.course import ManyReplicas, OneService
from api.demo.engine import EngineFailed
from api.demo.fleet import TraceFleet
from api.demo.publisher import VLLM_NOW, Wire
from api.demo.service import Ports, ServiceFailed, ServiceProcess
from api.demo.show import Show
from api.demo.store import StoreFailed, StoreProcess
from api.demo.trace import Trace, read_truth
from indexer.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.demo.course import Course

TO_TRY_TOKENS: Final = 33
"""Two blocks and a token, as an engine always computes the last one: short enough to be copied."""
REQUEST_MAX_S: Final = 5.0
REPLAY_STEPS: Final = 64
"""Batches that an engine can replay where there is a store: more than it publishes while the service is away, and a
fifth of what it publishes in a round."""

_PORT_FLAGS: Final = {"server.port": "--port", "server.grpc_port": "--grpc-port"}
_ON_LOOPBACK: Final = "tcp://127.0.0.1:0"
_STEP_S: Final = 0.02
_DRAW_EVERY_S: Final = 0.125
_LINE_EVERY_S: Final = 2.0


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Show until `stop` is set or the time is over. 0, or 1 when an answer differed from the engines' own."""
    begin = _with_replicas if arguments.cluster else _with_one_service
    try:
        with contextlib.ExitStack() as running:
            course = begin(arguments, running)
            _introduce(course)
            _follow(course, stop, None if arguments.seconds is None else time.monotonic() + arguments.seconds)
    except StoreFailed as failed:
        raise CommandFailed(str(failed), 2) from failed
    except ServiceFailed as failed:
        if failed.exit_code != 2:  # noqa: PLR2004  as `serve` ends
            raise CommandFailed(str(failed)) from failed
        raise CommandFailed(f"{failed}{_way_out(str(failed))}", 2) from failed
    except EngineFailed as failed:
        raise CommandFailed(str(failed)) from failed
    return _farewell(course)


def _way_out(said: str) -> str:
    """Of a port that cannot be had: who looks at a demo has no reason to want that one."""
    flags = (flag for key, flag in _PORT_FLAGS.items() if said.startswith(f"{key}:"))
    return "".join(f" ({flag} 0 takes a free one)" for flag in flags)


def _wall_s() -> float:
    return SystemClock().wall_us() / 1e6


def _ports(arguments: argparse.Namespace) -> Ports:
    return Ports(arguments.port, None if arguments.grpc_port is False else arguments.grpc_port)


def _with_one_service(arguments: argparse.Namespace, running: contextlib.ExitStack) -> Course:
    package = files("api.demo")
    trace, truth = Trace(package / "demo.kvt.gz"), read_truth(package / "demo.truth.gz")
    wire = Wire(buffer_steps=REPLAY_STEPS) if arguments.redis else VLLM_NOW
    fleet = TraceFleet(trace.header, _ON_LOOPBACK, _ON_LOOPBACK, wire=wire, now=_wall_s)
    running.callback(fleet.close)
    fleet.start()
    store = running.enter_context(StoreProcess()) if arguments.redis else None
    url = "" if store is None else store.url
    service = running.enter_context(ServiceProcess(_ports(arguments), fleet.source_flags(), url))
    asked = Alone(ServiceClient(service.url, timeout_s=REQUEST_MAX_S))
    show = Show(trace, truth, fleet, asked, time.monotonic, killable=None if store is None else service)
    return OneService(show, service, store, REPLAY_STEPS)


def _with_replicas(arguments: argparse.Namespace, running: contextlib.ExitStack) -> Course:
    package = files("api.demo")
    trace, truth = Trace(package / "demo.kvt.gz"), read_truth(package / "demo.truth.gz")
    fleet = TraceFleet(trace.header, _ON_LOOPBACK, None, now=_wall_s)
    running.callback(fleet.close)
    fleet.start()
    store = running.enter_context(StoreProcess())
    replicas = running.enter_context(
        Replicas(fleet.source_flags(), store.url, _ports(arguments), timeout_s=REQUEST_MAX_S, now=time.monotonic)
    )
    return ManyReplicas(Show(trace, truth, fleet, replicas, time.monotonic), replicas, store)


def _follow(course: Course, stop: threading.Event, ends_at: float | None) -> None:
    if sys.stdout.isatty():
        console = Console()
        with Live(console=console, auto_refresh=False, transient=False) as live:
            every = (_DRAW_EVERY_S, lambda: live.update(course.picture(console.width), refresh=True))
            _steps(course, stop, ends_at, every)
    else:
        _steps(course, stop, ends_at, (_LINE_EVERY_S, _Lines(course).tell))


def _steps(
    course: Course, stop: threading.Event, ends_at: float | None, report: tuple[float, Callable[[], None]]
) -> None:
    every_s, tell = report
    tell_at = time.monotonic() + every_s
    while not stop.wait(_STEP_S) and (ends_at is None or time.monotonic() < ends_at):
        try:
            course.step()
        except CommandFailed:
            course.check()  # it has ended: its own last word says more
            raise
        if time.monotonic() >= tell_at:
            tell()
            tell_at = time.monotonic() + every_s
    tell()


def _introduce(course: Course) -> None:
    """Lines to try from another terminal. Not in the live part: there they could not be copied."""
    show = course.show
    question = json.dumps({"model": show.model, "token_ids": show.popular_prefix(TO_TRY_TOKENS)}, separators=(",", ":"))
    for line in course.introduction():
        print(line)
    print("Three engines replay recorded vLLM traffic; from another terminal, try:\n")
    print(f"curl -s {course.url}/v1/lookup -H 'content-type: application/json' -d '{question}'\n")
    print(*course.commands(), sep="\n")
    for address in course.rpc_addresses():
        print(f"gRPC, kvindexer.v1.KvIndexer with reflection: {address}")
    print(flush=True)


class _Lines:
    """The course of events in lines, for whoever reads a pipe."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._told = 0

    def tell(self) -> None:
        """What happened since, and how it stands."""
        show, totals, said = self._course.show, self._course.show.totals, self._course.said()
        for sentence in said[self._told :]:
            print(sentence)
        self._told = len(said)
        print(
            f"round {totals.rounds} {show.progress:4.0%}  {self._course.states()}  "
            f"lookups {totals.lookups}  agree with the engines {totals.agreeing} of {totals.compared}",
            flush=True,
        )


def _farewell(course: Course) -> int:
    totals = course.show.totals
    print(
        f"{totals.lookups} lookups, {totals.messages} batches ({totals.lost} lost on the way); "
        f"{totals.agreeing} of {totals.compared} compared answers agreed with the engines",
        flush=True,
    )
    sentences, went_well = course.outcome()
    print(*sentences, sep="\n", end="\n" if sentences else "", flush=True)
    if totals.unsettled:
        print(f"{totals.unsettled} times the service had not applied all within the time", file=sys.stderr)
    return 0 if totals.agreeing == totals.compared and not totals.unsettled and went_well else 1
