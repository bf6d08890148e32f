"""What asks: wrk where it is installed, else a client of our own; both cycle over a file of prepared bodies.

Closed loop: every connection asks again as soon as it has its answer, so a slow answer delays the questions after it.
Does I/O.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

WRK_SCRIPT: Final = Path(__file__).with_name("wrk.lua")
START_WAIT_S: Final = 30.0
"""For reading the bodies, before the first request."""
_MARK: Final = "RESULT "
_LENGTH: Final = struct.Struct("<I")


class Load(msgspec.Struct, frozen=True):
    """What one run of the generator saw."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: int

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds


class GeneratorFailed(Exception):
    """The generator ended without a result, or some answers were no answers."""


def name() -> str:
    """Which generator is used here."""
    return "wrk" if shutil.which("wrk") else "own client"


def write_bodies(path: Path, bodies: Iterable[bytes]) -> None:
    """The file both generators read."""
    with path.open("wb") as file:
        for body in bodies:
            file.write(_LENGTH.pack(len(body)) + body)


def read_bodies(path: Path) -> list[bytes]:
    """What `write_bodies` wrote."""
    content, at, bodies = path.read_bytes(), 0, []
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        bodies.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    return bodies


class Question(NamedTuple):
    """What is asked: a path with parameters, the file of bodies, their type, and how many bodies to pass over."""

    target: str
    bodies: Path
    content_type: str
    skip: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """As both generators take them."""
        return str(self.bodies), self.target, self.content_type, str(self.skip)


def load(port: int, question: Question, *, connections: int, seconds: float) -> Load:
    """Ask for so long over so many connections, from this process's core.

    Raises `GeneratorFailed` where an answer was not 2xx.
    """
    own = (sys.executable, "-m", "loadtest.client", str(port), str(connections), str(seconds))
    command = _wrk(port, connections, seconds) if shutil.which("wrk") else own
    command = (*command, *question.words)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + START_WAIT_S)
    results = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not results:
        raise GeneratorFailed(f"{command[0]} ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    result = msgspec.json.decode(results[-1].removeprefix(_MARK), type=Load)
    if result.errors or not result.requests:
        raise GeneratorFailed(f"{question.target}: {result.errors} errors in {result.requests} requests")
    return result


def _wrk(port: int, connections: int, seconds: float) -> tuple[str, ...]:
    options = ("-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", "-s", str(WRK_SCRIPT))
    return ("wrk", *options, f"http://127.0.0.1:{port}/", "--")
