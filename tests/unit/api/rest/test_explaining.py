"""Whom an explanation is about: told beside a lookup, in whichever form that comes."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import httpx
import msgspec
import pytest

from api.rest.app import create_app
from api.rest.limits import RestLimits
from schemas.explain import ExplainAnswer
from tests.support.collecting import run_on, until
from tests.support.fake_node import FakeNode

JSON, PACKED, IDS = "application/json", "application/msgpack", "application/octet-stream"
IMAGE = struct.pack("<3I", 1, 2, 3)


def asked(node: FakeNode, body: bytes, content_type: str = JSON, query: str = "") -> httpx.Response:
    """One request to an application in this process."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(node))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"content-type": content_type}
            return await client.post(f"/v1/explain{query}", content=body, headers=headers)

    return asyncio.run(ask())


FORMS = {
    "JSON": (msgspec.json.encode({"token_ids": [1, 2, 3], "pod": "a", "dp_rank": 2}), JSON, ""),
    "MessagePack": (msgspec.msgpack.encode({"pod": "a", "token_ids": IMAGE, "dp_rank": 2}), PACKED, ""),
    "bytes": (IMAGE, IDS, "?model=m&pod=a&dp_rank=2"),
    "JSON, with a query string": (b'{"token_ids": [1, 2, 3]}', JSON, "?dp_rank=2&pod=a"),
    "both, of which the body counts": (b'{"dp_rank":2,"pod":"a","token_ids":[1,2,3]}', JSON, "?dp_rank=3&pod=b"),
    "by another name of nothing": (b'{"token_ids": [1, 2, 3], "pod": "a", "dp_rank": 2, "pods": null}', JSON, ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_pod_and_rank_stand_beside_a_lookup(form: str) -> None:
    """In every form that a lookup has; the rest is the lookup's."""
    node = FakeNode()
    answered = asked(node, *FORMS[form])

    assert 200 == answered.status_code, answered.text
    assert [(("a",), 2)] == node.explained
    assert IMAGE == node.queries[-1].tokens
    decode = msgspec.msgpack.decode if form == "MessagePack" else msgspec.json.decode
    (entry,) = decode(answered.content, type=ExplainAnswer).pods
    assert ("evicted", 1) == (entry.code, 0 if entry.missing is None else entry.missing.block)


def test_without_them_it_is_about_all_candidates() -> None:
    """As a lookup."""
    node = FakeNode()
    assert 200 == asked(node, b'{"token_ids": [1], "pods": ["a", "b"]}').status_code
    assert 200 == asked(node, b'{"token_ids": [1], "pod": null}').status_code
    assert 200 == asked(node, b'{"block_hashes": [1], "block_size": 16, "dp_rank": 1}').status_code

    assert [(("a", "b"), None), (None, None), (None, 1)] == node.explained


@pytest.mark.parametrize(
    ("body", "query", "code", "field"),
    [
        ({"token_ids": [1], "pod": "a", "pods": ["b"]}, "", "pod.not_allowed", "pod"),
        ({"token_ids": [1], "pod": 5}, "", "pod.wrong_type", "pod"),
        ({"token_ids": [1], "pod": ""}, "", "pod.not_allowed", "pod"),
        ({"token_ids": [1], "dp_rank": -1}, "", "dp_rank.not_allowed", "dp_rank"),
        ({"token_ids": [-1], "pod": "a"}, "", "token_ids.not_u32", "token_ids[0]"),
        ({"token_ids": [1], "podd": "a"}, "", "unknown_field", "podd"),
        ({"pod": "a"}, "", "prompt.exactly_one", "token_ids"),
        ({"token_ids": [1]}, "?pod=a&pod=b", "pod.repeated", "pod"),
        ({"token_ids": [1]}, "?nonsense=1", "unknown_field", "nonsense"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], query: str, code: str, field: str) -> None:
    """By field and rule, whoever reads it."""
    answered = asked(FakeNode(), msgspec.json.encode(body), JSON, query)
    problem = answered.json()

    assert 422 == answered.status_code
    assert (code, field) == (problem["code"], problem["errors"][0]["field"])


def test_a_body_that_is_none_is_refused_as_a_lookups() -> None:
    """Though it names a pod."""
    for body, content_type in ((b'{"pod": "a", ', JSON), (b'["pod"]', JSON), (b"\xa3pod", PACKED)):
        assert asked(FakeNode(), body, content_type).status_code in {400, 422}


class _SlowNode(FakeNode):
    """Explains when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def explain(self, *query: Any) -> ExplainAnswer:  # noqa: ANN401  handed on
        self.explained.append((None, None))
        await self.may_go_on.wait()
        return await super().explain(*query)


def test_only_so_many_are_made_at_once() -> None:
    """Beyond, 429, and counted; a caller alone gets a part of them."""

    async def body() -> None:
        node = _SlowNode()
        transport = httpx.ASGITransport(create_app(node, RestLimits(explanations=1)))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(client.post("/v1/explain", json={"token_ids": [1]}))
                await until(lambda: len(node.explained) == 1, "the first")
                refused = await client.post("/v1/explain", json={"token_ids": [1]})
                node.may_go_on.set()
            assert (200, 429) == (first.result().status_code, refused.status_code)
            assert "explain.too_many" == refused.json()["code"]
            assert {"rest.explanations": 1} == node.limits_reached

    run_on("asyncio", body())
