"""`/v1/replicas` and below: what an operator has a replica do. For those who may change sources; the node decides."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import named_in_log, require_all_tenants
from api.access.registering import Registering
from api.ports import NodePort
from api.rest.exchange import Exchange, caller_of, path_name


class ReplicaRoutes:
    """Handlers; each takes a request and returns a response or raises an `IndexerError`."""

    def __init__(self, node: NodePort, exchange: Exchange, registering: Registering) -> None:
        self._node = node
        self._exchange = exchange
        self._registering = registering

    async def drain(self, request: Request) -> Response:
        """`POST /v1/replicas/{name}/drain`: 202 while it still owns something."""
        answer = await self._node.drain_replica(self._named(request), by=named_in_log(caller_of(request)))
        status = HTTPStatus.ACCEPTED if answer.effect == "accepted" else HTTPStatus.OK
        return self._exchange.answer(request, answer, status)

    async def undrain(self, request: Request) -> Response:
        """`DELETE /v1/replicas/{name}/drain`."""
        return self._exchange.answer(
            request, await self._node.undrain_replica(self._named(request), by=named_in_log(caller_of(request)))
        )

    def _named(self, request: Request) -> str:
        require_all_tenants(caller_of(request))
        self._registering.require_may_change(request.scope, dict(request.headers.raw))
        return path_name(request, "name")
