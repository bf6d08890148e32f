"""Several lookups in one request: each by itself, in order, in either encoding, within bounds."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.rest.limits import RestLimits
from api.server import ServerSettings
from schemas.lookup import LookupAnswer, LookupQuery
from schemas.rest import Problem
from tests.support.fake_node import FakeNode
from tests.support.serving import request, served_in_thread

JSON = "application/json"
PACKED = "application/msgpack"
ITEMS_MAX, TOKENS_MAX = 8, 100
PATH = "/v1/lookup/batch"


class SlowNode(FakeNode):
    """Texts and sequences take until as many of them wait as were said to come."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = 1
        self._waiting = 0
        self._all = asyncio.Event()

    async def _together(self) -> None:
        self._waiting += 1
        if self._waiting == self.expected:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 10)

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        await self._together()
        return await super().tokenized(query)

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        await self._together()
        await super().wait_applied(query, timeout_s)


@pytest.fixture
def node() -> SlowNode:
    """A double that records what it is asked."""
    return SlowNode()


@pytest.fixture
def client(node: SlowNode) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server with small limits."""
    limits = RestLimits(batch=ITEMS_MAX, tokens=TOKENS_MAX, body_bytes=20_000)
    with served_in_thread(node, ServerSettings(port=0, grpc_port=None, limits=limits)) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=20)
        yield connection
        connection.close()


def _ask(client: http.client.HTTPConnection, items: list[Any], packed: bool = False, **headers: str) -> list[Any]:
    """The items of an answer, each as an answer or a problem."""
    encode = msgspec.msgpack.encode if packed else msgspec.json.encode
    decode = msgspec.msgpack.decode if packed else msgspec.json.decode
    kind = PACKED if packed else JSON
    status, told, body = request(client, "POST", PATH, encode({"items": items}), content_type=kind, **headers)
    assert (200, kind) == (status, told["content-type"]), body
    return [msgspec.convert(item, Problem if "code" in item else LookupAnswer) for item in decode(body)["items"]]


@pytest.mark.parametrize("packed", [False, True])
def test_each_item_is_answered_or_refused_by_itself(client: http.client.HTTPConnection, packed: bool) -> None:
    """In their order; a problem says which field of the item."""
    items = [
        {"token_ids": [1, 2], "request_id": "mine"},
        {"token_ids": [-1]},
        {"token_ids": [1], "modle": "m"},
        7,
        {"block_hashes": [1, 2], "block_size": 16, "prompt_tokens": 32},
        {},
    ]
    answers = _ask(client, items, packed, x_request_id="b")

    assert ["mine", "b.1", "b.2", "b.3", "b.4", "b.5"] == [answer.request_id for answer in answers]
    assert [2, 32] == [answer.prompt_tokens for answer in answers if isinstance(answer, LookupAnswer)]
    codes = [answer.code for answer in answers if isinstance(answer, Problem)]
    assert "token_ids.not_u32" == codes[0]
    assert ["prompt.exactly_one"] == codes[3:]
    assert {422} == {answer.status for answer in answers if isinstance(answer, Problem)}


def test_no_items_are_no_answers(client: http.client.HTTPConnection) -> None:
    """Which is no mistake."""
    assert [] == _ask(client, [])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "body.not_json"),
        (b'{"items":[', 400, "body.not_json"),
        (b'{"items":[{]}', 400, "body.not_json"),
        (b"{}", 422, "items.missing"),
        (b'{"items":3}', 422, "items.wrong_type"),
        (b'{"items":[],"model":"m"}', 422, "unknown_field"),
        (b'{"items":[' + b"{}," * ITEMS_MAX + b"{}]}", 422, "batch.too_many"),
        (b'{"items":[' + b"1," * 9_000 + b"1]}", 422, "batch.too_many"),
    ],
)
def test_a_body_that_is_no_batch_is_refused(
    client: http.client.HTTPConnection, body: bytes, status: int, code: str
) -> None:
    """As a whole, for there are no items."""
    told, _, content = request(client, "POST", PATH, body, content_type=JSON)
    problem = msgspec.json.decode(content, type=Problem)

    assert (status, code) == (told, problem.code)


def test_prompts_together_have_a_limit(client: http.client.HTTPConnection) -> None:
    """An item beyond it is refused and takes nothing; one that still fits is answered. Texts count, too."""
    ids = {"token_ids": list(range(60))}
    answers = _ask(client, [ids, ids, {"token_ids": list(range(30))}, {"prompt": "x" * 20}, {"prompt": "x" * 10}])

    refused = [i for i, answer in enumerate(answers) if isinstance(answer, Problem)]
    assert [1, 3] == refused
    assert {"batch.too_many_tokens"} == {answers[i].code for i in refused}


def test_an_item_beyond_a_limit_is_counted(client: http.client.HTTPConnection, node: SlowNode) -> None:
    """Under the setting's name, as a lookup alone would be."""
    (answer,) = _ask(client, [{"token_ids": list(range(TOKENS_MAX + 1))}])

    assert ("token_ids.too_many", {"limits.tokens": 1}) == (answer.code, node.limits_reached)


def test_what_has_to_wait_waits_at_once(client: http.client.HTTPConnection, node: SlowNode) -> None:
    """Texts and sequences: one after the other would never end here."""
    node.expected = 4
    items = [{"prompt": "ab"}, {"token_ids": [1], "min_sequence": {"p": 1}}] * 2 + [{"token_ids": [1, 2, 3]}]

    assert [2, 1, 2, 1, 3] == [answer.prompt_tokens for answer in _ask(client, items)]


def test_headers_hold_for_every_item(client: http.client.HTTPConnection, node: SlowNode) -> None:
    """Deadline and salt; a salt of the item's own that differs refuses that item."""
    items = [{"token_ids": [1]}, {"token_ids": [1], "timeout_ms": 5}, {"token_ids": [1], "cache_salt": "other"}]
    answers = _ask(client, items, x_kvindexer_timeout_ms="70", x_kvindexer_cache_salt="salt")

    assert [("salt", 70), ("salt", 5)] == [(query.cache_salt, query.timeout_ms) for query in node.queries]
    assert "cache_salt.not_allowed" == answers[2].code


def test_a_fault_is_one_items_alone(client: http.client.HTTPConnection, node: SlowNode) -> None:
    """And says nothing of its cause."""
    node.fault = ZeroDivisionError("secret")
    answers = _ask(client, [{"token_ids": [1]}])

    assert [(500, "internal")] == [(answer.status, answer.code) for answer in answers]
    assert "secret" not in str(answers)


@given(
    items=st.lists(
        st.one_of(
            st.fixed_dictionaries({"token_ids": st.lists(st.integers(-1, 2**32), max_size=4)}),
            st.fixed_dictionaries({"prompt": st.text(max_size=4)}),
            st.fixed_dictionaries({"token_ids": st.just([1]), "pods": st.lists(st.text(max_size=2), max_size=2)}),
            st.sampled_from([None, [], {}, {"x": 1}, "a"]),
        ),
        max_size=ITEMS_MAX,
    ),
    packed=st.booleans(),
)
@settings(max_examples=60)
def test_an_item_is_answered_as_it_is_alone(
    one_server: http.client.HTTPConnection, items: list[Any], packed: bool
) -> None:
    """Whatever stands beside it."""
    encode, kind = (msgspec.msgpack.encode, PACKED) if packed else (msgspec.json.encode, JSON)
    alone = []
    for item in items:
        status, _, body = request(one_server, "POST", "/v1/lookup", encode(item), content_type=kind)
        told = json.loads(body) if status != 200 or not packed else msgspec.msgpack.decode(body)
        alone.append((status, told.get("code"), told.get("prompt_tokens"), told.get("errors")))
    together = [
        (200, None, answer.prompt_tokens, None)
        if isinstance(answer, LookupAnswer)
        else (answer.status, answer.code, None, msgspec.to_builtins(answer.errors))
        for answer in _ask(one_server, items, packed)
    ]

    assert alone == together


@pytest.fixture(scope="module")
def one_server() -> Iterator[http.client.HTTPConnection]:
    """A connection that lasts for all examples."""
    limits = RestLimits(batch=ITEMS_MAX, tokens=TOKENS_MAX)
    with served_in_thread(FakeNode(), ServerSettings(port=0, grpc_port=None, limits=limits)) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=20)
        yield connection
        connection.close()
