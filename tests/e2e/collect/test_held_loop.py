"""An engine is killed in the midst of a flood while our loop stands still: libzmq must not take the process with it.

libzmq aborts where a heartbeat falls due on a connection whose peer is gone and whose queue is full (decisions/0009).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

FLOOD = "20000"
HOLD_S = "1.0"


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module of ours in a process of its own; killed at the end if it still runs."""
    started = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def _tell(stream: IO[str] | None) -> None:
    assert stream is not None
    stream.write("go\n")
    stream.flush()


def test_an_engine_killed_while_the_loop_is_held() -> None:
    """The collector notices the loss and lives on."""
    with process("tests.support.flooding_engine", FLOOD) as engine:
        endpoint = _line(engine.stdout)
        with process("tests.support.held_collector", endpoint, HOLD_S) as collector:
            assert "connected" == _line(collector.stdout)
            _tell(collector.stdin)
            _tell(engine.stdin)
            assert "sent" == _line(engine.stdout)
            engine.kill()

            said, errors = collector.communicate(timeout=60)
            assert (0, "", "lost") == (collector.returncode, errors, said.split(" ")[0])
