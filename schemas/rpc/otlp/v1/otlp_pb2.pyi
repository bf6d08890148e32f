from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpanKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPAN_KIND_UNSPECIFIED: _ClassVar[SpanKind]
    SPAN_KIND_INTERNAL: _ClassVar[SpanKind]
    SPAN_KIND_SERVER: _ClassVar[SpanKind]
    SPAN_KIND_CLIENT: _ClassVar[SpanKind]

class StatusCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_CODE_UNSPECIFIED: _ClassVar[StatusCode]
    STATUS_CODE_OK: _ClassVar[StatusCode]
    STATUS_CODE_ERROR: _ClassVar[StatusCode]

class Temporality(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEMPORALITY_UNSPECIFIED: _ClassVar[Temporality]
    TEMPORALITY_DELTA: _ClassVar[Temporality]
    TEMPORALITY_CUMULATIVE: _ClassVar[Temporality]
SPAN_KIND_UNSPECIFIED: SpanKind
SPAN_KIND_INTERNAL: SpanKind
SPAN_KIND_SERVER: SpanKind
SPAN_KIND_CLIENT: SpanKind
STATUS_CODE_UNSPECIFIED: StatusCode
STATUS_CODE_OK: StatusCode
STATUS_CODE_ERROR: StatusCode
TEMPORALITY_UNSPECIFIED: Temporality
TEMPORALITY_DELTA: Temporality
TEMPORALITY_CUMULATIVE: Temporality

class ExportTraceRequest(_message.Message):
    __slots__ = ("resource_spans",)
    RESOURCE_SPANS_FIELD_NUMBER: _ClassVar[int]
    resource_spans: _containers.RepeatedCompositeFieldContainer[ResourceSpans]
    def __init__(self, resource_spans: _Optional[_Iterable[_Union[ResourceSpans, _Mapping]]] = ...) -> None: ...

class ExportTraceResponse(_message.Message):
    __slots__ = ("partial_success",)
    PARTIAL_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    partial_success: PartialSuccess
    def __init__(self, partial_success: _Optional[_Union[PartialSuccess, _Mapping]] = ...) -> None: ...

class PartialSuccess(_message.Message):
    __slots__ = ("rejected", "error_message")
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    rejected: int
    error_message: str
    def __init__(self, rejected: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class ResourceSpans(_message.Message):
    __slots__ = ("resource", "scope_spans")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_SPANS_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    scope_spans: _containers.RepeatedCompositeFieldContainer[ScopeSpans]
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., scope_spans: _Optional[_Iterable[_Union[ScopeSpans, _Mapping]]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("attributes",)
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class ScopeSpans(_message.Message):
    __slots__ = ("scope", "spans")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    scope: Scope
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Scope(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("trace_id", "span_id", "trace_state", "parent_span_id", "name", "kind", "start_time_unix_nano", "end_time_unix_nano", "attributes", "status", "flags")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_STATE_FIELD_NUMBER: _ClassVar[int]
    PARENT_SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    START_TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    END_TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: bytes
    trace_state: str
    parent_span_id: bytes
    name: str
    kind: SpanKind
    start_time_unix_nano: int
    end_time_unix_nano: int
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    status: Status
    flags: int
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[bytes] = ..., trace_state: _Optional[str] = ..., parent_span_id: _Optional[bytes] = ..., name: _Optional[str] = ..., kind: _Optional[_Union[SpanKind, str]] = ..., start_time_unix_nano: _Optional[int] = ..., end_time_unix_nano: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., flags: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("message", "code")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    message: str
    code: StatusCode
    def __init__(self, message: _Optional[str] = ..., code: _Optional[_Union[StatusCode, str]] = ...) -> None: ...

class KeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: AnyValue
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AnyValue, _Mapping]] = ...) -> None: ...

class AnyValue(_message.Message):
    __slots__ = ("string_value", "bool_value", "int_value", "double_value")
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    bool_value: bool
    int_value: int
    double_value: float
    def __init__(self, string_value: _Optional[str] = ..., bool_value: _Optional[bool] = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ...) -> None: ...

class ExportMetricsRequest(_message.Message):
    __slots__ = ("resource_metrics",)
    RESOURCE_METRICS_FIELD_NUMBER: _ClassVar[int]
    resource_metrics: _containers.RepeatedCompositeFieldContainer[ResourceMetrics]
    def __init__(self, resource_metrics: _Optional[_Iterable[_Union[ResourceMetrics, _Mapping]]] = ...) -> None: ...

class ExportMetricsResponse(_message.Message):
    __slots__ = ("partial_success",)
    PARTIAL_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    partial_success: PartialSuccess
    def __init__(self, partial_success: _Optional[_Union[PartialSuccess, _Mapping]] = ...) -> None: ...

class ResourceMetrics(_message.Message):
    __slots__ = ("resource", "scope_metrics")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_METRICS_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    scope_metrics: _containers.RepeatedCompositeFieldContainer[ScopeMetrics]
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., scope_metrics: _Optional[_Iterable[_Union[ScopeMetrics, _Mapping]]] = ...) -> None: ...

class ScopeMetrics(_message.Message):
    __slots__ = ("scope", "metrics")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    scope: Scope
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "description", "unit", "gauge", "sum", "histogram")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    GAUGE_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    unit: str
    gauge: Gauge
    sum: Sum
    histogram: Histogram
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., unit: _Optional[str] = ..., gauge: _Optional[_Union[Gauge, _Mapping]] = ..., sum: _Optional[_Union[Sum, _Mapping]] = ..., histogram: _Optional[_Union[Histogram, _Mapping]] = ...) -> None: ...

class Gauge(_message.Message):
    __slots__ = ("data_points",)
    DATA_POINTS_FIELD_NUMBER: _ClassVar[int]
    data_points: _containers.RepeatedCompositeFieldContainer[NumberPoint]
    def __init__(self, data_points: _Optional[_Iterable[_Union[NumberPoint, _Mapping]]] = ...) -> None: ...

class Sum(_message.Message):
    __slots__ = ("data_points", "aggregation_temporality", "is_monotonic")
    DATA_POINTS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_TEMPORALITY_FIELD_NUMBER: _ClassVar[int]
    IS_MONOTONIC_FIELD_NUMBER: _ClassVar[int]
    data_points: _containers.RepeatedCompositeFieldContainer[NumberPoint]
    aggregation_temporality: Temporality
    is_monotonic: bool
    def __init__(self, data_points: _Optional[_Iterable[_Union[NumberPoint, _Mapping]]] = ..., aggregation_temporality: _Optional[_Union[Temporality, str]] = ..., is_monotonic: _Optional[bool] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("data_points", "aggregation_temporality")
    DATA_POINTS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_TEMPORALITY_FIELD_NUMBER: _ClassVar[int]
    data_points: _containers.RepeatedCompositeFieldContainer[HistogramPoint]
    aggregation_temporality: Temporality
    def __init__(self, data_points: _Optional[_Iterable[_Union[HistogramPoint, _Mapping]]] = ..., aggregation_temporality: _Optional[_Union[Temporality, str]] = ...) -> None: ...

class NumberPoint(_message.Message):
    __slots__ = ("start_time_unix_nano", "time_unix_nano", "as_double", "as_int", "attributes", "flags")
    START_TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    AS_DOUBLE_FIELD_NUMBER: _ClassVar[int]
    AS_INT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    start_time_unix_nano: int
    time_unix_nano: int
    as_double: float
    as_int: int
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    flags: int
    def __init__(self, start_time_unix_nano: _Optional[int] = ..., time_unix_nano: _Optional[int] = ..., as_double: _Optional[float] = ..., as_int: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., flags: _Optional[int] = ...) -> None: ...

class HistogramPoint(_message.Message):
    __slots__ = ("start_time_unix_nano", "time_unix_nano", "count", "sum", "bucket_counts", "explicit_bounds", "attributes", "flags", "min", "max")
    START_TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    BUCKET_COUNTS_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    start_time_unix_nano: int
    time_unix_nano: int
    count: int
    sum: float
    bucket_counts: _containers.RepeatedScalarFieldContainer[int]
    explicit_bounds: _containers.RepeatedScalarFieldContainer[float]
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    flags: int
    min: float
    max: float
    def __init__(self, start_time_unix_nano: _Optional[int] = ..., time_unix_nano: _Optional[int] = ..., count: _Optional[int] = ..., sum: _Optional[float] = ..., bucket_counts: _Optional[_Iterable[int]] = ..., explicit_bounds: _Optional[_Iterable[float]] = ..., attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., flags: _Optional[int] = ..., min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...
