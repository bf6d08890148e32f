"""What a gateway's message tells: headers, and what its metadata says of endpoints. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.struct_pb2 import Value

    from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import HeaderMap, ProcessingRequest

DESTINATION: Final = "x-gateway-destination-endpoint"
PREFILL: Final = "x-prefiller-host-port"
"""Where an engine that only makes the answer has the prompt computed."""
LB_NAMESPACE: Final = "envoy.lb"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SUBSET_KEY: Final = "x-gateway-destination-endpoint-subset"
SERVED_KEY: Final = "x-gateway-destination-endpoint-served"
UPSTREAM: Final = "upstream.address"
"""An attribute by which an Envoy that is asked for it tells the same as `SERVED_KEY`."""
SUBSET_MAX: Final = 4_096
"""Endpoints of one subset; what is behind is as if it were not there, and the picker counts it."""


def headers_of(headers: HeaderMap) -> dict[bytes, bytes]:
    """By name; of several of one name the last."""
    return {each.key.encode().lower(): each.raw_value or each.value.encode() for each in headers.headers}


def subset_of(message: ProcessingRequest) -> tuple[str, ...] | None:
    """The endpoints to choose from, as a list or with commas between them; None where all may be chosen."""
    spaces = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in spaces:
        return None
    fields = spaces[SUBSET_NAMESPACE].fields
    if SUBSET_KEY not in fields:
        return None
    return tuple(dict.fromkeys(islice(_listed(fields[SUBSET_KEY]), SUBSET_MAX)))


def _listed(value: Value) -> Iterator[str]:
    values = value.list_value.values if value.WhichOneof("kind") == "list_value" else (value,)
    for each in values:
        for name in each.string_value.split(","):
            if stripped := name.strip():
                yield stripped


def served_of(message: ProcessingRequest) -> str | None:
    """The endpoint that answered the client, where the gateway says so."""
    spaces = message.metadata_context.filter_metadata
    if LB_NAMESPACE in spaces:
        fields = spaces[LB_NAMESPACE].fields
        if SERVED_KEY in fields and fields[SERVED_KEY].string_value:
            return fields[SERVED_KEY].string_value.partition(",")[0].strip()
    for attributes in message.attributes.values():
        if UPSTREAM in attributes.fields and attributes.fields[UPSTREAM].string_value:
            return attributes.fields[UPSTREAM].string_value
    return None
