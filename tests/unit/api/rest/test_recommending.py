"""What a request for a recommendation says beside a lookup, in whichever form that comes."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import httpx
import msgspec
import pytest

from api.rest.app import create_app
from api.rest.limits import RestLimits
from schemas.recommend import GivenLoad, GivenWeights, LoadsUsed, PickTerms, RecommendedPod
from tests.support.fake_node import FakeNode

JSON, PACKED, IDS = "application/json", "application/msgpack", "application/octet-stream"
IMAGE = struct.pack("<3I", 1, 2, 3)
SAID: dict[str, Any] = {
    "loads": {"a": {"running": 3, "waiting": 1.5, "kv_usage": 0.4}, "b": {}},
    "strategy": "load",
    "weights": {"load": 2},
    "session": "s-1",
    "exclude": ["c", "d"],
}


def asked(node: FakeNode, body: bytes, content_type: str = JSON, query: str = "") -> httpx.Response:
    """One request to an application in this process."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(node, RestLimits()))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"content-type": content_type}
            return await client.post(f"/v1/recommend{query}", content=body, headers=headers)

    return asyncio.run(ask())


IN_A_URL = (
    "?model=m&strategy=load&session=s-1&exclude=c&exclude=d&weights=%7B%22load%22:2%7D"
    "&loads=%7B%22a%22:%7B%22running%22:3,%22waiting%22:1.5,%22kv_usage%22:0.4%7D,%22b%22:%7B%7D%7D"
)
FORMS = {
    "JSON": (msgspec.json.encode({"token_ids": [1, 2, 3], "model": "m", **SAID}), JSON, ""),
    "MessagePack": (msgspec.msgpack.encode({**SAID, "token_ids": IMAGE, "model": "m"}), PACKED, ""),
    "bytes": (IMAGE, IDS, IN_A_URL),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_stands_beside_a_lookup(form: str) -> None:
    """In every form that a lookup has; the rest is the lookup's."""
    node = FakeNode()
    answered = asked(node, *FORMS[form])

    assert 200 == answered.status_code, answered.text
    (question,) = node.recommended
    assert {"a": GivenLoad(running=3, waiting=1.5, kv_usage=0.4), "b": GivenLoad()} == question.loads
    assert ("load", GivenWeights(load=2), "s-1", ("c", "d")) == (
        question.strategy,
        question.weights,
        question.session,
        question.exclude,
    )
    assert (IMAGE, "m") == (question.query.tokens, question.query.model)
    assert (PACKED if form == "MessagePack" else JSON) == answered.headers["content-type"]


def test_an_answer_in_full() -> None:
    """Every term of every pick, which loads were used, and how old they are."""
    node = FakeNode()
    node.loads = LoadsUsed("metrics", 120)
    node.decode = [RecommendedPod("d", 1, 0.5, PickTerms(0.25, 0.25, 0.0, 0.0))]
    answered = asked(node, msgspec.json.encode({"token_ids": [1], "request_id": "r-1"}))

    assert {
        "request_id": "r-1",
        "state": "exact",
        "picks": [
            {
                "pod": "10.0.0.1:8000",
                "dp_rank": 0,
                "total": 0.25,
                "terms": {"prefix": 0.0, "load": 0.25, "speculative": 0.0, "penalty": 0.0},
            }
        ],
        "load": {"source": "metrics", "age_ms": 120},
        "decode": [
            {
                "pod": "d",
                "dp_rank": 1,
                "total": 0.5,
                "terms": {"prefix": 0.25, "load": 0.25, "speculative": 0.0, "penalty": 0.0},
            }
        ],
    } == answered.json()
    assert {"api": "recommend", "input": "json", "code": 200, "state": "exact"} == node.observed[-1]


def test_a_plain_lookup_is_a_question_too() -> None:
    """Text included; nothing of it is an option of its own."""
    node = FakeNode()

    assert 200 == asked(node, b'{"prompt": "abc", "strategy": null}').status_code
    assert 200 == asked(node, b'{"block_hashes": [1], "block_size": 16}').status_code
    assert [None, None] == [each.strategy for each in node.recommended]
    assert ["text", "hashes"] == [each["input"] for each in node.observed]
    assert None is asked(node, b'{"token_ids": [1]}').json()["decode"]


@pytest.mark.parametrize(
    ("said", "code", "field", "hint"),
    [
        ({"strategy": "best"}, "strategy.not_allowed", "strategy", None),
        ({"loads": {"a": {"running": -1}}}, "loads.running.not_allowed", 'loads["a"].running', None),
        ({"loads": {"a": {"running": "3"}}}, "loads.running.wrong_type", 'loads["a"].running', "write it without"),
        ({"loads": {"a": {"kv_usage": 1.2}}}, "loads.kv_usage.not_allowed", 'loads["a"].kv_usage', None),
        ({"loads": {"a": {"wait": 1}}}, "unknown_field", 'loads["a"].wait', "waiting"),
        ({"loads": [1]}, "loads.wrong_type", "loads", None),
        ({"weights": {"load": -0.1}}, "weights.load.not_allowed", "weights.load", None),
        ({"weights": {"headroom": 1}}, "unknown_field", "weights.headroom", None),
        ({"session": ""}, "session.not_allowed", "session", None),
        ({"exclude": "a"}, "exclude.wrong_type", "exclude", None),
        ({"stratgy": "s"}, "unknown_field", "stratgy", "strategy"),
        ({"token_ids": [-1]}, "token_ids.not_u32", "token_ids[0]", None),
    ],
)
def test_what_is_wrong_is_named(said: dict[str, Any], code: str, field: str, hint: str | None) -> None:
    """By field and rule, whoever reads it."""
    node = FakeNode()
    answered = asked(node, msgspec.json.encode({"token_ids": [1], **said}))
    problem = answered.json()

    assert 422 == answered.status_code
    assert (code, field) == (problem["code"], problem["errors"][0]["field"])
    assert hint is None or hint in problem["errors"][0]["hint"]
    assert 422 == node.observed[-1]["code"]


def test_a_fault_of_ours_is_one() -> None:
    """Counted as it was answered."""
    node = FakeNode()
    node.fault = ZeroDivisionError("secret")
    answered = asked(node, b'{"token_ids": [1]}')

    assert (500, 500) == (answered.status_code, node.observed[-1]["code"])
    assert "secret" not in answered.text


@pytest.mark.parametrize(
    "said",
    [
        b'"loads": {"a": {"running": 1e999}}',
        b'"loads": {"a": {"waiting": -1e999}}',
        b'"weights": {"prefix": 1%b}' % (b"0" * 400),
        b'"exclude": [1e999]',
        b'"session": 1e999',
    ],
)
def test_numbers_beyond_all_are_refused(said: bytes) -> None:
    """Also where nothing else of the question is looked into."""
    answered = asked(FakeNode(), b'{"token_ids": [1], %b}' % said)

    assert 422 == answered.status_code, answered.text
