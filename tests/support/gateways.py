"""Real gateways as processes, configured by the files that users copy; of Envoy those in k8s/envoy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from loadtest.envoy import SHIPPED, free_port, placed, program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER: Final = Path(__file__).parents[1] / "e2e" / "gateways"
DEADLINE_S: Final = 30.0
PAUSE_S: Final = 0.01
_WAITS: Final = {"timeout: 0.25s": "timeout: 20s", "timeout: 0.5s": "timeout: 20s", ", 250)": ", 20000)"}
"""Of Envoy's for the index, and what is long enough."""
_NGINX_SCRIPTS: Final = Path("/usr/lib/nginx/modules/ngx_http_js_module.so")


def _installed(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def file_of(kind: str) -> Path:
    """The configuration of that name."""
    return (SHIPPED if kind in ENVOYS else FOLDER) / kind


class Gateway:
    """One that listens, asks at the port `asked` and sends to the engines at these ports. A context manager.

    `token`: in its environment, for an index that wants one. `edited`: what a test changes. `patient`: it
    waits for the index as long as a busy machine takes, for tests of what comes of an answer.
    """

    def __init__(
        self,
        kind: str,
        asked: int,
        engines: Sequence[int],
        token: str | None = None,
        *,
        edited: Callable[[str], str] = str,
        patient: bool = False,
    ) -> None:
        self._work = tempfile.TemporaryDirectory()
        self.port = free_port()
        text = edited(file_of(kind).read_text())
        if kind in ENVOYS:
            text = placed(text, self.port, asked, engines)
            for wait in _WAITS if patient else ():
                text = text.replace(wait, _WAITS[wait])
        told = {"LISTEN": self.port, "INDEX": asked, "FOLDER": FOLDER, "WORK": self._work.name}
        told |= {f"ENGINE_{i}": port for i, port in enumerate(engines, 1)}
        for name, value in told.items():
            text = text.replace(f"@{name}@", str(value))
        self._config = Path(self._work.name, kind)
        self._config.write_text(text)
        self._kind = kind
        self._environment = {name: value for name, value in os.environ.items() if name != "KVINDEXER_TOKEN"}
        if token is not None:
            self._environment["KVINDEXER_TOKEN"] = token
        self._log = Path(self._work.name, "log").open("w+", encoding="utf-8")  # noqa: SIM115  closed at the end
        self._process: subprocess.Popen[str] | None = None

    def check(self) -> None:
        """Have it read its configuration and say whether it is one."""
        check = subprocess.run(
            self._command(check=True), capture_output=True, text=True, check=False, timeout=60, env=self._environment
        )
        assert 0 == check.returncode, check.stdout + check.stderr

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command(check=False), stdout=self._log, stderr=self._log, text=True, env=self._environment
        )
        ends_at = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < ends_at, self.log()
                time.sleep(PAUSE_S)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.close()

    def close(self) -> None:
        """Remove its files."""
        self._log.close()
        self._work.cleanup()

    def log(self) -> str:
        """What it said so far."""
        self._log.seek(0)
        return self._log.read()

    def _command(self, *, check: bool) -> list[str]:
        name, config = PROGRAMS[self._kind], str(self._config)
        assert name is not None
        if self._kind in ENVOYS:
            mode = ["--mode", "validate"] if check else ["--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
            return [name, "-c", config, *mode]
        if self._kind == "haproxy.cfg":
            return [name, *(["-c"] if check else ["-db"]), "-f", config]
        return [name, *(["-t"] if check else []), "-p", self._work.name, "-c", config]


ENVOYS: Final = ("lua.yaml", "ext-authz.yaml", "ext-proc.yaml", "ext-proc-duplex.yaml")
PROGRAMS: Final[dict[str, str | None]] = {
    **dict.fromkeys(ENVOYS, program()),
    "haproxy.cfg": _installed("haproxy"),
    "nginx.conf": _installed("nginx") if _NGINX_SCRIPTS.is_file() else None,
}
"""By configuration, the program that reads it; None where it is not installed."""
