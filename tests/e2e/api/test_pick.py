"""`/v1/pick` on a socket: what a script in a gateway sends and reads, and that no client's request fails by it."""

import asyncio
import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from api.access.caller import Caller
from api.access.gates import open_gates
from api.pick.route import METHODS
from api.problems import RequestRefused
from api.rest.app import create_app
from api.rest.limits import RestLimits
from api.server import ServerSettings
from indexer.errors import BadRequestError, FieldIssue, LimitReachedError
from schemas.lookup import LookupQuery, PodEntry, PrefixTokens, TierTokens
from tests.support.callers import bearer, gates
from tests.support.collecting import until
from tests.support.fake_node import FakeNode
from tests.support.serving import request, served_in_thread

BODY_MAX = 4_000
HERE, THERE = "10.0.0.1:8000", "10.0.0.2:8000"
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}).encode()
BELOW = "/v1/pick/v1/chat/completions"


def _entry(pod: str, matched: int) -> PodEntry:
    return PodEntry(
        pod=pod,
        dp_rank=0,
        block_size=16,
        matched_tokens=matched,
        reusable_tokens=matched,
        tiers=TierTokens(gpu=matched),
        prefix=PrefixTokens(),
        score=matched / 64,
        state="live",
        bound="exact",
        lag_ms=1,
        event_age_ms=1,
        generation="1",
        sequence=1,
        reason=None,
    )


@pytest.fixture(scope="module")
def node() -> FakeNode:
    """A double that answers as it is told."""
    return FakeNode()


@pytest.fixture(scope="module")
def client(node: FakeNode) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server with a small limit for bodies."""
    settings_ = ServerSettings(port=0, grpc_port=None, limits=RestLimits(body_bytes=BODY_MAX))
    with served_in_thread(node, settings_) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=20)
        yield connection
        connection.close()


@pytest.fixture(autouse=True)
def held(node: FakeNode) -> None:
    """Two pods hold something, unless a test says otherwise."""
    node.entries = [_entry(THERE, 48), _entry(HERE, 16)]
    node.queries.clear()
    node.observed.clear()
    node.fault = None


def test_the_best_pods_are_told_in_lines_and_headers(client: http.client.HTTPConnection, node: FakeNode) -> None:
    """The node is asked for the prompt of the client's request, with the options of the script."""
    status, headers, body = request(
        client, "POST", "/v1/pick", CHAT, x_kvindexer_pods=f"{HERE}, {THERE},", x_kvindexer_timeout_ms="50"
    )

    assert (200, "text/plain; charset=utf-8") == (status, headers["content-type"])
    assert b"10.0.0.2:8000 0.750000 48 live\n10.0.0.1:8000 0.250000 16 live\n" == body
    assert f"{THERE},{HERE}" == headers["x-gateway-destination-endpoint"]
    assert ("exact", "48") == (headers["x-kvindexer-state"], headers["x-kvindexer-matched-tokens"])
    query = node.queries[-1]
    assert ("m", (HERE, THERE), 50) == (query.model, query.pods, query.timeout_ms)
    assert headers["x-kvindexer-request-id"] == query.request_id
    assert {"api": "pick", "input": "text", "code": 200, "state": "exact"} == node.observed[-1]


@pytest.mark.parametrize("path", ["/v1/pick", BELOW])
def test_nobody_holds_anything(client: http.client.HTTPConnection, node: FakeNode, path: str) -> None:
    """Then the load should decide: no pod is named, and there is no signal, whatever is known of them."""
    node.entries = []
    status, headers, body = request(client, "POST", path, CHAT)

    assert (204 if path == "/v1/pick" else 200, b"") == (status, body)
    assert ("no_signal", "0") == (headers["x-kvindexer-state"], headers["x-kvindexer-matched-tokens"])
    assert headers["x-kvindexer-reason"]
    assert "x-gateway-destination-endpoint" not in headers


_NOT_UNDERSTOOD: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"{", {}),
    (b"\xff\x00", {}),
    (b"[]", {}),
    (b'{"model":"m"}', {}),
    (CHAT[:-9], {}),
    (CHAT, {"content_encoding": "br"}),
    (CHAT, {"content_encoding": "gzip"}),
    (CHAT, {"x_kvindexer_timeout_ms": "soon"}),
    (CHAT, {"x_kvindexer_pods": ","}),
    (CHAT, {"x_kvindexer_pods": "x" * 600}),
    (CHAT[:-1] + b',"cache_salt":"a"}', {"x_kvindexer_cache_salt": "b"}),
]


@pytest.mark.parametrize(("body", "headers"), _NOT_UNDERSTOOD)
def test_what_is_not_understood_is_no_error(
    client: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
) -> None:
    """204 and `no_signal`; the connection goes on."""
    status, told, content = request(client, "POST", "/v1/pick", body, **headers)
    below = request(client, "POST", BELOW, body, **headers)

    assert (204, "no_signal", b"") == (status, told["x-kvindexer-state"], content)
    assert (200, "no_signal", b"") == (below[0], below[1]["x-kvindexer-state"], below[2])
    assert told["x-kvindexer-reason"] == below[1]["x-kvindexer-reason"] != ""
    assert 200 == request(client, "POST", "/v1/pick", CHAT)[0]


@pytest.mark.parametrize("path", ["/v1/pick", BELOW])
@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (BadRequestError("prompt.no_tokenizer", [FieldIssue("prompt", "none")]), "prompt.no_tokenizer"),
        (LimitReachedError("limits.texts_waiting", 1, 1.0, code="texts.too_many"), "texts.too_many"),
        (RequestRefused(http.HTTPStatus.SERVICE_UNAVAILABLE, "odd", "odd"), "odd"),
        (ZeroDivisionError("secret"), "internal"),
    ],
)
def test_what_a_lookup_would_be_refused_for_is_the_reason(
    client: http.client.HTTPConnection, node: FakeNode, path: str, refusal: Exception, reason: str
) -> None:
    """By its code: nobody is named without a word why."""
    node.fault = refusal
    status, headers, _ = request(client, "POST", path, CHAT)

    assert (204 if path == "/v1/pick" else 200, reason) == (status, headers["x-kvindexer-reason"])


def test_a_fault_of_ours_is_no_error_either(
    client: http.client.HTTPConnection, node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, counted as one, and the client's request goes its way."""
    node.fault = ZeroDivisionError("secret")

    assert 204 == request(client, "POST", "/v1/pick", CHAT)[0]
    assert 500 == node.observed[-1]["code"]
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("coding", "packed"), [("gzip", gzip.compress(CHAT, mtime=0)), ("zstd", zstandard.compress(CHAT))]
)
def test_compressed_requests_are_read(client: http.client.HTTPConnection, coding: str, packed: bytes) -> None:
    """As clients may send them to an engine."""
    assert 200 == request(client, "POST", "/v1/pick", packed, content_encoding=coding)[0]


@pytest.mark.parametrize("header", ["x_kvindexer_truncated", "x_envoy_auth_partial_body"])
def test_a_cut_request_is_used_as_far_as_it_goes(
    client: http.client.HTTPConnection, node: FakeNode, header: str
) -> None:
    """Where the gateway says so."""
    body = CHAT[: CHAT.index(b"lo")]

    assert 200 == request(client, "POST", "/v1/pick", body, **{header: "true"})[0]
    assert node.queries[-1].partial


@pytest.mark.parametrize("size", ["whole", "chunked"])
def test_a_body_that_is_too_large_is_told(client: http.client.HTTPConnection, size: str) -> None:
    """413; where every answer but 200 would refuse the client, the header says why there is no destination."""
    big = b'{"prompt":"' + b"x" * BODY_MAX + b'"}'
    sent: bytes | Iterator[bytes] = big if size == "whole" else iter([big[:9], big[9:]])
    client.request("POST", "/v1/pick", sent, encode_chunked=True)
    response = client.getresponse()
    response.read()
    status, headers, _ = request(client, "POST", BELOW, big)

    assert 413 == response.status
    assert (200, "body.too_large") == (status, headers["x-kvindexer-refused"])


def test_only_post_is_taken(client: http.client.HTTPConnection) -> None:
    """But below the path, where the method is the client's."""
    assert [405, 405] == [request(client, method, "/v1/pick")[0] for method in ("GET", "HEAD")]
    assert {200} == {request(client, method, BELOW)[0] for method in METHODS}
    assert {"GET", "TRACE", "PROPFIND", "PURGE"} < set(METHODS)


class _Refusing:
    """Nobody shows the right token."""

    controlled = True

    def caller(self, authorization: bytes | None) -> Caller:
        assert authorization is None
        raise RequestRefused(http.HTTPStatus.UNAUTHORIZED, "token.missing", "show a token")


def test_who_may_not_ask_is_told_and_harms_no_client(node: FakeNode) -> None:
    """401 to a script; to a gateway that would pass it on to its client, a header."""

    async def asked() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(create_app(node, gates=open_gates()._replace(access=_Refusing())))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/v1/pick", content=CHAT), await client.post(BELOW, content=CHAT)

    told, below = asyncio.run(asked())

    assert 401 == told.status_code
    assert (200, "token.missing") == (below.status_code, below.headers["x-kvindexer-refused"])
    assert not node.queries


def test_callers_behind_one_gateway_are_told_apart_by_their_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the path, too: one of them leaves places to the others."""
    node = FakeNode()
    known = gates(tmp_path, ("greedy", ("lookup",), None), ("other", ("lookup",), None))

    async def asked() -> list[str | None]:
        may_go_on, tokenized, waiting = asyncio.Event(), node.tokenized, 0

        async def slowly(query: LookupQuery) -> LookupQuery:
            nonlocal waiting
            waiting += 1
            await may_go_on.wait()
            return await tokenized(query)

        monkeypatch.setattr(node, "tokenized", slowly)
        transport = httpx.ASGITransport(create_app(node, RestLimits(texts_waiting=10), gates=known))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://here") as client,
            asyncio.TaskGroup() as all_,
        ):

            def ask(name: str) -> asyncio.Task[httpx.Response]:
                return all_.create_task(client.post(BELOW, content=CHAT, headers={"authorization": bearer(name)}))

            for _ in range(8):
                ask("greedy")
            await until(lambda: waiting == 8, "its requests")
            refused, other = await ask("greedy"), ask("other")
            await until(lambda: waiting == 9, "the other's")
            may_go_on.set()
            return [each.headers.get("x-kvindexer-refused") for each in (refused, await other)]

    assert ["texts.too_many", None] == asyncio.run(asked())


@given(body=st.binary(max_size=80) | st.text(max_size=40).map(str.encode), cut=st.booleans())
@settings(max_examples=150)
def test_whatever_a_client_sends(client: http.client.HTTPConnection, body: bytes, cut: bool) -> None:
    """It is 200 or 204."""
    status, _, _ = request(client, "POST", "/v1/pick", body, x_kvindexer_truncated=str(cut).lower())

    assert status in {200, 204}
