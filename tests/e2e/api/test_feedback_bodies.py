"""`POST /v1/feedback`: bodies and answers over a real connection, with a double in the node's place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.core_events import u32
from tests.support.serving import PACKED, post_report

if TYPE_CHECKING:
    import http.client

    from tests.support.fake_node import FakeNode

post = partial(post_report, "/v1/feedback")


def test_one_report_and_an_array(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """202 with how many were taken and how many could be compared; the node is told each."""
    alone = post(client, {"request_id": "r", "pod": "a", "prompt_tokens": 20, "cached_tokens": 16})
    results = {"joined": 1, "unjoined": 0, "repeated": 0, "failed": 0}
    assert (202, {"accepted": 1, "items": [], "joined": 1, "results": results}) == alone
    several = post(
        client,
        [
            {"pod": "a", "dp_rank": 3, "block_hashes": ["ff", -1], "block_size": 16, "cached_tokens": 0, "model": "m"},
            {"pod": "b", "request_id": "unheard-of", "cached_tokens": 1, "cache_salt": "s", "token_ids": [1, 2]},
            {"pod": "b", "request_id": "r", "ok": False},
        ],
    )
    results = {"joined": 1, "unjoined": 1, "repeated": 0, "failed": 1}
    assert (202, {"accepted": 3, "items": [], "joined": 1, "results": results}) == several

    first, second, third, fourth = node.fed
    assert ("r", "a", None, 20, 16, True) == (
        first.request_id,
        first.pod,
        first.dp_rank,
        first.prompt_tokens,
        first.cached_tokens,
        first.ok,
    )
    assert (3, [255, 2**64 - 1], 16) == (second.dp_rank, list(second.query.block_hashes or ()), second.query.block_size)
    assert ("s", u32([1, 2])) == (third.query.cache_salt, third.query.tokens)
    assert (False, None) == (fourth.ok, fourth.query.tokens)


def test_in_messagepack(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Ids as a bin; the answer is MessagePack, too."""
    report = {"pod": "a", "token_ids": u32([1, 2]), "cached_tokens": 0}
    for body in (report, [report]):
        status, answered = post(client, body, PACKED)
        assert (202, 1, 1, 1) == (status, answered["accepted"], answered["joined"], answered["results"]["joined"])

    assert [u32([1, 2])] * 2 == [report.query.tokens for report in node.fed]


def test_one_bad_report_fails_no_other(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Each that is refused is told by its place, as the problem that it would be alone, and counted."""
    good = {"pod": "a", "request_id": "r", "cached_tokens": 0}
    status, answered = post(client, [good, good | {"cashed_tokens": 1}, good | {"pod": "unknown"}, 5])

    assert (202, 1, 1) == (status, answered["accepted"], answered["joined"])
    assert [(1, 422, "unknown_field"), (2, 404, "source.unknown"), (3, 422, "body.wrong_type")] == [
        (each["index"], each["status"], each["code"]) for each in answered["items"]
    ]
    assert 3 == node.refused_feedback


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"pod": "a", "cached_tokens": 0}, 422, "request_id.missing"),
        ({"pod": "a", "request_id": "r"}, 422, "cached_tokens.missing"),
        ({"pod": "a", "request_id": "r", "cached_tokens": -1}, 422, "cached_tokens.not_allowed"),
        ({"request_id": "r", "cached_tokens": 0}, 404, "source.unknown"),
        ({"token_ids": [1], "cached_tokens": 0}, 422, "pod.missing"),
        ({"pod": "a", "prompt": "secret words", "cached_tokens": 0}, 422, "prompt.not_available"),
        ({"pod": "a", "request_id": "r", "cached_tokens": 0, "block_size": 4}, 422, "block_size.not_allowed"),
        ({"pod": "a", "block_hashes": ["1"], "cached_tokens": 0}, 422, "block_size.missing"),
        ({"pod": "a", "block_hashes": ["1"], "token_ids": [1], "cached_tokens": 0}, 422, "prompt.exactly_one"),
        ({"pod": "a", "token_ids": list(range(9)), "cached_tokens": 0}, 422, "token_ids.too_many"),
        ({"pod": "unknown", "request_id": "r", "cached_tokens": 0}, 404, "source.unknown"),
    ],
)
def test_what_is_wrong_is_named(client: http.client.HTTPConnection, body: object, status: int, code: str) -> None:
    """By field and rule, with nothing of a prompt."""
    told, answered = post(client, body)

    assert (status, code) == (told, answered["code"]), answered
    assert "secret" not in str(answered)
