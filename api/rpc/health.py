"""`grpc.health.v1`: what `/readyz` says, for each service and for the whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import HealthCheckResponse

from api.problems import log_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.ports import NodePort

LOOK_S: Final = 0.25


class Health:
    """One instance a server."""

    def __init__(self, node: NodePort, services: Sequence[str]) -> None:
        self.servicer = aio.HealthServicer()
        self._node = node
        self._names = ("", *services)
        self._told: bool | None = None

    async def follow(self) -> None:
        """Say what the node's readiness is, until cancelled."""
        while True:
            await self.tell(ready=self._ready())
            await asyncio.sleep(LOOK_S)

    def _ready(self) -> bool:
        try:
            return self._node.readiness().ready
        except Exception as error:  # noqa: BLE001 - a fault of ours: not ready, and everything else goes on
            if self._told is not False:
                log_fault(error)
            return False

    async def tell(self, *, ready: bool) -> None:
        """Say it where it is news."""
        if ready == self._told:
            return
        self._told = ready
        status = HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self.servicer.set(name, status)
