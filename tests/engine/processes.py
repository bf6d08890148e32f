"""Processes of the suite: started in a session of their own, ended whole, their output in a file."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_TAIL_LINES = 40


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface nobody listens on, all different: held together until all are known."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


class Process:
    """One child and all its descendants. Nothing outlives `kill`, also not the workers an engine spawns."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )
        self._command, self._log = command, log

    def assert_running(self) -> None:
        """Fail with the end of the log when the process has ended by itself."""
        code = self._child.poll()
        assert code is None, f"{self._command[0]} ended with {code}; the end of {self._log}:\n{self.log_tail()}"

    def log_tail(self) -> str:
        """The last lines it wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def kill(self) -> None:
        """End the whole session at once, as a crash or an eviction by the kernel would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def terminate(self, deadline_s: float = 20.0) -> int:
        """Ask for an orderly end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: the process did not end; it is killed then.
        """
        self._child.terminate()
        try:
            return self._child.wait(deadline_s)
        finally:
            self.kill()
