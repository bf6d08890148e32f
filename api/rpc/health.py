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

    def __init__(self, node: NodePort, services: Sequence[str], alive: Sequence[str] = ()) -> None:
        """`alive`: names under which it is only told that the process is there."""
        self.servicer = Servicer(("", *services), alive)
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
    """Handlers. All services have one status; a watcher is told the newest, and may miss what was between.

    `alive`: names of which it is always the same, as long as there is somebody to say it.
    """

    def __init__(self, names: Sequence[str], alive: Sequence[str] = ()) -> None:
        self._names = frozenset(names)
        self._alive = frozenset(alive)
        self._status: Any = HealthCheckResponse.NOT_SERVING
        self._moved = asyncio.Event()

    def set(self, status: int) -> None:
        """Tell who watches."""
        self._status = status
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:  # noqa: N802 - gRPC's
        """The status of one service."""
        if request.service not in self._names | self._alive:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return HealthCheckResponse(status=self._status_of(request.service))

    async def List(self, _request: object, _context: object) -> object:  # noqa: N802 - gRPC's
        """Of all."""
        names = self._names | self._alive
        return _pb.HealthListResponse(
            statuses={name: HealthCheckResponse(status=self._status_of(name)) for name in names}
        )

    async def Watch(self, request: HealthCheckRequest, context: Context) -> None:  # noqa: N802 - gRPC's
        """The status of one service, and each that it has later."""
        known = request.service in self._names | self._alive
        told = None
        while True:
            moved = self._moved
            status = self._status_of(request.service) if known else HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            await moved.wait()

    def _status_of(self, name: str) -> Any:  # noqa: ANN401 - a number of gRPC's, which its stubs type otherwise
        return HealthCheckResponse.SERVING if name in self._alive else self._status
