"""A running service from outside: the command as a process, its address, and what it says over HTTP."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import msgspec

from schemas.lookup import PodEntry
from tests.support.core import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEADLINE_S: Final = 40.0
"""For anything to happen that must happen; reaching it is the failure."""
PAUSE_S: Final = 0.01
TOLD_S: Final = 2.0
"""By then a process that is stuck has told where, if it ever will."""
_ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")},
    "KVINDEXER_SERVER__GRPC_PORT": "0",
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(Path(__file__).parent / "told_when_stuck"), os.environ.get("PYTHONPATH")])
    ),
}


class RunningService:
    """`kvindexer serve` for these `--source` flags. A context manager: nothing of it is left afterwards."""

    module = "indexer"
    """Which is run."""

    def __init__(self, sources: Iterable[str], *, token: str | None = None, **settings: str) -> None:
        """Start it and wait until it listens. `settings`: as in the environment, `section__key`; `token`: is shown."""
        flags = [f"--source={source}" for source in sources]
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed at the end
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, "serve", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**_ENVIRONMENT, **{f"KVINDEXER_{name.upper()}": value for name, value in settings.items()}},
        )
        assert self._process.stdout is not None
        banner = self._process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", banner)
        if found is None:
            self._process.kill()
            self._process.communicate()
            raise AssertionError(f"the service did not start ({self._process.returncode}): {banner}{self.log()}")
        self.url = found[0]
        self.banner = banner
        """Its first line, with all addresses."""
        self.errors_allowed: tuple[str, ...] = ()
        """Words of which a line of the log that reports an error must hold one; at the end no other may be there."""
        shown = {} if token is None else {"authorization": f"Bearer {token}"}
        self._client = self._open_client(shown)

    def _open_client(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=DEADLINE_S, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._process.returncode is not None and self._log.closed:  # killed
            return
        if self._process.returncode is None:  # a second signal would end it at once
            self._process.terminate()
        said = self._said_to_the_end()
        log = self.log()
        self._log.close()
        assert (0, "") == (self._process.returncode, said), log
        errors = [line for line in log.splitlines() if "ERROR" in line]
        assert all(any(word in line for word in self.errors_allowed) for line in errors), log
        assert "Traceback" not in log, log

    def _said_to_the_end(self) -> str:
        """Once it has ended. Where it does not, the error tells what it waits for."""
        try:
            return self._process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TOLD_S)
            stuck = self.log()
            self.kill()
            raise AssertionError(f"it does not end:\n{stuck}") from None

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._process.kill()
        self._process.communicate(timeout=DEADLINE_S)
        self._client.close()
        self._log.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def wait_ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self._process.wait(DEADLINE_S)

    def send_signal(self, number: int) -> None:
        """To the process."""
        self._process.send_signal(number)

    def log(self) -> str:
        """What it wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def ask(self, token_ids: Iterable[int], **query: Any) -> Answer:  # noqa: ANN401  the request's fields
        """`POST /v1/lookup`."""
        body = msgspec.json.encode({"token_ids": token_ids, **query})
        answered = self._client.post("/v1/lookup", content=body, headers={"content-type": "application/json"})
        assert 200 == answered.status_code, answered.text
        return msgspec.json.decode(answered.content, type=Answer)

    def sources(self) -> dict[str, dict[str, Any]]:
        """`GET /v1/sources`, by pod."""
        return {source["pod"]: source for source in self._client.get("/v1/sources").json()["sources"]}

    def post(self, path: str) -> int:
        """A command without a body; the status it was answered with."""
        return self._client.post(path).status_code

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:  # noqa: ANN401  whatever JSON can say
        """Any request, with a JSON body if one is given."""
        content = None if body is None else msgspec.json.encode(body)
        return self._client.request(method, path, content=content, headers={"content-type": "application/json"})

    def metric(self, line: str) -> float:
        """The value of a sample, named as it stands in `/metrics`."""
        return self.metrics()[line]

    def metrics(self) -> dict[str, float]:
        """All samples, by name and labels as they stand in `/metrics`."""
        lines = self._client.get("/metrics").text.splitlines()
        samples = (each.rpartition(" ") for each in lines if not each.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Return when it holds; fail by its name at the deadline."""
        ends_at = time.monotonic() + DEADLINE_S
        while not look():
            assert time.monotonic() < ends_at, f"waited for {what}; sources: {self.sources()}"
            time.sleep(PAUSE_S)


def applied(service: RunningService, pod: str, sequence: int) -> bool:
    """Whether the pod's newest applied batch is that one."""
    return service.sources()[pod]["sequence"] == sequence


def standing(entry: PodEntry) -> tuple[str, str, int | None]:
    """State, bound and sequence."""
    return entry.state, entry.bound, entry.sequence
