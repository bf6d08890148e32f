"""The demo's service from outside: a child process, its address, its end."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

END_MAX_S: Final = 10.0
"""From being told to the end; beyond it is killed."""
LEASE_S: Final = 2.0
"""Who is killed holds on to what it owns for so long: shorter than it takes to start another."""

_START: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from api.cli.demo_service import main; sys.exit(main(*sys.argv[1:5], sys.argv[5:]))"
)
"""Not `-m`: that looks in the working directory first, and many a project has a folder called `api`."""


class ServiceFailed(Exception):
    """The service did not start, or ended by itself. The message is the last thing that it said."""

    def __init__(self, said: str, exit_code: int) -> None:
        super().__init__(said)
        self.exit_code = exit_code


class Ports(NamedTuple):
    """Where a service listens; 0: a free one."""

    rest: int
    rpc: int | None
    """None: no gRPC."""

    def after(self, index: int) -> Ports:
        """Those of the service that is started so many later."""
        return Ports(self.rest and self.rest + index, self.rpc and self.rpc + index)


class ServiceProcess:
    """A service for these sources, started at once; as a context manager it listens on entry, and is gone afterwards.

    `store_url` empty: memory mode. `replica`: what it is called in the store.
    """

    def __init__(self, ports: Ports, sources: Sequence[str], store_url: str = "", replica: str = "demo") -> None:
        self._said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  closed in close
        self._arguments = [store_url, replica, *sources]
        self._ports = ports
        self.url = ""
        """Its address, from entry on."""
        self.rpc = ""
        """The same of gRPC, `host:port`; empty without."""
        self.start()

    def __enter__(self) -> Self:
        """Wait until it accepts connections. Raises `ServiceFailed`; then nothing is left of it."""
        addresses = self._addresses()
        if not addresses:
            self._process.wait()
            try:
                self.check()
            finally:
                self.close()
        self.url = addresses[0]
        self.rpc = next((each.removeprefix("grpc://") for each in addresses if each.startswith("grpc://")), "")
        self._ports = Ports(urlsplit(self.url).port or 0, int(self.rpc.rpartition(":")[2]) if self.rpc else None)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, for the first time or again on the same ports; `listens` tells when it is there."""
        ports = [str(self._ports.rest), "off" if self._ports.rpc is None else str(self._ports.rpc)]
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            [sys.executable, "-c", _START.format(path=sys.path), *ports, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            # Ctrl-C is for us; it is told by the end of its input. Not a session of its own: of a group that loses its
            # parent in the same session the kernel ends those that are paused, and only those need it.
            process_group=0,
        )

    def kill(self) -> None:
        """SIGKILL: it has no time to write anything."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def pause(self) -> None:
        """SIGSTOP: it stands still and does not notice."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on, as if no time had passed."""
        self._process.send_signal(signal.SIGCONT)

    def listens(self) -> bool:
        """Whether the process that was started accepts connections by now. Raises `ServiceFailed` if it has ended."""
        stdout = self._process.stdout
        if stdout is not None and not select.select([stdout], [], [], 0)[0]:
            return False
        if not self._addresses():
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

    def tell_to_end(self) -> None:
        """By the end of its input; it is not waited for."""
        self._close_pipes()
        self.resume()  # else one that is paused would not notice

    def close(self) -> None:
        """Tell it to end and wait until it has."""
        self.tell_to_end()
        try:
            self._process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _addresses(self) -> list[str]:
        return self._process.stdout.readline().split() if self._process.stdout else []

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
