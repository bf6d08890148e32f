"""Why an engine holds no more, asked of a running service beside engines that evict, lose and restart."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, removed, stored
from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "/v1/explain"
TOKENS = prompt(4)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """`evicts` holds two of four blocks and had a third, `loses` one and lost a batch, `quiet` never spoke."""
    with EngineSimulator() as evicts, EngineSimulator() as loses:
        sources = [
            f"10.0.0.1:8000={evicts.endpoint},model=m",
            f"loses={loses.endpoint},model=m",
            "quiet=tcp://127.0.0.1:9,model=m",
        ]
        with RunningService(sources) as running:
            evicts.wait_subscribers(1)
            loses.wait_subscribers(1)
            evicts.publish(payload(stored([1, 2, 3], prompt(3))))
            evicts.publish(payload(removed(3)))
            loses.publish(payload(stored([1], prompt(1))))
            running.wait_for(lambda: applied(running, "loses", 0), "the first batch")
            loses.publish(payload(stored([2], TOKENS[4:8], parent=1)), lost=True)
            loses.publish(payload(stored([9], prompt(1, 500))))
            running.wait_for(lambda: applied(running, "loses", 2), "the batch behind the gap")
            running.wait_for(lambda: applied(running, "10.0.0.1:8000", 1), "the removal")
            yield running


def explained(service: RunningService, **question: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401  a lookup's fields
    """By pod."""
    answered = service.call("POST", PATH, {"token_ids": TOKENS, "model": "m"} | question)
    assert 200 == answered.status_code, answered.text
    return {entry["pod"]: entry for entry in answered.json()["pods"]}


def test_each_engine_has_its_reason(service: RunningService) -> None:
    """What it holds, where that ends, what became of the block, and what to do."""
    pods = explained(service)
    evicts, loses, quiet = pods["10.0.0.1:8000"], pods["loses"], pods["quiet"]
    hashed = service.call("POST", "/v1/hash", {"token_ids": TOKENS, "block_size": 4}).json()["hashes"]

    assert ("evicted", 8, 4) == (evicts["code"], evicts["matched_tokens"], evicts["prompt_blocks"])
    assert {"block": 2, "first_token": 8, "end_token": 12, "hash": hashed[2]} == evicts["missing"]
    assert ("gpu", 0) == (evicts["removed"]["tier"], evicts["removed"]["group"])
    assert evicts["removed"]["ago_ms"] < 60_000
    assert ("gap", 4, None) == (loses["code"], loses["matched_tokens"], loses["removed"])
    assert "1 in 1 gap" in loses["why"]
    assert "replay" in loses["advice"]
    assert ("no_events_yet", None) == (quiet["code"], quiet["missing"])


def test_it_says_the_same_as_a_lookup(service: RunningService) -> None:
    """In its order."""
    answer = service.ask(TOKENS, model="m")
    pods = explained(service)

    assert answer.matched == {pod: entry["matched_tokens"] for pod, entry in pods.items()}
    assert answer.order == list(pods)


def test_one_pod_and_who_is_not_there(service: RunningService) -> None:
    """By any of its names; others are left out."""
    assert ["http://10.0.0.1:8000/"] == list(explained(service, pod="http://10.0.0.1:8000/"))
    assert "pod_unknown" == explained(service, pod="nobody")["nobody"]["code"]
    assert "pod_unknown" == explained(service, pod="loses", dp_rank=3)["loses"]["code"]
    assert "never_stored" == explained(service, token_ids=prompt(1, 70), pod="10.0.0.1:8000")["10.0.0.1:8000"]["code"]


def test_the_command(service: RunningService, tmp_path: Path) -> None:
    """A table and what to do for people, all of it for programs."""
    file = tmp_path / "ids.txt"
    file.write_text(" ".join(map(str, TOKENS)))

    def told(*words: str) -> str:
        command = [sys.executable, "-m", "indexer", "explain", "--tokens", str(file), "--url", service.url, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    shown = told("--model", "m")
    assert "10.0.0.1:8000#0: evicted: block 2 went from gpu" in shown
    assert "  to do: The cache is too small" in shown
    assert "16 prompt tokens, model m" in shown
    only = told("--pod", "loses", "--rank", "0")
    assert "loses#0: gap" in only
    assert "10.0.0.1" not in only
    assert '"code":"evicted"' in told("--json", "--pod", "10.0.0.1:8000")
