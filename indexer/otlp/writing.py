"""Ended spans as a request of the OpenTelemetry protocol, OTLP over HTTP in its binary form. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from opentelemetry.trace import SpanKind, StatusCode

from schemas.rpc.otlp.v1 import otlp_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

_KINDS: Final[Mapping[SpanKind, wire.SpanKind]] = {
    SpanKind.INTERNAL: wire.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: wire.SPAN_KIND_SERVER,
    SpanKind.CLIENT: wire.SPAN_KIND_CLIENT,
}
_INT64_LEAST: Final = -(2**63)
_INT64_MOST: Final = 2**63 - 1
_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200
"""Of a span's flags: whether it is known where its parent is, and whether that is another process."""


def request_of(spans: Sequence[ReadableSpan]) -> Generator[None, None, bytes]:
    """A generator that returns the request, a span a step. All spans are of one provider and scope."""
    request = wire.ExportTraceRequest()
    of_resource = request.resource_spans.add()
    put(of_resource.resource.attributes, spans[0].resource.attributes)
    of_scope = of_resource.scope_spans.add()
    scope = spans[0].instrumentation_scope
    if scope is not None:
        of_scope.scope.name, of_scope.scope.version = scope.name, scope.version or ""
    for span in spans:
        _write(span, of_scope.spans.add())
        yield
    return request.SerializeToString()


def not_taken(answer: bytes) -> int:
    """How many spans, or points of metrics, a collector that answered well did not take."""
    try:
        return max(0, wire.ExportTraceResponse.FromString(answer).partial_success.rejected)
    except DecodeError:
        return 0  # it said that all is well, in another form


def _write(span: ReadableSpan, out: wire.Span) -> None:
    context = span.get_span_context()
    if context is not None:
        out.trace_id, out.span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        out.trace_state = context.trace_state.to_header()
        out.flags = _HAS_IS_REMOTE | _remote(span.parent)
    if span.parent is not None and span.parent.is_valid:
        out.parent_span_id = span.parent.span_id.to_bytes(8, "big")
    out.name = span.name
    out.kind = _KINDS[span.kind]
    out.start_time_unix_nano, out.end_time_unix_nano = span.start_time or 0, span.end_time or 0
    put(out.attributes, span.attributes or {})
    if span.status.status_code is StatusCode.ERROR:
        out.status.code = wire.STATUS_CODE_ERROR


def _remote(parent: SpanContext | None) -> int:
    return _IS_REMOTE if parent is not None and parent.is_remote else 0


def put(attributes: RepeatedCompositeFieldContainer[wire.KeyValue], told: Mapping[str, object]) -> None:
    """Add what is told; as text also what is no int64 (sequences reach up to 2^64), and escaped what is no UTF-8."""
    for key, value in told.items():
        out = attributes.add(key=key).value
        if isinstance(value, int) and _INT64_LEAST <= value <= _INT64_MOST:
            out.int_value = value
        else:
            out.string_value = str(value).encode("utf-8", "backslashreplace").decode()
