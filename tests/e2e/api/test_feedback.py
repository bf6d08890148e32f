"""What engines really reused, reported to a running service: the figures, the command, and sources that drift."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATH: Final = "/v1/reports/consistency"
SAMPLES: Final = 5
PODS: Final = ("right", "wrong", "hopeless")


def serving(engines: Sequence[EngineSimulator], **settings: str) -> RunningService:
    """A service that has applied two blocks of each engine."""
    flags = [f"{pod}={engine.endpoint},model=m" for pod, engine in zip(PODS, engines, strict=False)]
    running = RunningService(flags, feedback__drift_min_samples=str(SAMPLES), **settings)
    for pod, engine in zip(PODS, engines, strict=False):
        engine.wait_subscribers(1)
        engine.publish(payload(stored([1, 2], prompt(2))))
        running.wait_for(lambda pod=pod: applied(running, pod, 0), "the first batch")  # type: ignore[misc]
    return running


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """Two engines: one that does as is said of it, and one that reuses nothing."""
    with EngineSimulator() as first, EngineSimulator() as second, serving([first, second]) as running:
        tell(running, "right", 8)
        tell(running, "wrong", 0)
        running.wait_for(lambda: running.sources()["wrong"]["state"] == "suspect", "the doubt")
        yield running


def tell(service: RunningService, pod: str, cached: int, count: int = SAMPLES) -> None:
    """So many lookups, and what came of each, in one request."""
    names = [f"{pod}-{number}" for number in range(count)]
    for name in names:
        service.ask(list(prompt(3)), model="m", request_id=name)
    told = service.call(
        "POST", "/v1/feedback", [{"request_id": name, "pod": pod, "cached_tokens": cached} for name in names]
    )
    assert (202, count, count) == (told.status_code, told.json()["accepted"], told.json()["joined"])


def test_the_report_compares_what_was_said_with_what_was_done(service: RunningService) -> None:
    """By source and model, in JSON."""
    report = service.call("GET", f"{PATH}?window=10m").json()

    told = {row["pod"]: row["windows"]["10m"] for row in report["sources"]}
    right = told["right"]
    assert (1.0, right["real_tokens"]) == (right["exact_share"], right["predicted_tokens"])
    assert right["real_tokens"] >= 40
    assert (0.0, 40, {"unknown": {"samples": 5, "tokens": 40}}) == tuple(
        told["wrong"][name] for name in ("exact_share", "false_hit_tokens", "causes")
    )
    (total,) = report["totals"]
    assert ("m", 40) == (total["model"], total["windows"]["10m"]["false_hit_tokens"])
    assert sum(of["samples"] for of in told.values()) == total["windows"]["10m"]["samples"]
    assert report["answers"]["count"] >= 10


def test_as_a_sheet_and_for_people(service: RunningService) -> None:
    """A line a source and window; a table, and why."""
    lines = list(csv.DictReader(io.StringIO(service.call("GET", f"{PATH}?format=csv&pod=wrong").text)))
    assert [("1m", "40"), ("10m", "40"), ("1h", "40"), ("24h", "40")] == [
        (line["window"], line["causes.unknown.tokens"]) for line in lines
    ]

    def told(*words: str) -> str:
        command = [sys.executable, "-m", "indexer", "report", "consistency", "--url", service.url, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    shown = told()
    assert "100.00%" in shown
    assert "wrong#0: drifted: it kept reusing something else than was claimed of it; unknown 5 (40 tokens)" in shown
    assert '"windows":{"24h"' in told("--json", "--window", "24h", "--pod", "right")
    assert told("--csv").startswith("pod,dp_rank,")


def test_a_source_that_drifts_is_suspect(service: RunningService) -> None:
    """It is told in its history, with why, and in answers; nothing of it is removed."""
    assert "reuse something else" in service.sources()["wrong"]["why"]
    history = service.call("GET", "/v1/sources/wrong/history").json()["items"]
    assert ("doubt", "drift") in [(item["what"], item["cause"]) for item in history]
    answer = service.ask(list(prompt(3)), model="m")
    assert ("degraded", "estimate", 8) == (answer.state, answer["wrong"].bound, answer["wrong"].matched_tokens)
    assert ("live", "exact") == (answer["right"].state, answer["right"].bound)


def test_metrics_count_all_that_was_reported(service: RunningService) -> None:
    """Tokens, and reports by what became of them; the same report again changes nothing."""
    again = {"request_id": "right-0", "pod": "right", "cached_tokens": 8}
    unheard = {"request_id": "never", "pod": "right", "cached_tokens": 8}
    nobody = {"request_id": "r", "pod": "nobody", "cached_tokens": 8}
    told = service.call("POST", "/v1/feedback", [again, unheard, again | {"ok": False}, nobody]).json()
    assert (3, 0, [3]) == (told["accepted"], told["joined"], [item["index"] for item in told["items"]])
    assert {"joined": 0, "unjoined": 1, "repeated": 1, "failed": 1} == told["results"]

    metrics = service.metrics()

    assert (40, 0) == (metrics["kvindexer_false_hit_tokens_total"], metrics["kvindexer_lost_hit_tokens_total"])
    results = {result: metrics[f'kvindexer_feedback_total{{result="{result}"}}'] for result in ("joined", "unjoined")}
    assert results["joined"] >= 10
    assert 1 == results["unjoined"]
    for result in ("repeated", "failed", "refused"):
        assert 1 == metrics[f'kvindexer_feedback_total{{result="{result}"}}']
    assert metrics["kvindexer_answers"] >= 10
    assert metrics["kvindexer_answers_bytes"] > 0
    assert 0 == metrics["kvindexer_answers_forgotten_total"]


def test_what_came_of_a_pick_is_reported_by_the_id_that_it_was_answered_under(service: RunningService) -> None:
    """Gateways that ask in a client's words are told an id, and may have none of their own."""
    picked = service.call("POST", "/v1/pick", {"model": "m", "prompt": list(prompt(3))})
    name = picked.headers["x-kvindexer-request-id"]

    told = service.call("POST", "/v1/feedback", {"request_id": name, "pod": "right", "cached_tokens": 8})

    assert (202, 1) == (told.status_code, told.json()["joined"])


def test_where_it_shall_a_source_that_drifts_is_cleared() -> None:
    """A new generation begins, and the log says on whose word."""
    with EngineSimulator() as engine, serving([engine], feedback__drift_policy="clear") as service:
        before = service.sources()["right"]["generation"]

        tell(service, "right", 0)

        service.wait_for(lambda: service.sources()["right"]["generation"] != before, "the clear")
        assert 0 == service.ask(list(prompt(3)), model="m")["right"].matched_tokens
        assert "cleared by feedback.drift_policy" in service.log()
        history = [item["what"] for item in service.call("GET", "/v1/sources/right/history").json()["items"]]
        assert ["clear", "doubt"] == [what for what in history if what in {"clear", "doubt"}]


def test_where_a_routed_request_went_is_known(service: RunningService) -> None:
    """Feedback by its id alone is joined to the pod that it was reported to have been sent to."""
    service.ask(list(prompt(3)), model="m", request_id="sent")
    routed = service.call("POST", "/v1/routed", {"of": "sent", "pod": "right"})
    assert 202 == routed.status_code

    told = service.call("POST", "/v1/feedback", {"request_id": "sent", "cached_tokens": 8})

    assert (202, 1) == (told.status_code, told.json()["joined"])
