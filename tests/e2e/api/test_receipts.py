"""`POST /v1/routed`: bodies and answers over a real connection, with a double in the node's place."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from api.rest.limits import RestLimits
from api.rest.report_bodies import reports_in
from api.server import ServerSettings
from indexer.errors import BadRequestError
from schemas.receipts import REPORTS_MAX
from tests.support.core_events import u32
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, request, served_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.rest.media import BodyForm

Address = tuple[str, int]
JSON, PACKED = "application/json", "application/msgpack"


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FakeNode, Address]]:
    """A server of small limits, for all tests."""
    node = FakeNode()
    with served_in_thread(node, ServerSettings(port=0, limits=RestLimits(tokens=8))) as address:
        yield node, address


@pytest.fixture
def node(shared: tuple[FakeNode, Address]) -> FakeNode:
    """The double behind it, which was told nothing yet."""
    node, _ = shared
    node.routed.clear()
    node.routed_counts.clear()
    node.fault = None
    return node


@pytest.fixture
def client(node: FakeNode, shared: tuple[FakeNode, Address]) -> Iterator[http.client.HTTPConnection]:
    """A connection."""
    del node
    connection = http.client.HTTPConnection(*shared[1], timeout=DEADLINE_S)
    yield connection
    connection.close()


def post(client: http.client.HTTPConnection, body: Any, media_type: str = JSON) -> tuple[int, Any]:  # noqa: ANN401  whatever JSON can say
    """Status and answer."""
    encode = msgspec.json.encode if media_type == JSON else msgspec.msgpack.encode
    status, headers, content = request(client, "POST", "/v1/routed", encode(body), content_type=media_type)
    packed = headers["content-type"] == PACKED
    return status, msgspec.msgpack.decode(content) if packed else msgspec.json.decode(content)


def test_one_report_and_an_array(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """202 with how many were taken; the node is told each, with the tenant and the prompt as a lookup has them."""
    alone = post(client, {"request_id": "r", "pod": "a", "token_ids": [1, 2], "model": "m", "cache_salt": "s"})
    results = {"expected": 1, "held": 0, "repeated": 0, "not_placed": 0}
    assert (202, {"accepted": 1, "items": [], "results": results}) == alone
    several = post(
        client,
        [
            {"pod": "a", "dp_rank": 3, "block_hashes": ["ff", -1], "block_size": 16},
            {"pod": "b", "of": "r-1"},
            {"pod": "full", "of": "r-1"},
        ],
    )
    assert (202, {"accepted": 3, "items": [], "results": results | {"expected": 2, "held": 1}}) == several

    first, second, third, _ = node.routed
    assert ("r", "a", None, "m", "s", u32([1, 2])) == (
        first.request_id,
        first.pod,
        first.dp_rank,
        first.query.model,
        first.query.cache_salt,
        first.query.tokens,
    )
    assert (3, [255, 2**64 - 1], 16) == (second.dp_rank, list(second.query.block_hashes or ()), second.query.block_size)
    assert ("b", "r-1", None) == (third.pod, third.of, third.query.tokens)


def test_in_messagepack(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Ids and hashes as bins, alone and in an array; the answer is MessagePack, too."""
    ids = {"pod": "a", "token_ids": u32([1, 2])}
    hashes = {"pod": "a", "block_hashes": (255).to_bytes(8, "little"), "block_size": 4}
    for body in (ids, [ids, hashes]):
        status, answered = post(client, body, PACKED)
        assert (202, []) == (status, answered["items"])

    assert [u32([1, 2]), u32([1, 2]), None] == [report.query.tokens for report in node.routed]


def test_one_bad_report_fails_no_other(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Each that is refused is told by its place, as the problem that it would be alone."""
    reports = [{"pod": "a", "of": "r"}, {"pod": "a", "dp_rang": 1, "of": "r"}, {"pod": "a"}, 5]
    status, answered = post(client, reports)
    refused = answered["items"]

    assert (202, 1, 1) == (status, answered["accepted"], len(node.routed))
    assert [(1, 422, "unknown_field"), (2, 422, "prompt.exactly_one"), (3, 422, "body.wrong_type")] == [
        (each["index"], each["status"], each["code"]) for each in refused
    ]
    assert "did you mean dp_rank?" in refused[0]["errors"][0]["hint"]
    assert {"refused": 3} == node.routed_counts


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"pod": "a", "of": "r", "podd": 1}, 422, "unknown_field"),
        ({"pod": "a", "prompt": "secret words"}, 422, "prompt.not_available"),
        ({"pod": "a"}, 422, "prompt.exactly_one"),
        ({"of": "r"}, 422, "pod.missing"),
        ({"pod": "a", "of": "r", "lora_name": "x"}, 422, "lora_name.not_allowed"),
        ({"pod": "a", "token_ids": [1], "block_size": 4}, 422, "block_size.not_allowed"),
        ({"pod": "a", "block_hashes": ["1"]}, 422, "block_size.missing"),
        ({"pod": "a", "token_ids": [-1]}, 422, "token_ids.not_u32"),
        ({"pod": "a", "token_ids": list(range(9))}, 422, "token_ids.too_many"),
        ([{"pod": "a", "of": "r"}] * (REPORTS_MAX + 1), 422, "reports.too_many"),
        (7, 422, "body.wrong_type"),
    ],
)
def test_what_is_wrong_is_named(
    client: http.client.HTTPConnection, node: FakeNode, body: object, status: int, code: str
) -> None:
    """By field and rule, with nothing of a prompt."""
    told, answered = post(client, body)

    assert (status, code) == (told, answered["code"]), answered
    assert "secret" not in str(answered)
    assert [] == node.routed


def test_the_prompts_of_an_array_share_the_bound(client: http.client.HTTPConnection) -> None:
    """As those of a batch do."""
    _, answered = post(client, [{"pod": "a", "token_ids": [1, 2, 3, 4, 5]}] * 2)

    assert (1, "token_ids.too_many") == (answered["accepted"], answered["items"][0]["code"])


def test_what_is_no_json_is_told_as_such(client: http.client.HTTPConnection) -> None:
    """400, as everywhere."""
    status, _, content = request(client, "POST", "/v1/routed", b"[{]", content_type=JSON)

    assert (400, "body.not_json") == (status, msgspec.json.decode(content)["code"])


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_body_of_millions_of_reports_costs_nothing(form: BodyForm) -> None:
    """Its reading ends at the first one too many."""
    encode = msgspec.json.encode if form == "json" else msgspec.msgpack.encode
    with pytest.raises(BadRequestError, match="at most 1000"):
        reports_in(form, encode([{}] * (REPORTS_MAX + 1)))
    assert REPORTS_MAX == len(reports_in(form, encode([{}] * REPORTS_MAX)).bodies)


def test_a_fault_of_ours_is_that_reports_alone(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """And says nothing."""
    node.fault = RuntimeError("boom")
    status, answered = post(client, [{"pod": "a", "of": "r"}])

    assert (202, 0, 500) == (status, answered["accepted"], answered["items"][0]["status"])
    assert "boom" not in str(answered)
