"""`grpc.health.v1`: what `/readyz` says, for each service and for the whole.

Not gRPC's own servicer: that writes to its watchers under one lock, so a single one that reads nothing would keep all
others from what changes, and the server from its end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

from api.problems import log_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.ports import NodePort

    Context = grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]

LOOK_S: Final = 0.25
_pb: Any = health_pb2
"""For what its stubs do not know yet."""


class Health:
    """One instance a server."""

    def __init__(self, node: NodePort, services: Sequence[str]) -> None:
        self.servicer = Servicer(("", *services))
        self._node = node
        self._told: bool | None = None

    async def follow(self) -> None:
        """Say what the node's readiness is, until cancelled."""
        while True:
            self.tell(ready=self._ready())
            await asyncio.sleep(LOOK_S)

    def _ready(self) -> bool:
        try:
            return self._node.readiness().ready
        except Exception as error:  # noqa: BLE001 - a fault of ours: not ready, and everything else goes on
            if self._told is not False:
                log_fault(error)
            return False

    def tell(self, *, ready: bool) -> None:
        """Say it where it is news."""
        if ready == self._told:
            return
        self._told = ready
        self.servicer.set(HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING)


class Servicer(HealthServicer):
    """Handlers. All services have one status; a watcher is told the newest, and may miss what was between."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._status: Any = HealthCheckResponse.NOT_SERVING
        self._moved = asyncio.Event()

    def set(self, status: int) -> None:
        """Tell who watches."""
        self._status = status
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:  # noqa: N802 - gRPC's
        """The status of one service."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return HealthCheckResponse(status=self._status)

    async def List(self, _request: object, _context: object) -> object:  # noqa: N802 - gRPC's
        """Of all."""
        return _pb.HealthListResponse(statuses={name: HealthCheckResponse(status=self._status) for name in self._names})

    async def Watch(self, request: HealthCheckRequest, context: Context) -> None:  # noqa: N802 - gRPC's
        """The status of one service, and each that it has later."""
        known = request.service in self._names
        told = None
        while True:
            moved = self._moved
            status = self._status if known else HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            await moved.wait()
