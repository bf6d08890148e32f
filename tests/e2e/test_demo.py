"""`kvindexer demo` as a process: it shows agreement with the engines, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import ListSourcesRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.demo_process import (
    DEADLINE_S,
    SUMMARY,
    children,
    demo,
    descendants,
    gone,
    read_until,
    wait_until_gone,
)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that must be gone at the end."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def test_the_time_is_over(started: list[subprocess.Popen[str]]) -> None:
    """It ends by itself, with 0 and a summary."""
    process = demo(started, "--seconds", "2")
    output, errors = process.communicate(timeout=DEADLINE_S)

    assert (0, "") == (process.returncode, errors)
    assert SUMMARY.search(output)


def test_a_folder_called_api_in_the_working_directory(tmp_path: Path) -> None:
    """The installed command is not led astray by it."""
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "indexer.py").write_text("raise SystemExit('the wrong one')")
    program = "import sys; from indexer.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "demo", "--port", "0", "--seconds", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert SUMMARY.search(done.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_of_it(started: list[subprocess.Popen[str]], number: signal.Signals) -> None:
    """Every compared answer agreed; exit code 0, no traceback, the service gone and its port free again."""
    process = demo(started)
    port = read_until(process, r"curl -s http://127\.0\.0\.1:(\d+)/v1/lookup")[1]
    read_until(process, r"agree with the engines \d+ of (2[4-9]|[3-9]\d)")  # all of the first position
    (service,) = children(process.pid)
    process.send_signal(number)
    output, errors = process.communicate(timeout=DEADLINE_S)
    summary = SUMMARY.search(output)

    assert (0, "") == (process.returncode, errors)
    assert summary, output
    assert int(summary["agreeing"]) == int(summary["compared"]) >= 24
    assert int(summary["lookups"]) > 8
    assert gone(service)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", int(port)))


def test_with_a_store_it_goes_on_where_it_stood(started: list[subprocess.Popen[str]]) -> None:
    """The service is killed and comes back; answers agree before and after; at the end nothing is left."""
    process = demo(started, "--redis")
    folder = Path(read_until(process, r"unix://(/\S+)/socket")[1])
    read_until(process, r"the service is killed \(SIGKILL\) while it knows [1-9]")
    read_until(process, r"nothing was lost: the same generations")
    compared = int(read_until(process, r"agree with the engines \d+ of (\d+)")[1])
    read_until(process, rf"agree with the engines \d+ of (?!{compared}\b)")
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    summary = SUMMARY.search(output)

    assert (0, "") == (process.returncode, errors)
    assert summary, output
    assert compared < int(summary["agreeing"]) == int(summary["compared"])
    assert "the service was killed and started again 1 times: each time every engine went on where it stood" in output
    assert 3 == len(family)  # the service, the store, and who keeps the store
    assert all(map(gone, family))
    assert not folder.exists()


def test_a_killed_demo_leaves_no_store(started: list[subprocess.Popen[str]]) -> None:
    """Neither the server nor its folder."""
    process = demo(started, "--redis")
    folder = Path(read_until(process, r"unix://(/\S+)/socket")[1])
    family = descendants(process.pid)
    process.kill()
    process.wait()
    for each in family:
        wait_until_gone(each)

    assert 3 == len(family)
    assert not folder.exists()


def test_a_killed_demo_leaves_no_service(started: list[subprocess.Popen[str]]) -> None:
    """The service ends with the process that started it, however that one ends."""
    process = demo(started)
    read_until(process, r"round 1 ")
    (service,) = children(process.pid)
    process.kill()
    process.wait()
    wait_until_gone(service)


def test_grpc_is_spoken_where_it_says(started: list[subprocess.Popen[str]]) -> None:
    """At the port that was asked for, also after the service was killed and started again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = demo(started, "--redis", "--grpc-port", str(port))
    address = read_until(process, r"gRPC, kvindexer\.v1\.KvIndexer with reflection: (\S+)$")[1]
    assert f"127.0.0.1:{port}" == address
    read_until(process, r"nothing was lost: the same generations")
    with grpc.insecure_channel(address) as channel:
        answer = KvIndexerStub(channel).ListSources(ListSourcesRequest(), timeout=DEADLINE_S)

    assert 3 == len(answer.sources)


def test_without_grpc_none_is_told(started: list[subprocess.Popen[str]]) -> None:
    """And all else is as ever."""
    process = demo(started, "--grpc-port", "off", "--seconds", "1")
    output, errors = process.communicate(timeout=DEADLINE_S)

    assert (0, "") == (process.returncode, errors)
    assert "gRPC" not in output
    assert SUMMARY.search(output)


def test_the_printed_line_to_try_works(started: list[subprocess.Popen[str]]) -> None:
    """What a person copies from the screen is answered."""
    process = demo(started)
    line = read_until(process, r"(curl -s .*)")[1]
    read_until(process, r"engines [1-9]\d* of")
    _, _, url, _, header, _, body = shlex.split(line)
    name, _, value = header.partition(": ")
    answer = httpx.post(url, content=body, headers={name: value}, timeout=DEADLINE_S)

    assert 32 == answer.json()["pods"][0]["matched_tokens"]


def test_a_taken_port_is_told(started: list[subprocess.Popen[str]]) -> None:
    """One line with the way out, exit code 2 as of `serve`, no engines left; the same of the one for gRPC."""
    first = demo(started)
    port = read_until(first, r"curl -s http://127\.0\.0\.1:(\d+)/v1/lookup")[1]
    for key, flags in (("port", ("--port", port)), ("grpc_port", ("--port", "0", "--grpc-port", port))):
        second = demo(started, *flags)
        _, errors = second.communicate(timeout=DEADLINE_S)
        assert 2 == second.returncode
        flag = flags[-2]
        assert re.fullmatch(rf"kvindexer: server\.{key}: {port} .* \({flag} 0 takes a free one\)\n", errors)


def test_a_terminal_gets_a_live_table() -> None:
    """Drawn over and over in place, the summary below it at the end."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "indexer", "demo", "--port", "0", "--seconds", "3"],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
    )
    os.close(child)
    drawn = b""
    try:
        while part := os.read(parent, 65536):
            drawn += part
    except OSError:  # what a terminal says when the other side is closed
        pass
    os.close(parent)

    assert 0 == process.wait(DEADLINE_S)
    text = drawn.decode()
    assert text.count("kvindexer demo") > 3
    assert "\x1b[" in text
    assert SUMMARY.search(text)
    assert "Traceback" not in text
