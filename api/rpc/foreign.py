"""gRPC's own services, health and reflection, under the rules that hold for ours: a message arrives in bounds.

Their handlers come generated, and take one message only once it is whole (arrivals.py says what that means).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

from api.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from api.rpc.arrivals import Arrivals
    from api.rpc.calls import Calls
    from api.rpc.statuses import Context

    Handlers = dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]]
    """By service and method."""


class Foreign:
    """One instance a server."""

    def __init__(self, calls: Calls, arrivals: Arrivals) -> None:
        self._calls = calls
        self._arrivals = arrivals

    def handlers(self, register: Callable[[Any], None]) -> Handlers:
        """Those that `register` adds to a server, each within bounds."""
        taken = _Taken()
        register(taken)
        return {
            service: {name: self._bounded(handler) for name, handler in methods.items()}
            for service, methods in taken.methods.items()
        }

    def _bounded(self, generated: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[bytes, bytes]:
        handler = cast("Any", generated)  # its stubs leave most out
        if handler.unary_unary is not None:

            async def answer(_requests: object, context: Context) -> object:
                with self._calls.counted():
                    return await handler.unary_unary(await self._request(handler, context), context)

            return _handler(grpc.stream_unary_rpc_method_handler, answer, handler)
        if handler.unary_stream is not None:

            async def stream(_requests: object, context: Context) -> None:
                await handler.unary_stream(await self._request(handler, context), context)

            return _handler(grpc.stream_stream_rpc_method_handler, stream, handler)

        async def converse(_requests: object, context: Context) -> None:
            try:
                with self._calls.place(self._calls.others, context, "calls.too_many", "calls of such methods"):
                    async for answer in handler.stream_stream(self._each(handler, context), context):
                        await context.write(answer)
            except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
                await self._calls.refuse(context, error)

        return _handler(grpc.stream_stream_rpc_method_handler, converse, handler)

    async def _request(self, handler: Any, context: Context) -> object:  # noqa: ANN401 - as above
        data = await self._arrivals.message(context, None)
        try:
            return _read(handler, data)
        except RequestRefused as error:
            await self._calls.refuse(context, error)
            return None  # never comes to it

    async def _each(self, handler: Any, context: Context) -> AsyncIterator[object]:  # noqa: ANN401 - as above
        """The messages of a conversation. Raises `RequestRefused`."""
        sharer = self._calls.sharer(context)
        while (data := await self._arrivals.next_message(context, sharer)) is not None:
            yield _read(handler, data)


class _Taken:
    """What generated code takes for a server."""

    def __init__(self) -> None:
        self.methods: dict[str, Mapping[str, grpc.RpcMethodHandler[Any, Any]]] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """The same once more."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Keep them."""
        self.methods[service] = handlers


def _handler(make: Any, behaviour: object, generated: Any) -> grpc.RpcMethodHandler[bytes, bytes]:  # noqa: ANN401 - as above
    handler: grpc.RpcMethodHandler[bytes, bytes] = make(behaviour, response_serializer=generated.response_serializer)
    return handler


def _read(handler: Any, data: bytes) -> object:  # noqa: ANN401 - as above
    try:
        return handler.request_deserializer(data)
    except DecodeError:
        detail = "the message is none of this method"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "body.not_protobuf", detail) from None
