"""What is answered to a gateway, as bytes: what is always the same is encoded once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from api.epp.heard import DESTINATION, LB_NAMESPACE, PREFILL
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHUNK_BYTES: Final = 62_000
"""Of a body that is handed back in pieces: gateways take up to 64 KiB, with what stands around it."""
OVERWRITE: Final = 2
"""The action by which a header of that name from outside is gone."""

Phase = Literal["request", "response"]
Place = Literal["headers", "body"]
"""To which of a request's messages the destination is told."""

_FORGET: Final = HeaderMutation(remove_headers=[DESTINATION, PREFILL])
PASSED_ON: Final[dict[tuple[Phase, str], bytes]] = {
    ("request", "headers"): ProcessingResponse(
        request_headers=HeadersResponse(response=CommonResponse(header_mutation=_FORGET))
    ).SerializeToString(),
    ("request", "body"): ProcessingResponse(request_body=BodyResponse(response=CommonResponse())).SerializeToString(),
    ("request", "trailers"): ProcessingResponse(request_trailers=TrailersResponse()).SerializeToString(),
    ("response", "headers"): ProcessingResponse(
        response_headers=HeadersResponse(response=CommonResponse())
    ).SerializeToString(),
    ("response", "body"): ProcessingResponse(response_body=BodyResponse(response=CommonResponse())).SerializeToString(),
    ("response", "trailers"): ProcessingResponse(response_trailers=TrailersResponse()).SerializeToString(),
}
"""Go on, nothing changes: only what came from outside and would say where to is taken out."""


def destination(place: Place, endpoints: Sequence[str], prefill: str | None = None) -> bytes:
    """Where to, best first: in a header and the same in metadata. None: the gateway decides."""
    if not endpoints:
        if place == "headers":
            return PASSED_ON["request", "headers"]
        common = CommonResponse(header_mutation=_FORGET)
        return ProcessingResponse(request_body=BodyResponse(response=common)).SerializeToString()
    value = ",".join(endpoints)
    mutation = HeaderMutation(set_headers=[_header(DESTINATION, value)])
    if prefill is None:
        mutation.remove_headers.append(PREFILL)
    else:
        mutation.set_headers.append(_header(PREFILL, prefill))
    common = CommonResponse(header_mutation=mutation, clear_route_cache=True)
    if place == "headers":
        message = ProcessingResponse(request_headers=HeadersResponse(response=common))
    else:
        message = ProcessingResponse(request_body=BodyResponse(response=common))
    message.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields[DESTINATION].string_value = value
    return message.SerializeToString()


def handed_back(phase: Phase, body: bytes, *, last: bool) -> Iterator[bytes]:
    """A body, or a part of one, in pieces that a gateway takes; `last`: no more of it comes."""
    for begin in range(0, max(len(body), int(last)), CHUNK_BYTES):
        piece = body[begin : begin + CHUNK_BYTES]
        streamed = StreamedBodyResponse(body=piece, end_of_stream=last and begin + CHUNK_BYTES >= len(body))
        answer = BodyResponse(response=CommonResponse(body_mutation=BodyMutation(streamed_response=streamed)))
        if phase == "request":
            yield ProcessingResponse(request_body=answer).SerializeToString()
        else:
            yield ProcessingResponse(response_body=answer).SerializeToString()


def refusal(status: int, reason: str, retry_after_s: int | None = None) -> bytes:
    """An answer to the client in the gateway's name, in the form that OpenAI's clients read."""
    headers = {"content-type": "application/json", "x-kvindexer-reason": reason}
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    error = {"message": _WORDS[status], "type": reason, "param": None, "code": status}
    told = [_header(name, value) for name, value in headers.items()]
    return ProcessingResponse(
        immediate_response=ImmediateResponse(
            status=HttpStatus(code=status),
            headers=HeaderMutation(set_headers=told),
            body=msgspec.json.encode({"error": error}),
            details=f"kvindexer_{reason}",
        )
    ).SerializeToString()


def _header(name: str, value: str) -> HeaderValueOption:
    """In the place of whatever the request has of that name."""
    return HeaderValueOption(header=HeaderValue(key=name, raw_value=value.encode()), append_action=OVERWRITE)


_WORDS: Final = {503: "there is no endpoint that could serve this request", 429: "all endpoints are overloaded"}
