"""`Process` on a socket, with a double of the node: what is said when, in each mode of sending bodies."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import grpc
import pytest

from api.epp.heard import SUBSET_MAX
from api.epp.limits import EppLimits
from schemas.feedback import FeedbackReport, FeedbackResult
from schemas.lookup import LookupQuery, PodEntry, PrefixTokens, TierTokens
from schemas.receipts import RoutedReport, RoutedResult
from schemas.recommend import LoadsUsed, PickTerms, RecommendedPod
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders
from tests.support.ext_proc import (
    BUFFERED,
    DESTINATION,
    DUPLEX,
    NONE,
    PARTIAL,
    SERVED,
    STREAMED,
    Stream,
    destination_of,
    gateway,
    handed_back,
    piece_of,
)
from tests.support.fake_node import FakeNode

if TYPE_CHECKING:
    from collections.abc import Callable

HERE, THERE, V6 = "10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::1]:8000"
BODY: Final = json.dumps({"model": "m", "prompt": [1, 2, 3, 4], "max_tokens": 1}).encode()


def _entry(pod: str, matched: int, state: str = "live", reason: str | None = None) -> PodEntry:
    return PodEntry(
        pod=pod,
        dp_rank=0,
        block_size=16,
        matched_tokens=matched,
        reusable_tokens=matched,
        tiers=TierTokens(gpu=matched),
        prefix=PrefixTokens(),
        score=matched / 64,
        state=state,
        bound="exact",
        lag_ms=1,
        event_age_ms=1,
        generation="1",
        sequence=1,
        reason=reason,
    )


def _fleet() -> FakeNode:
    """A node that knows four pods, one of them by a name alone."""
    node = FakeNode()
    node.entries = [_entry("vllm-1", 48), _entry("nowhere", 40), _entry(HERE, 16), _entry(THERE, 0), _entry("x:1", 0)]
    node.addresses = {"vllm-1": V6}
    return node


PICKED = [V6, HERE, THERE]
KEPT_OPEN: Final = 64
"""Streams, of a megabyte each."""


async def test_a_body_that_is_streamed_both_ways_is_picked_for_when_it_is_whole() -> None:
    """Nothing is said before; then headers with the endpoints, the body as it came, and the response passes."""
    node = _fleet()
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers(x_request_id="r-1", x_gateway_destination_endpoint="1.2.3.4:5")
        await stream.body(BODY[:10], b"", BODY[10:], b"")  # the end comes behind all of it
        assert PICKED == destination_of(await stream.said())
        assert BODY == b"".join(await handed_back(stream))
        await stream.answered()
        answer = await stream.said()
        assert answer is not None
        assert "response_headers" == answer.WhichOneof("response")
        for part, end in ((b"data: 1\n\n", False), (b"", False), (b"data: [DONE]\n\n", True)):
            await stream.answered_body(part, end=end)
            if part:
                assert (part, end) == piece_of(await stream.said())
        await stream.ended()

    (query,) = node.queries
    assert ("m", "r-1", b"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0") == (query.model, query.request_id, query.tokens)
    assert {"prefix": 1} == node.picks
    assert [{"api": "epp", "input": "json", "code": 200, "state": "exact"}] == node.observed


async def test_trailers_come_back_behind_the_body() -> None:
    """They end the body: headers, body, trailers."""
    async with gateway(_fleet()) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(BODY, end=False)
        await stream.trailers()
        assert PICKED == destination_of(await stream.said())
        assert (BODY, False) == piece_of(await stream.said())
        answer = await stream.said()
        assert answer is not None
        assert "request_trailers" == answer.WhichOneof("response")
        await stream.ended()


async def test_a_large_body_is_handed_back_in_pieces_that_gateways_take() -> None:
    """Of at most 62,000 bytes; only the last says so."""
    body = json.dumps({"prompt": list(range(50_000))}).encode()
    async with gateway(_fleet()) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(*(body[i : i + 65_000] for i in range(0, len(body), 65_000)))
        assert PICKED == destination_of(await stream.said())
        parts = await handed_back(stream)
    assert body == b"".join(parts)
    assert {62_000} == {*map(len, parts[:-1])}


@pytest.mark.parametrize("mode", [BUFFERED, PARTIAL])
async def test_a_buffered_body_is_answered_with_the_destination(mode: int) -> None:
    """The headers pass, without a destination from outside; body and metadata stay as they are."""
    async with gateway(_fleet()) as channel:
        stream = Stream(channel, mode, NONE)
        await stream.headers()
        assert None is destination_of(await stream.said())
        await stream.body(BODY)
        answer = await stream.said()
        assert answer is not None
        assert "request_body" == answer.WhichOneof("response")
        assert PICKED == destination_of(answer)
        assert not answer.request_body.response.HasField("body_mutation")
        await stream.answered()
        await stream.said()
        await stream.ended()


@pytest.mark.parametrize("mode", [NONE, STREAMED, BUFFERED, DUPLEX, None])
async def test_a_request_without_a_body_is_picked_for_at_once(mode: int | None) -> None:
    """By load alone: a gateway that waits for our word has no more to tell."""
    node = _fleet()
    async with gateway(node) as channel:
        stream = Stream(channel, mode, NONE)
        await stream.headers(end=True)
        assert destination_of(await stream.said())
        await stream.ended()
    assert b"" == node.queries[0].tokens


@pytest.mark.parametrize("mode", [NONE, STREAMED])
async def test_bodies_that_come_behind_our_answer_decide_nothing(mode: int) -> None:
    """The headers are answered at once; parts of a streamed body pass."""
    async with gateway(_fleet()) as channel:
        stream = Stream(channel, mode, STREAMED)
        await stream.headers()
        assert destination_of(await stream.said())
        if mode == STREAMED:
            await stream.body(BODY)
            answer = await stream.said()
            assert answer is not None
            assert not answer.request_body.response.ListFields()
        await stream.answered_body(b"data: 1\n\n")
        answer = await stream.said()
        assert answer is not None
        assert not answer.response_body.response.ListFields()
        await stream.ended()


async def test_a_gateway_that_does_not_say_how_it_sends_streams_both_ways() -> None:
    """As the inference extension asks for."""
    async with gateway(_fleet()) as channel:
        stream = Stream(channel, None)
        await stream.headers()
        await stream.body(BODY)
        assert PICKED == destination_of(await stream.said())
        assert [BODY] == await handed_back(stream)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", b""),
        ("/v1/completions", b"\xff{"),
        ("/v1/completions", b'{"prompt": 5}'),
        ("/v1/embeddings", b'{"model": "m", "prompt": [1, 2, 3]}'),
        ("/v1/models", b"x"),
    ],
)
async def test_what_is_not_understood_is_picked_for_by_load(path: str, body: bytes) -> None:
    """And comes back as it was. The model counts where it is told."""
    node = _fleet()
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers(**{":path": path})
        await stream.body(body)
        assert destination_of(await stream.said())
        assert body == b"".join(await handed_back(stream))
        await stream.ended()
    assert b"" == node.queries[0].tokens
    assert ("m" if b"model" in body else None) == node.queries[0].model
    assert node.queries[0].overdue
    assert {"load": 1} == node.picks


async def test_a_fault_of_ours_costs_the_destination_and_nothing_else() -> None:
    """The client's request goes on, and the header from outside is gone."""
    node = _fleet()
    node.fault = ZeroDivisionError("ours")
    async with gateway(node) as channel:
        for mode in (DUPLEX, BUFFERED):
            stream = Stream(channel, mode, NONE)
            await stream.headers()
            if mode == BUFFERED:
                await stream.said()
            await stream.body(BODY)
            assert None is destination_of(await stream.said())
            if mode == DUPLEX:
                assert [BODY] == await handed_back(stream)
            await stream.ended()
    assert {"fault": 2} == node.picks
    assert {500} == {each["code"] for each in node.observed}


class FaultyNode(FakeNode):
    """Whatever is told of requests is a fault."""

    async def report_routed(self, report: RoutedReport) -> RoutedResult:
        raise ZeroDivisionError(report)

    def take_feedback(self, report: FeedbackReport) -> FeedbackResult:
        raise ZeroDivisionError(report)


async def test_a_fault_in_what_is_reported_costs_nothing() -> None:
    """Neither the response that passes, nor the load that ends."""
    node = FaultyNode()
    async with gateway(node, EppLimits(reads_usage=True)) as channel:
        stream = Stream(channel)
        await stream.headers(x_request_id="r")
        await stream.body(BODY)
        assert destination_of(await stream.said())
        await handed_back(stream)
        await stream.answered(503, metadata={"envoy.lb": {SERVED: "10.0.0.7:1"}})
        await stream.said()
        await stream.answered_body(b"gone", end=True)
        assert (b"gone", True) == piece_of(await stream.said())
        await stream.ended()
    assert [("r", None)] == node.endings


async def _refused(node: FakeNode) -> tuple[int, dict[str, str], bytes]:
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(BODY)
        answer = await stream.said()
        assert answer is not None
        told = answer.immediate_response
        await stream.ended()
    return told.status.code, {h.header.key: h.header.raw_value.decode() for h in told.headers.set_headers}, told.body


async def test_where_no_endpoint_is_ready_the_client_is_told() -> None:
    """503, in the form that OpenAI's clients read."""
    node = FakeNode()
    node.entries = [_entry(HERE, 0, "live", "cordoned"), _entry("nowhere", 0, "live", "not_ready")]
    status, headers, body = await _refused(node)
    assert (503, "no_endpoint", "application/json") == (status, headers["x-kvindexer-reason"], headers["content-type"])
    assert 503 == json.loads(body)["error"]["code"]
    assert {"no_endpoint": 1} == node.picks


@pytest.mark.parametrize(("busy", "source", "status"), [(9, "metrics", 429), (8, "metrics", 0), (9, "none", 0)])
async def test_where_all_are_too_busy_the_client_is_told_if_that_is_set(
    busy: float, source: Literal["metrics", "none"], status: int
) -> None:
    """429, and when to come again; where no loads are known nobody is refused."""
    node = _fleet()
    node.loads, node.requests = LoadsUsed(source, 0), {"vllm-1": busy}
    async with gateway(node, EppLimits(shed_above=8)) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(BODY)
        answer = await stream.said()
        assert answer is not None
        assert status == answer.immediate_response.status.code
        told = {h.header.key: h.header.raw_value for h in answer.immediate_response.headers.set_headers}
        assert (b"1" if status else None) == told.get("retry-after")
    assert ("overload" in node.picks) == bool(status)


@pytest.mark.parametrize("body", [BODY, b"no request"])
@pytest.mark.parametrize("lacks", ["ready", "follows"])
async def test_a_replica_that_does_not_know_the_pool_refuses_nobody(lacks: str, body: bytes) -> None:
    """The gateway decides: until it is ready, and beside models that it does not follow."""
    node = FakeNode()
    node.entries = [_entry("nowhere", 0)]
    setattr(node, lacks, False)
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(body)
        assert None is destination_of(await stream.said())
    assert {"nobody": 1} == node.picks


async def test_where_a_pod_is_whose_address_nobody_told_nobody_is_refused() -> None:
    """The gateway may know the way: it decides, unless it says itself that there is none to choose from."""
    node = FakeNode()
    node.entries = [_entry("nowhere", 16)]
    for subset, result in ((None, "nobody"), (THERE, "nobody"), ([], "no_endpoint")):
        async with gateway(node) as channel:
            stream = Stream(channel)
            told = {} if subset is None else {"x-gateway-destination-endpoint-subset": subset}
            await stream.headers(metadata={"envoy.lb.subset_hint": told})
            await stream.body(BODY)
            answer = await stream.said()
            assert answer is not None
            assert (503 if result == "no_endpoint" else 0) == answer.immediate_response.status.code
            stream.cut()
        assert 1 == node.picks.pop(result)


async def test_a_subset_is_read_up_to_a_bound_which_is_counted() -> None:
    """What is behind it is not chosen, and one that is short of it is no matter."""
    node = _fleet()
    others = [f"10.1.{number // 250}.{number % 250}:1" for number in range(SUBSET_MAX - 1)]
    async with gateway(node) as channel:
        for subset, asked in (([*others[1:], HERE],) * 2, ([*others, HERE, THERE], [*others, HERE])):
            stream = Stream(channel)
            told = {"x-gateway-destination-endpoint-subset": subset}
            await stream.headers(metadata={"envoy.lb.subset_hint": told})
            await stream.body(BODY)
            assert destination_of(await stream.said())
            stream.cut()
            assert tuple(asked) == node.queries[-1].pods
            assert bool(node.limits_reached["epp.subset"]) == (subset != asked)


async def test_nothing_is_kept_of_a_body_that_its_engine_has() -> None:
    """However long that takes to answer, and however many do."""
    body = json.dumps({"model": "m", "prompt": [1], "user": "x" * 2**20}).encode()
    streams: list[Stream] = []
    before = 0
    async with gateway(_fleet()) as channel:
        for _ in range(1 + KEPT_OPEN):
            stream = Stream(channel, BUFFERED, NONE)
            await stream.headers()
            await stream.said()
            await stream.body(body)
            assert PICKED == destination_of(await stream.said())
            streams.append(stream)
            before = before or _resident_bytes()
        assert KEPT_OPEN * len(body) / 2 > _resident_bytes() - before
        for stream in streams:
            stream.cut()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_a_pod_of_which_nothing_is_heard_any_more_is_the_last_resort() -> None:
    """It may serve all the same: what is not heard are its events."""
    node = FakeNode()
    down = _entry(HERE, 0, "down", "down")
    for entries, told in (([down, _entry(THERE, 0)], [THERE]), ([_entry(THERE, 0, "live", "cordoned"), down], [HERE])):
        node.entries = entries
        async with gateway(node) as channel:
            stream = Stream(channel)
            await stream.headers()
            await stream.body(BODY)
            assert told == destination_of(await stream.said())


async def test_where_others_take_prompts_the_header_says_who() -> None:
    """The destination is who makes the answer; what is said of it from outside is taken away."""
    node = FakeNode()
    node.entries = [_entry(HERE, 16), _entry(THERE, 0)]
    node.decode = [RecommendedPod(pod, 0, 0.0, PickTerms(0.0, 0.0, 0.0, 0.0)) for pod in (V6, "10.0.0.9:1")]
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers(x_prefiller_host_port="1.2.3.4:5")
        await stream.body(BODY)
        answer = await stream.said()
        assert answer is not None
        told = {h.header.key: h.header.raw_value for h in answer.request_headers.response.header_mutation.set_headers}
        assert {DESTINATION: f"{V6},10.0.0.9:1".encode(), "x-prefiller-host-port": HERE.encode()} == told
        await handed_back(stream)
        await stream.ended()
    assert HERE == node.sendings[0][0]


async def test_a_request_counts_where_it_was_sent_until_it_is_over() -> None:
    """With its response, or its client. A gateway that was never heard to tell of responses leaves it open."""
    node = _fleet()
    async with gateway(node) as channel:
        for name, answers in (("untold", False), ("answered", True), ("cut", False)):
            stream = Stream(channel, BUFFERED, NONE)
            await stream.headers(x_request_id=name)
            await stream.said()
            await stream.body(BODY)
            assert PICKED == destination_of(await stream.said())
            if answers:
                await stream.answered()
                await stream.said()
            await stream.ended()
    assert [("vllm-1", 0, name, None) for name in ("untold", "answered", "cut")] == node.sendings
    assert [("answered", None), ("cut", None)] == node.endings
    assert [("vllm-1", 0, "answered", None)] == [
        (each.pod, each.dp_rank, each.request_id, each.of) for each in node.routed if each.request_id == "answered"
    ]


@pytest.mark.parametrize(
    ("served", "by", "pod"),
    [(V6, "first", "vllm-1"), (HERE, "fallback", HERE), ("10.0.0.7:1", "other", "10.0.0.7:1"), (None, None, "vllm-1")],
)
@pytest.mark.parametrize("told_as", ["metadata", "attribute"])
async def test_feedback_is_about_who_served(served: str | None, by: str | None, pod: str, told_as: str) -> None:
    """By the inference extension's metadata, or Envoy's own attribute; else it was the first."""
    node = _fleet()
    async with gateway(node, EppLimits(reads_usage=True)) as channel:
        stream = Stream(channel, DUPLEX, DUPLEX)
        await stream.headers(x_request_id="r")
        await stream.body(BODY)
        await stream.said()
        await handed_back(stream)
        metadata = {"envoy.lb": {SERVED: served}} if served and told_as == "metadata" else None
        await stream.answered(metadata=metadata, upstream=served if told_as == "attribute" else None)
        await stream.said()
        content = json.dumps({"usage": {"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}}).encode()
        await stream.answered_body(content, end=True)
        assert (content, True) == piece_of(await stream.said())
        await stream.ended()
    assert ({} if by is None else {by: 1}) == node.served
    (fed,) = node.fed
    assert (pod, "r", 4, 3, True) == (fed.pod, fed.request_id, fed.prompt_tokens, fed.cached_tokens, fed.ok)
    assert [pod] == [report.pod for report in node.routed[1:]] or by in {"first", None}


async def test_an_engine_that_fails_is_reported_so() -> None:
    """There is nothing to compare; a client's own mistake is no failure."""
    node = _fleet()
    async with gateway(node, EppLimits(reads_usage=True)) as channel:
        for status in (400, 503):
            stream = Stream(channel, BUFFERED, NONE)
            await stream.headers()
            await stream.said()
            await stream.body(BODY)
            await stream.said()
            await stream.answered(status, end=True)
            await stream.said()
            await stream.ended()
    assert [False] == [fed.ok for fed in node.fed]


async def test_as_many_endpoints_are_told_as_is_set() -> None:
    """One, and there are no fallbacks; ranks of one pod are one endpoint."""
    node = FakeNode()
    node.entries = [_entry(HERE, 16), _entry(HERE, 8), _entry(THERE, 0)]
    for most, told in ((1, [HERE]), (2, [HERE, THERE])):
        async with gateway(node, EppLimits(endpoints=most)) as channel:
            stream = Stream(channel)
            await stream.headers()
            await stream.body(BODY)
            assert told == destination_of(await stream.said())


async def test_more_of_a_body_than_may_be_kept_passes_through() -> None:
    """What is there is read; what comes behind is handed back as it comes, before the last is there."""
    node = _fleet()
    body = b'{"prompt": [1, 2, 3, 4], "pad": "' + b"x" * 3_000 + b'"}'
    async with gateway(node, EppLimits(body_bytes=1_000)) as channel:
        stream = Stream(channel)
        await stream.headers()
        await stream.body(body[:600], body[600:1_200], end=False)
        assert PICKED == destination_of(await stream.said())
        assert (body[:1_200], False) == piece_of(await stream.said())
        await stream.body(body[1_200:2_000], end=False)
        assert (body[1_200:2_000], False) == piece_of(await stream.said())
        await stream.body(body[2_000:])
        assert (body[2_000:], True) == piece_of(await stream.said())
        await stream.ended()
    assert b"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0" == node.queries[0].tokens
    assert {"limits.body_bytes": 1} == node.limits_reached


async def test_all_bodies_together_are_bounded() -> None:
    """Beyond, one is picked for with what is there; what was kept is free again when it went back."""
    node = _fleet()
    async with gateway(node, EppLimits(held_bytes=100)) as channel:
        for _ in range(2):
            stream = Stream(channel)
            await stream.headers()
            await stream.body(b'{"prompt": "', b"x" * 200, end=False)
            assert destination_of(await stream.said())
            assert 212 == len(piece_of(await stream.said())[0])
            await stream.body(b'"}')
            assert (b'"}', True) == piece_of(await stream.said())
            await stream.ended()
    assert {"limits.pending_bytes": 2} == node.limits_reached


async def test_streams_beyond_the_limit_end_in_order() -> None:
    """By which a gateway goes on without us."""
    node = _fleet()
    async with gateway(node, EppLimits(streams=2)) as channel:
        first = Stream(channel)
        await first.headers()
        await first.body(BODY)
        assert destination_of(await first.said())
        await handed_back(first)
        second, third = Stream(channel), Stream(channel)
        await second.headers(end=True)
        await third.headers(end=True)
        assert [False, True] == sorted([await _ends(second), await _ends(third)])
    assert node.limits_reached["epp.streams"]


async def _ends(stream: Stream) -> bool:
    return None is await stream.said()


class SlowNode(FakeNode):
    """Tokens of a text take longer than any budget."""

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        await asyncio.Event().wait()
        return query


async def test_a_text_whose_tokens_take_too_long_is_picked_for_by_load() -> None:
    """Within the budget, whatever the client's own deadline says; the model still counts."""
    node = SlowNode()
    async with gateway(node, EppLimits(pick_ms=1)) as channel:
        stream = Stream(channel)
        await stream.headers(x_kvindexer_timeout_ms="60000")
        await stream.body(b'{"model": "m", "prompt": "Hello"}')
        assert destination_of(await stream.said())
    (query,) = node.queries
    assert ("m", b"", None, True) == (query.model, query.tokens, query.text, query.overdue)
    assert [("text", 200)] == [(each["input"], each["code"]) for each in node.observed]


async def test_a_text_is_picked_for_by_its_tokens() -> None:
    """Of a chat as well."""
    node = _fleet()
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.headers(**{":path": "/v1/chat/completions?x=1"})
        await stream.body(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}')
        assert PICKED == destination_of(await stream.said())
    assert node.queries[0].tokens
    assert {"prefix": 1} == node.picks


async def test_an_observer_is_told_nothing() -> None:
    """It would not read it; and it sends nobody anywhere."""
    node = _fleet()
    async with gateway(node) as channel:
        stream = Stream(channel)
        await stream.tell(request_headers=HttpHeaders(end_of_stream=True), observability_mode=True)
        await stream.ended()
    assert not node.queries


async def test_at_the_stop_streams_end_that_nothing_is_kept_of() -> None:
    """One whose body is here is answered first; one whose response goes through here goes on to its end."""
    node, stop = _fleet(), asyncio.Event()
    async with gateway(node, stop=stop) as channel:
        idle, holding, passing = Stream(channel, BUFFERED, NONE), Stream(channel, DUPLEX, NONE), Stream(channel)
        await idle.headers(end=True)
        assert destination_of(await idle.said())
        await holding.headers()
        await holding.body(BODY, end=False)
        await passing.headers(end=True)
        assert destination_of(await passing.said())
        stop.set()
        assert None is await idle.said()
        await holding.body(b" ")
        assert PICKED == destination_of(await holding.said())
        assert BODY + b" " == b"".join(await handed_back(holding))
        assert None is await holding.said()
        await passing.answered()
        await passing.said()
        await passing.answered_body(b"data", end=True)
        assert (b"data", True) == piece_of(await passing.said())
        assert None is await passing.said()


async def test_what_is_no_message_ends_the_stream_in_order() -> None:
    """Whoever sends that speaks another protocol."""
    async with gateway(_fleet()) as channel:
        raw = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")()
        await raw.write(b"\xff\xff\xff")
        assert grpc.aio.EOF == await raw.read()
        assert grpc.StatusCode.OK == await raw.code()


async def test_the_prompt_is_asked_about_with_the_options_of_the_request() -> None:
    """Model from a gateway's header where the body has none; a salt; what makes no sense is left out."""
    node = _fleet()
    asked: list[tuple[dict[str, str], Callable[[LookupQuery], bool]]] = [
        ({"x_gateway_model_name": "n"}, lambda query: query.model == "n"),
        ({"x_kvindexer_cache_salt": "s"}, lambda query: query.cache_salt == "s"),
        ({"x_kvindexer_timeout_ms": "soon"}, lambda query: query.timeout_ms is None and query.tokens is not None),
    ]
    async with gateway(node) as channel:
        for headers, expected in asked:
            stream = Stream(channel)
            await stream.headers(**headers)
            await stream.body(b'{"prompt": [1, 2, 3, 4]}')
            assert destination_of(await stream.said())
            await handed_back(stream)
            await stream.ended()
            assert expected(node.queries[-1])
