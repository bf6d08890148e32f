"""Where to send requests, asked of a running service beside engines that hold something or nothing."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from api.demo.engine import EngineSimulator
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/v1/recommend"
HOLDER, IDLE, NEW = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
TOKENS = [*prompt(3), 7]
BUSY = {HOLDER: {"running": 9}, IDLE: {"running": 9}, NEW: {"waiting": 0}}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """One engine holds three blocks, one spoke of another prompt, one never spoke."""
    with EngineSimulator() as holds, EngineSimulator() as idle:
        sources = [
            f"{HOLDER}={holds.endpoint},model=m",
            f"engine-2={idle.endpoint},model=m,address={IDLE}",
            f"{NEW}=tcp://127.0.0.1:9,model=m",
        ]
        with RunningService(sources) as running:
            holds.wait_subscribers(1)
            idle.wait_subscribers(1)
            holds.publish(payload(stored([1, 2, 3], prompt(3))))
            idle.publish(payload(stored([9], prompt(1, 9_000))))
            running.wait_for(lambda: applied(running, HOLDER, 0), "its blocks")
            running.wait_for(lambda: applied(running, "engine-2", 0), "the other's")
            yield running


def recommended(service: RunningService, **question: Any) -> dict[str, Any]:  # noqa: ANN401  whatever is asked
    """An answer."""
    answered = service.call("POST", PATH, {"token_ids": TOKENS, "model": "m"} | question)
    assert 200 == answered.status_code, answered.text
    told: dict[str, Any] = answered.json()
    return told


def order(answer: dict[str, Any]) -> list[str]:
    """Its picks' pods."""
    return [each["pod"] for each in answer["picks"]]


def test_prefix_and_load_decide_together(service: RunningService) -> None:
    """Who holds most, until others are so idle that it does not matter."""
    alone = recommended(service, request_id="r-1")
    busy = recommended(service, loads=BUSY)

    assert ("r-1", HOLDER, None) == (alone["request_id"], order(alone)[0], alone["decode"])
    assert "degraded" == alone["state"]
    assert HOLDER == order(busy)[0]
    assert {"source": "request", "age_ms": 0} == busy["load"]
    longer = recommended(service, token_ids=[*TOKENS[:4], *prompt(5, 20_000)], loads=BUSY)
    assert NEW == order(longer)[0]
    for pick in busy["picks"]:
        terms = pick["terms"]
        assert pick["total"] == pytest.approx(terms["prefix"] + terms["load"] + terms["speculative"] - terms["penalty"])


def test_it_scores_as_a_lookup(service: RunningService) -> None:
    """The prefix term is the score."""
    scores = {entry.pod: entry.score for entry in service.ask(TOKENS, model="m").pods}
    told = recommended(service, strategy="prefix")

    assert scores == {each["pod"]: each["terms"]["prefix"] for each in told["picks"]}


def test_pods_are_named_as_the_caller_names_them(service: RunningService) -> None:
    """And only those may be picks; one that nobody knows among them."""
    told = recommended(
        service, pods=["http://10.0.0.2:8000/", "stranger"], loads={"stranger": {"running": 5}, "engine-2": {}}
    )

    assert {"http://10.0.0.2:8000/", "stranger"} == set(order(told))
    assert order(recommended(service, exclude=["http://10.0.0.1:8000"]))[0] != HOLDER


def test_the_herd_spreads_though_nothing_is_known_of_loads(service: RunningService) -> None:
    """All prompts share their first block; nobody gets more than twice its share."""
    first: Counter[str] = Counter()
    for number in range(30, 70):
        tokens = [*prompt(1), *prompt(5, 1_000 * number)]
        first[order(recommended(service, token_ids=tokens, pods=[HOLDER, NEW, "x", "y"]))[0]] += 1

    assert max(first.values()) <= 21


def test_it_is_counted(service: RunningService) -> None:
    """By strategy and by where loads came from, and its time as a lookup's."""
    recommended(service, strategy="load", loads={NEW: {"running": 1}})
    text = service.call("GET", "/metrics").text

    assert 'kvindexer_recommendations_total{loads="request",strategy="load"}' in text
    assert 'kvindexer_lookup_duration_seconds_count{api="recommend",code="200",input="json"}' in text


def test_a_routed_report_may_name_it(service: RunningService) -> None:
    """As it may a lookup: its prompt is remembered."""
    recommended(service, request_id="r-of")
    taken = service.call("POST", "/v1/routed", {"pod": "engine-2", "request_id": "sent-1", "of": "r-of"})

    assert 202 == taken.status_code, taken.text
    told = recommended(service)
    assert 0 < next(each for each in told["picks"] if each["pod"] == "engine-2")["terms"]["speculative"]


def test_over_grpc_it_is_the_same(service: RunningService) -> None:
    """Term by term."""
    told = recommended(service, loads=BUSY, request_id="r-grpc")
    found = re.search(r"grpc://(\S+?:\d+)", service.banner)
    assert found is not None
    question = pb.RecommendRequest(
        question=pb.LookupRequest(token_ids=TOKENS, model="m", request_id="r-grpc"),
        loads={pod: pb.PodLoad(**load) for pod, load in BUSY.items()},
    )
    with grpc.insecure_channel(found[1]) as channel:
        answer = KvIndexerStub(channel).Recommend(question, timeout=20)

    picks = [(each.pod, each.total, each.terms.prefix, each.terms.load) for each in answer.picks]
    assert [
        (each["pod"], each["total"], each["terms"]["prefix"], each["terms"]["load"]) for each in told["picks"]
    ] == picks
    assert told["state"] == answer.state
