"""`kvindexer demo` as a process: started, read, and whether anything of it is left."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

DEADLINE_S = 60.0
SUMMARY = re.compile(
    r"(?P<lookups>\d+) lookups, (?P<batches>\d+) batches \((?P<lost>\d+) lost on the way\); "
    r"(?P<agreeing>\d+) of (?P<compared>\d+) compared answers agreed with the engines"
)


def demo(started: list[subprocess.Popen[str]], *arguments: str) -> subprocess.Popen[str]:
    """The command, with its output in pipes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "indexer", "demo", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    return process


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line with that pattern."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found
    raise AssertionError(f"ended without {pattern}: {process.communicate()[1]}")


def children(pid: int) -> list[int]:
    """Processes that this one has started and that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def descendants(pid: int) -> list[int]:
    """Its children and theirs."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def gone(pid: int) -> bool:
    """No such process, or only what its parent has not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pid: int) -> None:
    """Return when that process has ended; it is not ours to wait for."""
    ends_at = time.monotonic() + DEADLINE_S
    while not gone(pid):
        assert time.monotonic() < ends_at, "the service is still there"
        time.sleep(0.02)
