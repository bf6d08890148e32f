"""Recorded engines on real sockets and a `kvindexer serve` that listens to them, with what they hold as the truth."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from api.demo.fleet import TraceFleet
from api.demo.trace import Trace, Truth, read_truth
from tests.support.redis_servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.demo.trace import Probe

COMMAND: Final = [sys.executable, "-m", "indexer"]
GRPC: Final = "KVINDEXER_SERVER__GRPC_PORT"
ENVIRONMENT: Final = {
    name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_") or name == GRPC
}
PODS: Final = [f"10.0.0.{n}:8000" for n in (1, 2, 3)]
MODEL: Final = "tiny-llama"
DEADLINE_S: Final = 30.0
_PACKAGE: Final = files("api.demo")


class Lock(NamedTuple):
    """A service with TLS that asks for tokens: the settings that make it so, and what opens it."""

    environment: dict[str, str]
    token: str
    ca: str


class ServedFleet:
    """A context manager: the service is killed at its end, if it has not ended before."""

    def __init__(self, *flags: str, lock: Lock | None = None, **environment: str) -> None:
        self.lock = lock
        self.trace = Trace(_PACKAGE / "demo.kvt.gz")
        self.truth: Truth = read_truth(_PACKAGE / "demo.truth.gz")
        self.fleet = TraceFleet(self.trace.header, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
        self.fleet.start()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the service; a pipe nobody reads would stop it
        self.service = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *(f"--source={flag}" for flag in self.fleet.source_flags()), *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**ENVIRONMENT, **environment, **(lock.environment if lock else {})},
        )
        assert self.service.stdout is not None
        self.banner = self.service.stdout.readline()
        found = re.search(r"https?://[0-9.:]+", self.banner)
        assert found, self.banner + self.log()
        self.url = found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.service.send_signal(signal.SIGCONT)
        self.service.kill()
        self.service.communicate()
        self._log.close()
        self.fleet.close()

    def facts(self) -> list[dict[str, Any]]:
        """All sources as the service tells of them."""
        listed: list[dict[str, Any]] = json.loads(self._got("/v1/sources"))["sources"]
        return listed

    def metrics(self) -> str:
        """As they are scraped."""
        return self._got("/metrics").decode()

    def _got(self, path: str) -> bytes:
        asked = urllib.request.Request(self.url + path)  # noqa: S310
        context = None
        if self.lock is not None:
            asked.add_header("authorization", f"Bearer {self.lock.token}")
            context = ssl.create_default_context(cafile=self.lock.ca)
        with urllib.request.urlopen(asked, timeout=DEADLINE_S, context=context) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content

    def play_to_first_probe(self) -> Probe:
        """Publish up to the first question that the engines were asked, and wait until all of it is indexed."""
        for message in islice(self.trace.messages(), self.truth.probes[0].n):
            self.fleet.publish(message)
        sent = [engine.sequence for engine in self.fleet.engines.values()]
        wait_for(
            lambda: sent == [facts["sequence"] for facts in self.facts() if facts["state"] == "live"],
            f"all sources at {sent}",
        )
        return self.truth.probes[0]

    def probed(self, count: int = 3) -> list[tuple[Sequence[int], dict[str, int]]]:
        """Prompts of the first probe, and how many tokens of each the engines said they would reuse, by pod."""
        return [
            (self.truth.prompts[probe.prompt].tokens, dict(zip(PODS, probe.cached, strict=True)))
            for probe in self.truth.probes[:count]
        ]

    def log(self) -> str:
        """What it said on stderr so far."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()
