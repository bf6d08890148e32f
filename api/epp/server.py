"""[I/O] The endpoint picker's gRPC server: socket up, socket down, and what is served on it.

Gateways show no token: whoever reaches the port may ask, and learns addresses of engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # as in rpc/server.py: read at the import

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from api.access.access import OpenAccess
from api.epp.limits import EppLimits
from api.epp.picking import Picker
from api.epp.streams import Streams
from api.ports import NodePort
from api.rest.readying import Readying
from api.rest.request_ids import RequestIds
from api.rpc.arrivals import Arrivals
from api.rpc.calls import Calls
from api.rpc.draining import drained
from api.rpc.foreign import Foreign
from api.rpc.gone import tell_no_more_of_callers_gone
from api.rpc.health import Health
from api.rpc.limits import RpcLimits
from api.rpc.listening import ListeningPlace
from api.rpc.server import options_of
from schemas.rpc.envoy.service.ext_proc.v3 import external_processor_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.rpc.foreign import Handlers

SERVICE: Final = external_processor_pb2.DESCRIPTOR.services_by_name["ExternalProcessor"].full_name
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
CONNECTION_TIMES: Final = 2
"""As many streams at once of one connection: those beyond ours end in order, which no waiting one does."""


class EppSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, and how to end. `port` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 9_002
    drain_s: float = 5.0
    lame_duck_s: float = 0.0
    limits: EppLimits = EppLimits()


class EppServer:
    """One server. `run` after `start`."""

    def __init__(self, node: NodePort, settings: EppSettings, readying: Readying) -> None:
        limits = settings.limits
        rpc_limits = RpcLimits(
            body_bytes=limits.message_bytes,
            streams=limits.streams,
            connection_streams=CONNECTION_TIMES * limits.streams,
        )
        self._settings = settings
        self._place = ListeningPlace(settings.host, settings.port, setting="server.epp_port", schemes=("epp", "epps"))
        request_ids = RequestIds()
        self._calls = calls = Calls(node, OpenAccess(), request_ids, rpc_limits)
        self._streams = Streams(node, calls, Picker(node, readying, request_ids, limits), limits)
        self._health = Health(node, (SERVICE, READINESS), alive=(LIVENESS,))
        self._server = grpc.aio.server(options=options_of(rpc_limits))
        foreign = Foreign(calls, Arrivals(node, calls, rpc_limits, readying.pending))
        methods: Handlers = foreign.handlers(
            partial(health_pb2_grpc.add_HealthServicer_to_server, self._health.servicer)
        )
        names = (SERVICE, *methods, reflection.SERVICE_NAME)
        servicer = reflection.aio.ReflectionServicer(names)
        methods |= foreign.handlers(partial(reflection_pb2_grpc.add_ServerReflectionServicer_to_server, servicer))
        for service, handlers in methods.items():
            bounded = {name: calls.bounded(handler) for name, handler in handlers.items()}
            self._server.add_registered_method_handlers(service, bounded)
        process: Any = grpc.stream_stream_rpc_method_handler(cast("Any", self._streams.process))
        self._server.add_registered_method_handlers(SERVICE, {"Process": process})
        tell_no_more_of_callers_gone()

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> list[str]:
        """Listen, and say where. Raises `SettingsError` where the port cannot be had."""
        addresses = self._place.listen(self._server, credentials)
        self._health.tell(ready=False)
        await self._server.start()
        return addresses

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end: not ready at once, no new streams, and those there are in order."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._health.follow(), name="epp-health")
            await stop.wait()
            following.cancel()
            self._health.tell(ready=False)
            await asyncio.sleep(self._settings.lame_duck_s)
            self._streams.end()
            await drained(self._server, self._calls, self._settings.drain_s)

    async def close(self) -> None:
        """Cut what is left."""
        await self._server.stop(None)


@contextlib.asynccontextmanager
async def epp_server(
    node: NodePort,
    settings: EppSettings,
    readying: Readying,
    *,
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncIterator[tuple[EppServer, list[str]]]:
    """A server that listens, and where; nothing of it is left afterwards."""
    server = EppServer(node, settings, readying)
    try:
        yield server, await server.start(credentials)
    finally:
        await server.close()
