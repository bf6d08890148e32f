"""The endpoint picker on a real socket, and a gateway's end of its streams, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from api.epp.limits import EppLimits
from api.epp.server import EppSettings, epp_server
from api.rest.limits import RestLimits
from api.rest.readying import Readying
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import (
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
)
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from api.ports import NodePort

DEADLINE_S: Final = 20.0
NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX = range(5)
DESTINATION: Final = "x-gateway-destination-endpoint"
SERVED: Final = "x-gateway-destination-endpoint-served"


@contextlib.asynccontextmanager
async def epp_served(
    node: NodePort, limits: EppLimits | None = None, *, stop: asyncio.Event | None = None, drain_s: float = 5.0
) -> AsyncIterator[str]:
    """`host:port` of a picker that runs until the block ends, or `stop` is set inside it."""
    stop = stop or asyncio.Event()
    settings = EppSettings(port=0, drain_s=drain_s, limits=limits or EppLimits())
    readying = Readying(node, RestLimits(), asyncio.Event())
    async with epp_server(node, settings, readying) as (server, addresses), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run(stop))
        try:
            yield addresses[0].removeprefix("epp://")
        finally:
            stop.set()


class Stream:
    """One client's request, as a gateway tells of it."""

    def __init__(self, channel: grpc.aio.Channel, request: int | None = DUPLEX, response: int = DUPLEX) -> None:
        """The modes in which bodies are sent; None: the gateway does not say."""
        self._call = ExternalProcessorStub(channel).Process(timeout=DEADLINE_S)
        self._config = None
        if request is not None:
            self._config = ProtocolConfiguration(request_body_mode=request, response_body_mode=response)

    async def tell(
        self,
        metadata: Mapping[str, Mapping[str, object]] | None = None,
        **part: Any,  # noqa: ANN401 - a part of the oneof
    ) -> None:
        """One message, with what the gateway's metadata says."""
        message = ProcessingRequest(**part)
        if self._config is not None:
            message.protocol_config.CopyFrom(self._config)
            self._config = None
        for namespace, members in (metadata or {}).items():
            message.metadata_context.filter_metadata[namespace].update(members)
        await self._call.write(message)

    async def headers(self, *, end: bool = False, metadata: Any = None, **more: str) -> None:  # noqa: ANN401 - as above
        """Of the request."""
        told = {":method": "POST", ":path": "/v1/completions", **{k.replace("_", "-"): v for k, v in more.items()}}
        await self.tell(metadata, request_headers=HttpHeaders(headers=header_map(told), end_of_stream=end))

    async def body(self, *parts: bytes, end: bool = True) -> None:
        """Of the request, in so many messages."""
        for i, part in enumerate(parts, 1):
            await self.tell(request_body=HttpBody(body=part, end_of_stream=end and i == len(parts)))

    async def trailers(self) -> None:
        """Of the request."""
        await self.tell(request_trailers=HttpTrailers())

    async def answered(
        self,
        status: int = 200,
        *,
        end: bool = False,
        metadata: Any = None,  # noqa: ANN401 - as above
        upstream: str | None = None,
        **more: str,
    ) -> None:
        """The headers of the response. `upstream`: who gave it, as Envoy's attribute says."""
        told = {":status": str(status), **{k.replace("_", "-"): v for k, v in more.items()}}
        part: dict[str, Any] = {"response_headers": HttpHeaders(headers=header_map(told), end_of_stream=end)}
        if upstream is not None:
            attributes = Struct()
            attributes.update({"upstream.address": upstream})
            part["attributes"] = {"envoy.filters.http.ext_proc": attributes}
        await self.tell(metadata, **part)

    async def answered_body(self, part: bytes, *, end: bool = False) -> None:
        """A part of the response."""
        await self.tell(response_body=HttpBody(body=part, end_of_stream=end))

    async def said(self) -> ProcessingResponse | None:
        """What the picker says next; None: its stream ended in order."""
        answer = await asyncio.wait_for(self._call.read(), DEADLINE_S)
        if not isinstance(answer, ProcessingResponse):
            assert grpc.StatusCode.OK == await self._call.code()
            return None
        return answer

    async def ended(self) -> None:
        """The gateway has no more to tell; the picker agrees."""
        await self._call.done_writing()
        assert None is await self.said()

    def cut(self) -> None:
        """The client is gone."""
        self._call.cancel()


@contextlib.asynccontextmanager
async def gateway(node: NodePort, limits: EppLimits | None = None, **more: Any) -> AsyncIterator[grpc.aio.Channel]:  # noqa: ANN401 - as epp_served has them
    """A channel to such a picker."""
    async with epp_served(node, limits, **more) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


def header_map(headers: Mapping[str, str]) -> HeaderMap:
    """As Envoy sends them."""
    return HeaderMap(headers=[HeaderValue(key=name, raw_value=value.encode()) for name, value in headers.items()])


def destination_of(answer: ProcessingResponse | None) -> list[str] | None:
    """The endpoints that an answer names, in header and metadata alike; None: it takes the header away."""
    assert answer is not None
    kind = answer.WhichOneof("response")
    common = getattr(answer, str(kind)).response
    told = {each.header.key: each.header.raw_value.decode() for each in common.header_mutation.set_headers}
    metadata = MessageToDict(answer.dynamic_metadata)
    if not told:
        assert [DESTINATION, "x-prefiller-host-port"] == list(common.header_mutation.remove_headers)
        assert {} == metadata
        return None
    assert {"envoy.lb": {DESTINATION: told[DESTINATION]}} == metadata
    assert {2} == {each.append_action for each in common.header_mutation.set_headers}
    assert ["x-prefiller-host-port"] == list(common.header_mutation.remove_headers)
    assert common.clear_route_cache
    return told[DESTINATION].split(",")


def piece_of(answer: ProcessingResponse | None) -> tuple[bytes, bool]:
    """A part of a body that was handed back, and whether it is the last."""
    assert answer is not None
    kind = answer.WhichOneof("response")
    assert kind in {"request_body", "response_body"}
    streamed = getattr(answer, kind).response.body_mutation.streamed_response
    return streamed.body, streamed.end_of_stream


async def handed_back(stream: Stream) -> Sequence[bytes]:
    """All parts up to the last."""
    parts = []
    while True:
        part, last = piece_of(await stream.said())
        parts.append(part)
        if last:
            return parts
