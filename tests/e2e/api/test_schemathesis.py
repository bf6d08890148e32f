"""The OpenAPI document against the service: Schemathesis makes requests of it, allowed and not, and judges the answers.

All its checks: no 5xx, no answer that the document does not describe, nothing refused that it allows, nothing taken
that it does not, no method but the listed ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import missing_required_header, negative_data_rejection, positive_data_acceptance

from api.rest.openapi import openapi_document
from api.server import ServerSettings
from tests.support.fake_node import FakeNode
from tests.support.serving import served_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN: Final = "x-schemathesis-unknown-property"
"""A header that HTTP wants to be passed over is no mistake of the caller's."""
BEYOND_SCHEMAS: Final = {
    "head.too_large": "query parameters that are fine one by one may be too long together",
    "token_ids.bad_length": "a body of token bytes has a length divisible by four",
    "cache_salt.not_allowed": "a salt in the header is the one in the body",
    "mm_items.overlap": "items lie side by side",
    "prompt_tokens.not_allowed": "a prompt is no shorter than the blocks that its hashes stand for",
    "pod.not_allowed": "one pod is named, or several",
    "endpoint.not_connectable": "an IPv6 address has eight groups",
    "address.not_allowed": "the same",
    "endpoint.missing": "whether a source needs an endpoint is its model's matter",
    "replay_endpoint.not_allowed": "the same",
}
"""Rules that hold between values: a JSON Schema cannot say them, the descriptions do."""
ONE_BY_ONE: Final = {"/v1/lookup/batch", "/v1/routed", "/v1/feedback"}
"""These refuse items one by one, in an answer that is no refusal."""
DOCUMENT = schemathesis.openapi.from_dict(json.loads(openapi_document("1.2.3")))


@schemathesis.serializer("application/msgpack")
def _packed(_context: object, value: object) -> bytes:
    return msgspec.msgpack.encode(_bounded(value))


def _bounded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """MessagePack has no larger integers."""
    if isinstance(value, dict):
        return {key: _bounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_bounded(each) for each in value]
    return max(-(2**63), min(value, 2**64 - 1)) if isinstance(value, int) and not isinstance(value, bool) else value


@schemathesis.deserializer("application/msgpack")
def _unpacked(_context: object, response: Any) -> object:  # noqa: ANN401 - the library's
    return msgspec.msgpack.decode(response.content)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a service over a double: no engine that a request names is connected to."""
    with served_in_thread(FakeNode(), ServerSettings(port=0, grpc_port=None)) as (host, port):
        yield f"http://{host}:{port}"


@DOCUMENT.exclude(path="/v1/pick").parametrize()
@settings(max_examples=10, derandomize=True)
def test_the_document_is_kept(case: schemathesis.Case, url: str) -> None:
    """By every operation."""
    if UNKNOWN in case.headers:
        return
    case.body = _without_fractions(case.body)
    response = case.call(base_url=url)
    excluded = [negative_data_rejection] if case.path in ONE_BY_ONE else []
    if _code(response) in BEYOND_SCHEMAS:
        excluded = [negative_data_rejection, positive_data_acceptance]
    case.validate_response(response, excluded_checks=excluded)


@DOCUMENT.include(path="/v1/pick").parametrize()
@settings(max_examples=10, derandomize=True)
def test_a_pick_refuses_nothing(case: schemathesis.Case, url: str) -> None:
    """What it does not understand is no mistake either: that is its promise."""
    case.call_and_validate(base_url=url, excluded_checks=[negative_data_rejection, missing_required_header])


def _code(response: Any) -> str | None:  # noqa: ANN401 - the library's
    problem = response.headers.get("content-type", [""])[0] == "application/problem+json"
    return json.loads(response.content)["code"] if problem else None


def _without_fractions(body: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """To a JSON Schema 1.0 is an integer; this service wants 1, and its document says so in words."""
    if isinstance(body, dict):
        return {key: _without_fractions(value) for key, value in body.items()}
    if isinstance(body, list):
        return [_without_fractions(value) for value in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body
