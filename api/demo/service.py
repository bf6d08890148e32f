"""The demo's service from outside: a child process, its address, its end."""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

END_MAX_S: Final = 10.0
"""From being told to the end; beyond it is killed."""


_START: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from api.cli.demo_service import main; sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))"
)
"""Not `-m`: that looks in the working directory first, and many a project has a folder called `api`."""


class ServiceFailed(Exception):
    """The service did not start, or ended by itself. The message is the last thing that it said."""

    def __init__(self, said: str, exit_code: int) -> None:
        super().__init__(said)
        self.exit_code = exit_code


class ServiceProcess:
    """A running service for these sources. Also a context manager; nothing is left of it afterwards.

    `store_url` empty: memory mode.
    """

    def __init__(self, port: int, sources: Sequence[str], store_url: str = "") -> None:
        """Start, and wait until it accepts connections. Raises `ServiceFailed`."""
        self._said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  closed in close
        self._arguments = [store_url, *sources]
        self._port = port
        self.start()
        self.url = self._address()
        if not self.url:
            self._process.wait()
            try:
                self.check()
            finally:
                self.close()
        self._port = urlsplit(self.url).port or port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, for the first time or again on the same port; `listens` tells when it is there."""
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            [sys.executable, "-c", _START.format(path=sys.path), str(self._port), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; it is told by the end of its input
        )

    def kill(self) -> None:
        """SIGKILL: it has no time to write anything."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def listens(self) -> bool:
        """Whether the process that was started accepts connections by now. Raises `ServiceFailed` if it has ended."""
        stdout = self._process.stdout
        if stdout is not None and not select.select([stdout], [], [], 0)[0]:
            return False
        if not self._address():
            self._process.wait()
            self.check()
        return True

    def check(self) -> None:
        """Raise `ServiceFailed` if it has ended."""
        if self._process.poll() is None:
            return
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        code = self._process.returncode
        raise ServiceFailed(lines[-1] if lines else f"the service ended with exit code {code}", code)

    def close(self) -> None:
        """Tell it to end and wait until it has."""
        self._close_pipes()
        try:
            self._process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _address(self) -> str:
        return self._process.stdout.readline().strip() if self._process.stdout else ""

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
