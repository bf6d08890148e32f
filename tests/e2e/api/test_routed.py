"""Prompts that are said to be routed to real engines, and to one that announces nothing, in one running service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from api.demo.engine import EngineSimulator
from kvindexer_client import Client
from tests.support.core_events import payload, stored
from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 16
PROMPT: Final = list(range(5 * BLOCK))
QUIET: Final = {"pod": "quiet", "model": "old"}


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineSimulator]:
    """It announces what it stores."""
    with EngineSimulator() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def service(engine: EngineSimulator) -> Iterator[RunningService]:
    """It follows that one, and knows of a model whose engines are silent."""
    approximate = json.dumps({"old": {"ttl_s": 600}})
    with RunningService([f"loud={engine.endpoint},model=m"], models__approximate=approximate) as running:
        engine.wait_subscribers()
        say(engine, [1], [9] * BLOCK)
        running.wait_for(lambda: applied(running, "loud", 0), "the first batch")
        yield running


def say(engine: EngineSimulator, hashes: list[int], tokens: list[int]) -> None:
    """Blocks from the beginning are held now."""
    engine.publish(payload(stored(hashes, tokens, block_size=BLOCK)))


def speculative(service: RunningService, tokens: list[int], pod: str, **query: object) -> int:
    """Tokens that are expected of it."""
    return service.ask(tokens, **query)[pod].speculative_tokens


def test_an_event_confirms_what_was_routed(service: RunningService, engine: EngineSimulator) -> None:
    """By the prompt of a lookup that was answered; the event's blocks are held, and nothing more is expected."""
    answer = service.ask([*PROMPT, 7], model="m")
    report = {"request_id": "q-1", "pod": "LOUD", "of": answer.request_id}
    taken = service.call("POST", "/v1/routed", report)
    results = {"expected": 1, "held": 0, "repeated": 0, "not_placed": 0}
    assert (202, {"accepted": 1, "items": [], "results": results}) == (taken.status_code, taken.json())
    assert (80, 0) == (speculative(service, PROMPT, "loud"), service.ask(PROMPT)["loud"].matched_tokens)
    assert 5 == service.metric("kvindexer_speculative_blocks")
    again = service.call("POST", "/v1/routed", report).json()
    assert (1, results | {"expected": 0, "repeated": 1}) == (again["accepted"], again["results"])
    say(engine, [11, 12, 13, 14, 15], PROMPT)
    service.wait_for(lambda: service.metric("kvindexer_speculative_blocks") == 0, "the event to confirm it")

    entry = service.ask([*PROMPT, 7])["loud"]
    assert (80, 0, "exact") == (entry.matched_tokens, entry.speculative_tokens, entry.bound)
    samples = service.metrics()
    assert 1 == samples['kvindexer_receipts_total{result="confirmed"}']
    assert 1 == samples['kvindexer_routed_total{result="repeated"}']


def test_an_engine_that_announces_nothing_is_known_by_what_is_routed_there(service: RunningService) -> None:
    """Registered without an endpoint; its answers are degraded, by estimate, and say why."""
    refused = service.call("POST", "/v1/sources", QUIET | {"model": "m"})
    assert (422, "endpoint.missing") == (refused.status_code, refused.json()["code"])
    assert [201, 200] == [service.call("POST", "/v1/sources", QUIET).status_code for _ in range(2)]
    answer = service.ask(PROMPT, model="old")
    entry = answer["quiet"]
    assert ("degraded", "approximate", "live", "estimate", "approximate", BLOCK, None, 0) == (
        answer.state,
        answer.reason,
        entry.state,
        entry.bound,
        entry.reason,
        entry.block_size,
        entry.sequence,
        entry.speculative_tokens,
    )
    service.call("POST", "/v1/routed", {"pod": "quiet", "token_ids": PROMPT})
    entry = service.ask([*PROMPT, *PROMPT], model="old")["quiet"]
    assert (80, 0, 0.0, "approximate") == (
        entry.speculative_tokens,
        entry.matched_tokens,
        entry.score,
        entry.reason,
    )
    picked = service.call("POST", "/v1/pick", {"model": "old", "prompt": PROMPT})
    assert (200, "quiet 0 0 live\n", "degraded", "0") == (
        picked.status_code,
        picked.text,
        picked.headers["x-kvindexer-state"],
        picked.headers["x-kvindexer-matched-tokens"],
    )
    with Client(service.url) as router:
        ranked = router.rank(["less loaded", "quiet"], PROMPT, model="old", timeout_s=20.0)
    assert (["quiet", "less loaded"], None) == (ranked.pods, ranked.failure)
    assert 200 == service.post("/v1/sources/quiet/clear")
    by_load = service.call("POST", "/v1/pick", {"model": "old", "prompt": PROMPT})
    assert "quiet 0 0 live\n" == by_load.text, "the prompt routed there is gone, the request still counts"
    assert 0 == speculative(service, PROMPT, "quiet", model="old")
    assert "live" == service.ask(PROMPT, model="old")["quiet"].state
    assert 200 == service.call("DELETE", "/v1/sources/quiet").status_code


def test_what_cannot_be_taken_is_told(service: RunningService) -> None:
    """A pod and a lookup that nobody knows: alone by the status, in an array each by itself."""
    nobody, never = {"pod": "nobody", "token_ids": PROMPT}, {"pod": "loud", "of": "never"}
    alone = [service.call("POST", "/v1/routed", each).status_code for each in (nobody, never)]
    assert [404, 422] == alone
    together = service.call("POST", "/v1/routed", [nobody, {"pod": "loud", "token_ids": [1]}, never])
    assert (202, 1) == (together.status_code, together.json()["accepted"])
    assert [(0, "source.unknown"), (2, "of.unknown")] == [
        (each["index"], each["code"]) for each in together.json()["items"]
    ]
