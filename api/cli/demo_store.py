"""The demo's store, kept by a process of its own: started by `api.demo.store`, never by hand.

Starts the server, prints the path of its socket once it answers, and ends it when standard input does. So the server
ends with the demo, however that one ends, and its folder goes with it.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

STARTED_WITHIN_S: Final = 10.0
_PAUSE_S: Final = 0.01


def main(program: str, folder: str) -> int:
    """Keep it until standard input ends. 1 where it does not start, or ends by itself."""
    path = Path(folder) / "socket"
    words = [program, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", "--dir", folder]
    words += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    try:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:  # noqa: S603  ours
            try:
                if not _answers(server, path):
                    return 1
                print(path, flush=True)
                return _until_input_ends(server)
            finally:
                server.kill()  # nothing of it is kept
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(server: subprocess.Popen[bytes], path: Path) -> bool:
    ends_at = time.monotonic() + STARTED_WITHIN_S
    while server.poll() is None and time.monotonic() < ends_at:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(path))
                connection.sendall(b"PING\r\n")
                if connection.recv(16) == b"+PONG\r\n":
                    return True
            except OSError:  # not there yet
                pass
        time.sleep(_PAUSE_S)
    return False


def _until_input_ends(server: subprocess.Popen[bytes]) -> int:
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 64):
            return 0
    return 1
