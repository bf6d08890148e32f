"""A real Prometheus scrapes `kvindexer demo --redis`; every query of the dashboard, and every rule, is asked of it.

Run by observe.sh. Ends with 1 and says what was refused, or had no answer though the demo moves its metrics.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from indexer.clock import SystemClock
from tests.support.demo_process import demo, read_until

ROOT: Final = Path(__file__).parents[2]
OBSERVE: Final = ROOT / "k8s" / "observe"
SCRAPES: Final = 12
"""So many there are before it is asked: a rate over five seconds has something to go by."""
LOOKED_BACK_S: Final = 15
DEADLINE_S: Final = 90.0
CHOSEN: Final = {"$namespace": ".*", "$job": ".*", "$instance": ".*", "$__rate_interval": "5s"}
"""What Grafana puts in where all is chosen."""
SILENT: Final = frozenset(
    {
        "kvindexer_access_reloads_total",
        "kvindexer_discovery_errors_total",
        "kvindexer_discovery_heard_age_seconds",
        "kvindexer_discovery_removals_waiting",
        "kvindexer_discovery_sources",
        "kvindexer_discovery_watching",
        "kvindexer_engine_load",
        "kvindexer_engine_scrapes_total",
        "kvindexer_epp_picks_total",
        "kvindexer_epp_served_total",
        "kvindexer_feedback_total",
        "kvindexer_followed_sources",
        "kvindexer_hints_total",
        "kvindexer_metric_exports_total",
        "kvindexer_receipts_total",
        "kvindexer_recommendations_total",
        "kvindexer_redis_failures_total",
        "kvindexer_routed_total",
        "kvindexer_spans_total",
        "kvindexer_text_duration_seconds_bucket",
        "kvindexer_texts_total",
    }
)
"""Their series begin with what a demo does not do: gateways, discovery, prompts as text, reports, engines' metrics,
collectors."""


class Prometheus:
    """One of its own folder and port, that scrapes that address every second and reads our rules."""

    def __init__(self, folder: Path, target: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(OBSERVE / "rules.yaml")],
            "scrape_configs": [{"job_name": "kvindexer", "static_configs": [{"targets": [target]}]}],
        }
        file = folder / "prometheus.json"  # any JSON is YAML
        file.write_text(json.dumps(settings))
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def close(self) -> None:
        """It is gone afterwards."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        """What it answers: `status`, and `data` or `error`. Raises httpx.TransportError where it does not listen."""
        answer = httpx.get(f"http://127.0.0.1:{self._port}{path}", params=parameters, timeout=10.0)
        found: dict[str, Any] = answer.json()
        return found

    def wait_for_scrapes(self) -> None:
        """Until there are enough. Raises TimeoutError."""
        ends_at = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends_at:
            try:
                got = self.get("/api/v1/query", query="count_over_time(kvindexer_build_info[5m])")["data"]["result"]
            except (httpx.TransportError, ValueError):  # not yet there, or not yet ready
                got = []
            if got and int(got[0]["value"][1]) >= SCRAPES:
                return
            time.sleep(0.5)
        message = f"no {SCRAPES} scrapes within {DEADLINE_S:.0f} s"
        raise TimeoutError(message)


def _asked_by_panels() -> list[tuple[str, str]]:
    """Title and query, as Grafana would send it."""
    panels = json.loads((OBSERVE / "dashboard.json").read_text())["panels"]
    found = []
    for panel in panels:
        for target in panel.get("targets", ()):
            query = target["expr"]
            for variable, value in CHOSEN.items():
                query = query.replace(variable, value)
            found.append((panel["title"], query))
    return found


def _answer(prometheus: Prometheus, query: str) -> dict[str, Any]:
    """Of the newest moments, as a panel has it: the demo kills its service now and then, and starts it again."""
    now = SystemClock().wall_us() / 1e6
    return prometheus.get("/api/v1/query_range", query=query, start=f"{now - LOOKED_BACK_S}", end=f"{now}", step="1")


def _problem(prometheus: Prometheus, query: str) -> str | None:
    """Why a query is no good."""
    answer = _answer(prometheus, query)
    if answer["status"] != "success":
        return f"refused: {answer['error']}"
    moves = not SILENT & set(re.findall(r"kvindexer_\w+", query))
    return "no series" if moves and not answer["data"]["result"] else None


def _choice(prometheus: Prometheus, label: str) -> list[str]:
    """What the dashboard offers there."""
    found: list[str] = prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": "kvindexer_build_info"})["data"]
    return found


def _problems(prometheus: Prometheus) -> list[str]:
    """Of panels, of what they choose from, and of rules."""
    found = [
        f"{title}: {query}: {problem}"
        for title, query in _asked_by_panels()
        if (problem := _problem(prometheus, query)) is not None
    ]
    found += [f"{label}: nothing to choose from" for label in ("job", "instance") if not _choice(prometheus, label)]
    rules = [rule for group in prometheus.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    found += [
        f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"
    ]
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    of_gateways = {name for name in recorded if "epp" in name or "false_hit" in name}
    found += [
        f"{name}: nothing recorded"
        for name in recorded
        if name not in of_gateways and not _answer(prometheus, name)["data"]["result"]
    ]
    firing = [rule["name"] for rule in rules if rule.get("state") == "firing"]
    return [*found, *(f"{name}: fires beside a sound service" for name in firing)] if rules else ["no rules were read"]


def main() -> int:
    """0: all is well."""
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        process = demo(started, "--redis")
        stack.callback(process.communicate)
        stack.callback(process.terminate)
        port = read_until(process, r"curl -s http://127\.0\.0\.1:(\d+)/v1/lookup")[1]
        prometheus = Prometheus(Path(folder), f"127.0.0.1:{port}")
        stack.callback(prometheus.close)
        prometheus.wait_for_scrapes()
        problems = _problems(prometheus)
    for problem in problems:
        print(problem)
    print(f"k8s/observe: {len(_asked_by_panels())} queries of the dashboard asked, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
