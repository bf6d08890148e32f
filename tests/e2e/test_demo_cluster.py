"""`kvindexer demo --cluster` as a process: a replica is killed, one is paused, the answers agree, nothing is left."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_process import DEADLINE_S, SUMMARY, demo, descendants, gone, read_until, wait_until_gone

PROCESSES = 5
"""Three replicas, the store, and who keeps it."""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[Any]]]:
    """Processes that must be gone at the end."""
    processes: list[subprocess.Popen[Any]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_one_is_killed_and_one_is_paused(started: list[subprocess.Popen[str]]) -> None:
    """Others take over, both come back; every compared answer agrees, before, meanwhile and after; nothing is left."""
    process = demo(started, "--cluster")
    folder = Path(read_until(process, r"unix://(/\S+)/socket")[1])
    killed = read_until(process, r"(r[123]) is killed \(SIGKILL\); it owned [1-9]\d* partitions")[1]
    read_until(process, r"all it owned has another owner after \d")
    read_until(process, rf"{killed} has its share again; nothing was lost")
    compared = int(read_until(process, r"agree with the engines \d+ of (\d+)")[1])
    paused = read_until(process, r"(r[123]) is paused \(SIGSTOP\)")[1]
    read_until(process, r"all it owned has another owner after \d")
    words = read_until(process, rf"{paused} goes on \(SIGCONT\), asked at once it says: (.*)")[1]
    read_until(process, rf"{paused} has its share again; nothing was lost")
    read_until(process, rf"agree with the engines \d+ of (?!{compared}\b)")
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    summary = SUMMARY.search(output)

    assert (0, "") == (process.returncode, errors)
    assert summary, output
    assert compared < int(summary["agreeing"]) == int(summary["compared"])
    assert " live" not in words
    assert re.search(r"replicas killed: \d, paused: \d; each time every engine went on", output)
    assert PROCESSES == len(family)
    assert all(map(gone, family))
    assert not folder.exists()


@pytest.mark.slow
def test_killed_while_a_replica_is_paused(started: list[subprocess.Popen[str]]) -> None:
    """It leaves none of its processes behind: neither that one, which cannot notice, nor the store's folder."""
    process = demo(started, "--cluster")
    folder = Path(read_until(process, r"unix://(/\S+)/socket")[1])
    read_until(process, r"r[123] is paused")
    family = descendants(process.pid)
    process.kill()
    process.wait()
    for each in family:
        wait_until_gone(each)

    assert PROCESSES == len(family)
    assert not folder.exists()


def test_ended_before_it_began(started: list[subprocess.Popen[str]]) -> None:
    """At the first word it says: all is gone then, and 0 is what it ends with."""
    process = demo(started, "--cluster")
    folder = Path(read_until(process, r"unix://(/\S+)/socket")[1])
    family = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=DEADLINE_S)

    assert (0, "") == (process.returncode, errors)
    assert all(map(gone, family))
    assert not folder.exists()


def test_a_terminal_gets_the_replicas_beside_the_engines(started: list[subprocess.Popen[bytes]]) -> None:
    """Two tables, drawn over and over in place."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "indexer", "demo", "--cluster", "--port", "0"],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
    )
    os.close(child)
    started.append(process)
    drawn = b""
    try:
        while part := os.read(parent, 65536):
            enough = drawn.count(b"stands by") < 3 <= (drawn + part).count(b"stands by")
            drawn += part
            if enough:  # once: a second time would end it there and then
                process.send_signal(signal.SIGINT)
    except OSError:  # what a terminal says when the other side is closed
        pass
    os.close(parent)

    assert 0 == process.wait(DEADLINE_S)
    text = drawn.decode()
    assert text.count("10.0.0.3:8000") >= 3
    assert "r3" in text
    assert SUMMARY.search(text)
    assert "Traceback" not in text


def test_not_with_the_other_kind(started: list[subprocess.Popen[str]]) -> None:
    """--redis and --cluster are two demos."""
    process = demo(started, "--cluster", "--redis")
    _, errors = process.communicate(timeout=DEADLINE_S)

    assert 2 == process.returncode
    assert "not allowed with" in errors
