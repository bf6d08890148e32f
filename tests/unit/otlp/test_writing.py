"""Spans in OTLP's binary form: what OpenTelemetry's own exporter makes of the same spans."""

from __future__ import annotations

from http import HTTPStatus

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from indexer.otlp.writing import not_taken, request_of
from schemas.rpc.otlp.v1.otlp_pb2 import ExportTraceRequest, ExportTraceResponse
from tests.support.steps import done

# `encode_spans` of opentelemetry-exporter-otlp-proto-common 1.45.2 on the spans of `_spans` below.
OFFICIAL = bytes.fromhex(
    "0a9c030a370a1b0a0c736572766963652e6e616d65120b0a096b76696e64657865720a180a0f736572766963652e76657273696f6e1205"
    "0a03312e3212e0020a100a096b76696e64657865721203312e32128b010a10aaaabbbbccccddddeeeeffff000011111208010203040506"
    "07011a0a76656e646f723d783a3122081234567890abcdef2a066c6f6f6b757030023900002a36fe9c97174140423936fe9c97174a0d0a"
    "0361706912060a04726573744a0b0a04636f6465120318f4034a150a0d70726f6d70745f746f6b656e7312041880e8077a021802850100"
    "030000127b0a100102030405060708090a0b0c0d0e0f10120801020304050607022a0b6261746368206170706c7930013901002a36fe9c"
    "97174107002a36fe9c97174a0d0a06736f7572636512030a01614a0e0a0873657175656e6365120218004a150a066576656e7473120b18"
    "ffffffffffffffffff017a0085010001000012410a100102030405060708090a0b0c0d0e0f10120801020304050607032a076a6f75726e"
    "616c30033901000000000000004102000000000000007a00850100010000"
)


class _Ids(IdGenerator):
    def __init__(self) -> None:
        self._spans = 0x0102030405060700

    def generate_span_id(self) -> int:
        self._spans += 1
        return self._spans

    def generate_trace_id(self) -> int:
        return 0x0102030405060708090A0B0C0D0E0F10


class _Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def _spans() -> list[ReadableSpan]:
    """One under a caller's trace that failed, and two of their own."""
    kept = _Kept()
    about = Resource({"service.name": "kvindexer", "service.version": "1.2"})
    provider = TracerProvider(sampler=ALWAYS_ON, resource=about, shutdown_on_exit=False, id_generator=_Ids())
    provider.add_span_processor(kept)
    tracer = provider.get_tracer("kvindexer", "1.2")
    state = TraceState([("vendor", "x:1")])
    callers = SpanContext(0xAAAABBBBCCCCDDDDEEEEFFFF00001111, 0x1234567890ABCDEF, True, TraceFlags(1), state)
    above = set_span_in_context(NonRecordingSpan(callers))
    root = set_span_in_context(NonRecordingSpan(SpanContext(0, 0, is_remote=False)))
    asked = {"api": "rest", "code": HTTPStatus.INTERNAL_SERVER_ERROR, "prompt_tokens": 128_000}  # no mere int
    span = tracer.start_span("lookup", above, SpanKind.SERVER, asked, start_time=1_700_000_000_000_000_000)
    span.set_status(Status(StatusCode.ERROR))
    span.end(1_700_000_000_001_000_000)
    applied = {"source": "a", "sequence": 0, "events": -1}
    span = tracer.start_span("batch apply", root, SpanKind.INTERNAL, applied, start_time=1_700_000_000_000_000_001)
    span.end(1_700_000_000_000_000_007)
    tracer.start_span("journal", root, SpanKind.CLIENT, {}, start_time=1).end(2)
    return kept.spans


def _request() -> bytes:
    return done(request_of(_spans()))


def test_it_is_what_opentelemetry_writes_itself() -> None:
    """Field for field. Theirs says of each span that it has no status, too, which means the same as saying nothing."""
    theirs = ExportTraceRequest.FromString(OFFICIAL)
    for span in theirs.resource_spans[0].scope_spans[0].spans:
        if not span.status.code:
            span.ClearField("status")

    assert theirs == ExportTraceRequest.FromString(_request())
    unknown = ExportTraceRequest.FromString(OFFICIAL)
    unknown.DiscardUnknownFields()
    assert unknown.ByteSize() == len(OFFICIAL), "the proto knows all that is written there"


def test_a_collector_says_what_it_did_not_take() -> None:
    """Nothing said is nothing refused, and nobody refuses less than nothing."""
    refused = ExportTraceResponse()
    refused.partial_success.rejected = 3

    assert (0, 3) == (not_taken(b""), not_taken(refused.SerializeToString()))
    refused.partial_success.rejected = -3
    assert 0 == not_taken(refused.SerializeToString())
