"""A sidecar from outside: `serve --roles lookup` on a Unix socket alone, asked by the client that routers use.

And the network namespace that a gateway without any network lives in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final, Self

from kvindexer_client import Client, KvindexerError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DEADLINE_S: Final = 40.0
"""For anything to happen that must happen; reaching it is the failure."""
PAUSE_S: Final = 0.01
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
_WAYS: Final = (("unshare", "--net"), ("unshare", "--net", "--map-root-user"))


class Sidecar:
    """A context manager: it ends in order, without an error in its log. `settings`: as in the environment.

    Started at once; `wait_listening` returns its first line. `python`: options of the interpreter.
    """

    def __init__(self, path: Path, url: str, *flags: str, python: Sequence[str] = (), **settings: str) -> None:
        self.path = path
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed at the end
        words = ["serve", "--roles", "lookup", "--uds", str(path), "--port", "off", "--grpc-port", "off", *flags]
        self._process = subprocess.Popen(
            [sys.executable, *python, "-m", "indexer", *words, "--redis-url", url],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**_ENVIRONMENT, **{f"KVINDEXER_{name.upper()}": value for name, value in settings.items()}},
        )
        self.client = Client(f"unix:{path}", timeout_s=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._process.terminate()
        said, _ = self._process.communicate(timeout=DEADLINE_S)
        log = self.log()
        self._log.close()
        assert (0, "") == (self._process.returncode, said), log
        assert "ERROR" not in log, log
        assert "Traceback" not in log, log

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def wait_listening(self) -> str:
        """Until callers are let in; what it says then."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() or self.log()

    def log(self) -> str:
        """What it wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def readiness(self) -> dict[str, Any]:
        """`/readyz`, ready or not."""
        try:
            told: dict[str, Any] = self.client.request("GET", "/readyz").json()
        except Refused as refused:
            return {"ready": False, "why": refused.body}
        return told

    def metrics(self) -> bytes:
        """As they are scraped."""
        return self.client.request("GET", "/metrics").content

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Return when it holds; fail by its name at the deadline."""
        ends_at = time.monotonic() + DEADLINE_S
        while not look():
            assert time.monotonic() < ends_at, f"waited for {what}; {self._sources()}; {self.log()}"
            time.sleep(PAUSE_S)

    def _sources(self) -> object:
        try:
            return self.client.sources()
        except KvindexerError as error:
            return error


def without_network() -> Sequence[str] | None:
    """What to put before a command, so that it has no network; None where this machine does not allow it."""
    for way in _WAYS:
        try:
            done = subprocess.run([*way, "true"], capture_output=True, check=False, timeout=DEADLINE_S)
        except OSError:
            return None
        if done.returncode == 0:
            return way
    return None
