"""Start here: command line → settings → node → faces → signals. No logic; only this file handles signals.

What takes time to import is imported where it is used, so that Ctrl-C is handled from the first millisecond on.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    import asyncio
    import threading
    from collections.abc import Callable, Sequence
    from types import FrameType

    from indexer.settings import Settings

INTERRUPTED: Final = 130
"""Exit code of a command that Ctrl-C ended before it was done, as shells have it."""

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns its exit code. A user's mistake is one line on stderr, never a traceback."""
    signal.signal(signal.SIGINT, _leave)  # until a command that has something to end handles signals itself
    from api.cli.client import CommandFailed
    from api.cli.parser import build_parser
    from indexer.settings import BadSettings

    parsed = build_parser(_version()).parse_args(arguments)
    try:
        return _command(parsed)()
    except CommandFailed as failed:
        print(f"kvindexer: {failed}", file=sys.stderr)
        return failed.exit_code
    except BadSettings as bad:
        for error in bad.errors:
            print(f"kvindexer: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _command(parsed: argparse.Namespace) -> Callable[[], int]:
    match parsed.command:
        case "serve":
            settings = _settings(parsed)  # before the imports: a mistake is told at once
            from api.cli import serve

            return lambda: serve.run(settings, _stop_loop_on_signal)
        case "config":
            from api.cli import config

            return lambda: config.run(_settings(parsed), parsed)
        case "lookup" | "explain" | "sources" | "partitions" | "report" | "drain" | "compare" | "doctor":
            return _question(parsed)
        case "redis" | "token" | "plan":
            return _alone(parsed)
        case "replay":
            from api.cli import replay

            return lambda: _until_signal(replay.run, parsed)
        case _:
            from api.cli import demo

            return lambda: _until_signal(demo.run, parsed)


def _question(parsed: argparse.Namespace) -> Callable[[], int]:
    """What is asked of a running service."""
    match parsed.command:
        case "lookup":
            from api.cli import lookup

            return lambda: lookup.run(parsed)
        case "explain":
            from api.cli import explain

            return lambda: explain.run(parsed)
        case "sources":
            from api.cli import sources

            return lambda: sources.run(parsed)
        case "drain":
            from api.cli import drain

            return lambda: _until_signal(drain.run, parsed)
        case "compare":
            from api.cli import compare

            return lambda: _until_signal(compare.run, parsed)
        case "doctor":
            from api.cli import doctor

            return lambda: _until_signal(lambda given, stop: doctor.run(given, stop, _version()), parsed)
        case "report":
            from api.cli import consistency, staleness

            return lambda: (consistency if parsed.report == "consistency" else staleness).run(parsed)
        case _:
            from api.cli import partitions

            return lambda: _until_signal(partitions.watch, parsed) if parsed.watch else partitions.run(parsed)


def _alone(parsed: argparse.Namespace) -> Callable[[], int]:
    """What is done without any service."""
    match parsed.command:
        case "redis":
            if parsed.action is None:
                return lambda: parsed.print_help() or 0
            from api.cli import redis_reset

            return lambda: redis_reset.run(parsed, _stop_loop_on_signal)
        case "plan":
            from api.cli import plan

            return lambda: plan.run(parsed)
        case _:
            from api.cli import token

            return lambda: token.run(parsed)


def _until_signal(run: Callable[[argparse.Namespace, threading.Event], int], parsed: argparse.Namespace) -> int:
    with StopOnSignal() as stop:
        return run(parsed, stop)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Nothing is begun that would have to be ended; an exception could be lost in the middle of an import."""
    os._exit(INTERRUPTED)


def _settings(parsed: argparse.Namespace) -> Settings:
    from indexer.settings import load

    flags = {
        "server.host": parsed.host,
        "server.port": parsed.port,
        "server.grpc_port": parsed.grpc_port,
        "server.epp_port": parsed.epp_port,
        "server.uds": parsed.uds,
        "server.roles": parsed.roles,
        "models.follow": parsed.follow,
        "redis.url": parsed.redis_url,
        "events.source_bind": parsed.source_bind,
    }
    return load(parsed.config, flags=flags, source_flags=parsed.source)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kvindexer")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0+unknown"


class StopOnSignal:
    """For commands that wait in threads: an event, set by the first SIGINT or SIGTERM. The second one kills.

    The handler does not set the event: it may run inside the very lock of the event that the main thread holds. The
    byte that the interpreter writes for every signal wakes a thread, and that one sets it.
    """

    def __init__(self) -> None:
        import socket
        import threading

        self._stop = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)  # noqa: FBT003  the standard library's signature
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)

    def __enter__(self) -> threading.Event:
        self._watcher.start()
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for each in _STOPPING:
            signal.signal(each, _second_one_kills)
        return self._stop

    def __exit__(self, *_: object) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        self._writer.close()  # the end that the watcher waits for
        self._watcher.join()
        self._reader.close()

    def _watch(self) -> None:
        while self._reader.recv(1):
            self._stop.set()


def _second_one_kills(_number: int, _frame: FrameType | None) -> None:
    for each in _STOPPING:
        signal.signal(each, signal.SIG_DFL)


def _stop_loop_on_signal(stop: asyncio.Event) -> None:
    """The same for an event loop, called on it: the first signal sets `stop`, the second one kills."""
    import asyncio

    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        for each in _STOPPING:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in _STOPPING:
        loop.add_signal_handler(each, first)


if __name__ == "__main__":
    sys.exit(main())
