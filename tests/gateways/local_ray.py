"""A local Ray with Serve, as a process of its own Python: told what to do, and ended whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.engine.processes import free_ports
from tests.support.demo_process import descendants, gone, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
ROUTER = HERE.parents[1] / "kvindexer_ray.py"
END_S = 90.0
_FOR_RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its parts give each other up within half a minute, which is too soon on a busy machine.
    "RAY_raylet_start_wait_time_s": "200",
    "RAY_agent_register_timeout_ms": "200000",
    "RAY_worker_register_timeout_seconds": "200",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "100",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "100",
}
_COMPLAINTS = ("Traceback", "Task was destroyed", "Unexpected error", "never retrieved")


class LocalRay:
    """A context manager; its folder holds nothing but our one file and the README's lines, with that address."""

    def __init__(self, python: str, folder: Path, url: str, pods: Sequence[str]) -> None:
        shutil.copy(ROUTER, folder)
        shown = (HERE / "from_ray.py").read_text()
        (folder / "engines.py").write_text(shown.replace("http://127.0.0.1:8080", url).replace('"llama"', '"m"'))
        (self.http_port,) = free_ports(1)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(HERE / "serving.py"), json.dumps(list(pods)), str(self.http_port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**os.environ, **_FOR_RAY, "PYTHONPATH": str(folder)},
            )

    def __enter__(self) -> Self:
        try:
            self._answer()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """What was started has ended by itself, and complained of nothing."""
        left, said = self._end(), self.said()
        assert (0, []) == (self._process.returncode, left), said
        assert [] == [word for word in _COMPLAINTS if word in said], said

    def _end(self) -> list[int]:
        """Nothing of it is there afterwards. What had to be killed."""
        started = descendants(self._process.pid)
        try:
            self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()
            self._process.wait()
            left = [pid for pid in started if not gone(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                wait_until_gone(pid)
        return left

    def do(self, do: str, app: str, **command: Any) -> Any:  # noqa: ANN401  as serving.py says
        """One command, and its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "app": app, **command}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")

    def _answer(self) -> Any:  # noqa: ANN401  as serving.py says
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Ray ended: {self.said()[-8000:]}"
        return json.loads(line)
