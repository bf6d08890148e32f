"""`kvindexer serve` as a process: where it listens, and its end, in order or not. Does I/O."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final, Self

from loadtest.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

START_MAX_S: Final = 60.0
END_MAX_S: Final = 20.0
LOG_BYTES: Final = 4_000


class Served:
    """Started at once. A context manager: listens on entry, is gone afterwards. `settings`: `section__key`."""

    def __init__(self, sources: Sequence[str], **settings: str) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  closed in _end
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
        chosen = {f"KVINDEXER_{name.upper()}": value for name, value in settings.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "indexer", "serve", "--port", "0", *(f"--source={each}" for each in sources)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=inherited | {"KVINDEXER_SERVER__GRPC_PORT": "0"} | chosen,
        )
        self.url = ""
        self.banner = ""
        """Its first line, with all addresses."""

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_MAX_S)
        self.banner = self._process.stdout.readline() if ready else ""
        found = re.search(r"http://[0-9.:]+", self.banner)
        if found is None:
            self._process.kill()
            self._process.wait(END_MAX_S)
            said = self._said()
            self._end()
            raise AssertionError(f"the service did not start: {said}")
        self.url = found[0]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            self._end()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._end()

    def _said(self) -> str:
        """The end of its log."""
        self._log.seek(0)
        return self._log.read()[-LOG_BYTES:]

    def _end(self) -> None:
        try:
            self._process.communicate(timeout=END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()
