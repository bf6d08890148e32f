"""What every command pays before it does anything."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

SERVER_ONLY: Final = {"opentelemetry", "google", "grpc", "uvicorn", "starlette", "zmq", "redis"}
"""Packages that a service needs, and its commands do not."""


def test_a_command_does_not_load_what_a_service_needs() -> None:
    """Help is there at once: each of these takes longer than the rest together."""
    code = (
        "import contextlib, sys; from indexer.__main__ import main\n"
        "with contextlib.suppress(SystemExit): sys.argv = ['indexer', '--help']; main()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "usage" in done.stdout.lower()
    loaded = set(done.stderr.translate(str.maketrans("", "", "[]',")).split())
    assert "indexer" in loaded
    assert not SERVER_ONLY & loaded
