"""Real gateways as processes, configured by the files that users copy; of Envoy those in k8s/envoy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "tests" / "e2e" / "gateways"
ENVOY: Final = ROOT / "k8s" / "envoy"
_CLIENTS: Final = "{address: 0.0.0.0, port_value: 10000}"
_ASKED: Final = ("{address: 127.0.0.1, port_value: 8080}", "{address: 127.0.0.1, port_value: 9002}")
_ENGINE: Final = "{{address: 10.0.0.{}, port_value: 8000}}"
DEADLINE_S: Final = 30.0
PAUSE_S: Final = 0.01
_NGINX_SCRIPTS: Final = Path("/usr/lib/nginx/modules/ngx_http_js_module.so")


def _envoy() -> str | None:
    """The program inside its wheel."""
    spec = find_spec("envoy")
    places = [] if spec is None else [Path(place, "_bin", "envoy") for place in spec.submodule_search_locations or ()]
    return next((str(place) for place in places if place.is_file()), None)


def _installed(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def file_of(kind: str) -> Path:
    """The configuration of that name."""
    return (ENVOY if kind in ENVOYS else FOLDER) / kind


def _placed(text: str, listen: int, asked: int, engines: Sequence[int]) -> str:
    """A configuration of Envoy with addresses of this machine in the place of its own."""
    places = {_CLIENTS: listen, **dict.fromkeys(_ASKED, asked)}
    places |= {_ENGINE.format(i): port for i, port in enumerate(engines, 1)}
    for address, port in places.items():
        text = text.replace(address, f"{{address: 127.0.0.1, port_value: {port}}}")
    assert "10.0.0." not in text, "engines are left over"
    return text


class Gateway:
    """One that listens, asks at the port `asked` and sends to the engines at these ports. A context manager.

    `token`: in its environment, for an index that wants one. `text`: in the place of the file of that kind.
    """

    def __init__(self, kind: str, asked: int, engines: Sequence[int], token: str | None = None, text: str = "") -> None:
        self._work = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        text = text or file_of(kind).read_text()
        if kind in ENVOYS:
            text = _placed(text, self.port, asked, engines)
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
        program, config = PROGRAMS[self._kind], str(self._config)
        assert program is not None
        if self._kind in ENVOYS:
            mode = ["--mode", "validate"] if check else ["--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
            return [program, "-c", config, *mode]
        if self._kind == "haproxy.cfg":
            return [program, *(["-c"] if check else ["-db"]), "-f", config]
        return [program, *(["-t"] if check else []), "-p", self._work.name, "-c", config]


ENVOYS: Final = ("lua.yaml", "ext-authz.yaml")
PROGRAMS: Final[dict[str, str | None]] = {
    **dict.fromkeys(ENVOYS, _envoy()),
    "haproxy.cfg": _installed("haproxy"),
    "nginx.conf": _installed("nginx") if _NGINX_SCRIPTS.is_file() else None,
}
"""By configuration, the program that reads it; None where it is not installed."""
