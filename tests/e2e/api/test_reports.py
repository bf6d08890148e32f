"""The staleness report of a running service: JSON, CSV and the command, beside an engine that loses messages."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/v1/reports/staleness"


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """One source that has lost a batch for good, and one that never spoke."""
    with EngineSimulator() as engine:
        sources = [f"10.0.0.1:8000={engine.endpoint},model=m", "quiet=tcp://127.0.0.1:9,model=n"]
        with RunningService(sources) as running:
            engine.wait_subscribers(1)
            engine.publish(payload(stored([1], prompt(1))))
            running.wait_for(lambda: applied(running, "10.0.0.1:8000", 0), "the first batch")
            engine.publish(payload(stored([2], prompt(1, 50))), lost=True)
            engine.publish(payload(stored([3], prompt(1, 60))))
            running.wait_for(lambda: applied(running, "10.0.0.1:8000", 2), "the batch behind the gap")
            assert 200 == running.post("/v1/sources/quiet/clear")
            running.wait_for(lambda: running.call("GET", PATH).json()["seen_s"] >= 2, "two samples")
            yield running


def test_json(service: RunningService) -> None:
    """What happened stands in the row, and how it is in the sum."""
    report = service.call("GET", PATH).json()
    first, quiet = report["sources"]

    assert ("10.0.0.1:8000", "suspect", "estimate", 2) == (
        first["pod"],
        first["state"],
        first["bound"],
        first["sequence"],
    )
    assert {"noticed": 1, "healed": 0, "unhealed": 1, "batches_lost": 1} == first["gaps"]
    assert first["lag_ms"]["1m"]["p50"] is not None
    assert ("quiet", "new", 1) == (quiet["pod"], quiet["state"], quiet["clears"]["operator"])
    assert {"new": 1, "suspect": 1} == report["states"]


def test_csv_and_filters(service: RunningService) -> None:
    """A line a source."""
    answered = service.call("GET", f"{PATH}?format=csv&model=m")
    (line,) = csv.DictReader(io.StringIO(answered.text))

    assert answered.headers["content-type"].startswith("text/csv")
    assert ("10.0.0.1:8000", "1", "2") == (line["pod"], line["gaps.unhealed"], line["tiers.gpu.stored_blocks"])
    assert 422 == service.call("GET", f"{PATH}?format=xls").status_code
    assert [] == service.call("GET", f"{PATH}?state=down").json()["sources"]


def test_a_report_that_is_asked_for_wrongly(service: RunningService) -> None:
    """Two forms at once are refused; of a pod that is not there it is told."""
    asked = [sys.executable, "-m", "indexer", "report", "staleness", "--url", service.url]
    both = subprocess.run([*asked, "--csv", "--json"], check=False, capture_output=True, text=True, timeout=60)
    nobody = subprocess.run([*asked, "--pod", "nope"], check=False, capture_output=True, text=True, timeout=60)

    assert (2, "kvindexer: --csv or --json: not both\n") == (both.returncode, both.stderr)
    assert (0, "kvindexer: no source named nope is in the report\n") == (nobody.returncode, nobody.stderr)


def test_the_command(service: RunningService) -> None:
    """A table for people, all of it for programs."""

    def told(*words: str) -> str:
        command = [sys.executable, "-m", "indexer", "report", "staleness", "--url", service.url, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    shown = told()
    assert "10.0.0.1:8000" in shown
    assert "2 sources: 1 new, 1 suspect" in shown
    assert "10.0.0.1:8000#0: something claimed may be false: a gap" in shown
    assert '"batches_lost":1' in told("--json", "--pod", "10.0.0.1:8000")
    assert told("--csv").startswith("pod,dp_rank,")
