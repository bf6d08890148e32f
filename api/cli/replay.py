"""`kvindexer replay`: publish a recording as the engines did, for any subscriber."""

from __future__ import annotations

import argparse
import shlex
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from api.cli.client import CommandFailed
from api.demo.engine import LINGER_MS, EngineFailed
from api.demo.fleet import BadEndpointBase, TraceFleet, losses, paced
from api.demo.trace import Trace, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

INTERRUPTED: Final = 130
DEMO: Final = Path("demo")
PACKAGED: Final = files("api.demo") / "demo.kvt.gz"
_REPORT_EVERY_S: Final = 5.0


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Publish until the end, or until `stop` is set: 0 when the whole recording was published, 130 when not."""
    try:
        trace = Trace(PACKAGED if arguments.trace == DEMO else arguments.trace)
        replay_base = None if arguments.no_replay else arguments.replay_base
        fleet = TraceFleet(trace.header, arguments.endpoint_base, replay_base)
        total = sum(1 for _ in trace.messages())
        fleet.start()
    except OSError as error:
        raise CommandFailed(f"{arguments.trace}: {(error.strerror or str(error)).lower()}", 2) from error
    except (TraceError, BadEndpointBase) as error:
        raise CommandFailed(str(error), 2) from error
    except EngineFailed as error:
        raise CommandFailed(str(error), 2) from error
    try:
        _introduce(trace, fleet, total)
        whole = _play(trace, fleet, total, arguments, stop)
        if whole and not stop.is_set():
            fleet.flush()  # "all published" is said when it is true
            _hold(arguments.hold, stop)
    except TraceError as error:
        raise CommandFailed(str(error)) from error
    finally:
        fleet.close(linger_ms=LINGER_MS)
    return 0 if whole else INTERRUPTED


def _introduce(trace: Trace, fleet: TraceFleet, total: int) -> None:
    header = trace.header
    print(f"# {header.name}: {total} messages of {len(header.pods)} engines ({header.engine} {header.engine_version})")
    print("# subscribe with")
    print(
        "kvindexer serve " + " ".join(f"\\\n  --source {shlex.quote(flag)}" for flag in fleet.source_flags()),
        flush=True,
    )


def _play(trace: Trace, fleet: TraceFleet, total: int, arguments: argparse.Namespace, stop: threading.Event) -> bool:
    """True once the recording was published to its end."""
    lost = losses(arguments.loss, arguments.seed)
    whole = False
    with _progress(total) as advance:
        while not stop.is_set():
            if arguments.wait_subscribers and not _wait(fleet, stop):
                break
            published = 0
            for message in paced(trace, stop, arguments.speed):
                if fleet.enter_life(message) and arguments.wait_subscribers and not _wait(fleet, stop):
                    break
                fleet.publish(message, lost=next(lost))
                published += 1
                advance(published)
            whole = whole or published == total
            if not arguments.loop or stop.is_set():
                break
            fleet.restart_all()
    return whole


def _wait(fleet: TraceFleet, stop: threading.Event) -> bool:
    missing = sum(engine.subscribers < 1 for engine in fleet.engines.values())
    if missing:
        print(
            f"waiting for subscribers: {missing} of {len(fleet.engines)} engines have none", file=sys.stderr, flush=True
        )
    return fleet.wait_subscribers(stop)


def _hold(seconds: float | None, stop: threading.Event) -> None:
    """The engines stay, as real ones do: for replay, and so that nobody sees a broken connection."""
    if seconds is None:
        print("# all published; the engines stay and answer replay until Ctrl-C (--hold 0 ends at once)", flush=True)
    stop.wait(seconds)


class _Lines:
    """Progress where stderr is no terminal: a line now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._due = total, time.monotonic() + _REPORT_EVERY_S

    def __enter__(self) -> Callable[[int], None]:
        return self._advance

    def __exit__(self, *_: object) -> None:
        return None

    def _advance(self, published: int) -> None:
        if published == self._total or time.monotonic() >= self._due:
            self._due = time.monotonic() + _REPORT_EVERY_S
            print(f"published {published} of {self._total}", file=sys.stderr, flush=True)


class _Bar:
    """Progress for a person. Redrawn by rich's own thread: the publishing one only writes a number."""

    def __init__(self, total: int) -> None:
        self._bar = Progress(
            TextColumn("publishing"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("publishing", total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._bar.start()
        return lambda published: self._bar.update(self._task, completed=published)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def _progress(total: int) -> _Lines | _Bar:
    return _Bar(total) if sys.stderr.isatty() else _Lines(total)
