"""`POST /v1/routed`: bodies and answers over a real connection, with a double in the node's place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from api.rest.lookup_request import HASH_BYTES, QUERY_HASHES_MAX
from api.rest.report_bodies import reports_in
from indexer.errors import BadRequestError
from schemas.receipts import REPORTS_MAX
from tests.support.core_events import u32
from tests.support.serving import JSON, PACKED, post_report, request

if TYPE_CHECKING:
    import http.client

    from api.rest.media import BodyForm
    from tests.support.fake_node import FakeNode

post = partial(post_report, "/v1/routed")


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


def test_hashes_as_a_bin_have_the_bound_of_a_list(client: http.client.HTTPConnection) -> None:
    """One hash too many is refused."""
    report = {"pod": "a", "block_hashes": bytes(HASH_BYTES * (QUERY_HASHES_MAX + 1)), "block_size": 4}
    status, answered = post(client, report, PACKED)

    assert (422, "block_hashes.too_many") == (status, answered["code"])


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
    assert 3 == node.refused_routed


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
