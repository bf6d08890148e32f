"""How the command ends when it is told to: while callers wait, and before it has begun."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time

from tests.support.core_service import DEADLINE_S, RunningService

WAITERS = 20
MOMENTS_S = [0.001, *(0.02 * step for step in range(1, 21))]
"""After its beginning, over all of its imports and into the wait for signals."""

STOPS = re.compile(r"\S+ \S+ INFO kvindexer\.serve: (told to stop: .*|stopped)\n")
PROGRAM = "import sys; from indexer.__main__ import main; print('begins', flush=True); sys.exit(main())"
"""What the console script is, and a word when our part of it begins."""


def _waiting(url: str) -> socket.socket:
    """A connection whose question waits for a batch that never comes."""
    found = re.fullmatch(r"http://([0-9.]+):([0-9]+)/?", url)
    assert found is not None
    body = json.dumps({"token_ids": [1], "min_sequence": {"a": 9}, "timeout_ms": 60_000}).encode()
    connection = socket.create_connection((found[1], int(found[2])), timeout=DEADLINE_S)
    head = f"POST /v1/lookup HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def _everything(connection: socket.socket) -> bytes:
    received = b""
    with connection:
        while part := connection.recv(65_536):
            received += part
    return received


def test_sigterm_while_lookups_wait() -> None:
    """All are answered, nothing is logged as a fault, and nobody waits for `drain_s` to pass."""
    with RunningService(["a=tcp://127.0.0.1:9"], server__drain_s="600") as service:
        waiting = [_waiting(service.url) for _ in range(WAITERS)]
        service.ask([1])  # came after them on the same loop: they are under way
    answers = [_everything(connection) for connection in waiting]

    assert [b"HTTP/1.1 200 OK"] * WAITERS == [answer.partition(b"\r\n")[0] for answer in answers]
    assert [b'"reason":"deadline"'] * WAITERS == [re.search(rb'"reason":"deadline"', answer)[0] for answer in answers]  # type: ignore[index]


def test_sigterm_while_a_caller_does_not_read() -> None:
    """Its requests are cut after `drain_s`, the one under way and those behind it, without a word in the log."""
    with socket.socket() as silent, RunningService([], server__drain_s="0.3") as service:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, _, port = service.url.removeprefix("http://").partition(":")
        silent.connect((host, int(port)))
        silent.sendall(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 200)
        service.ask([1])


def test_ctrl_c_at_any_moment_is_no_fault() -> None:
    """130 while it starts, 0 once it listens for signals itself; never a word about it but that it stops."""
    told = set()
    for moment_s in MOMENTS_S:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert "begins\n" == process.stdout.readline()
        time.sleep(moment_s)
        process.send_signal(signal.SIGINT)
        told.add((STOPS.sub("", process.communicate(timeout=DEADLINE_S)[1]), process.returncode))

    assert {("", 130)} <= told <= {("", 130), ("", 0)}
