"""About the service itself: is it alive, may it be asked, how is it doing, what is it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import require_all_tenants
from api.access.registering import Registering
from api.ports import NodePort
from api.rest.exchange import Exchange, caller_of
from indexer.prometheus_parts import CONTENT_TYPE_LATEST
from schemas.rest import Health, Readiness

NO_STORE: Final = {"cache-control": "no-store"}


class ServiceRoutes:
    """Handlers. `stopping` is set when the server is about to end: alive, but no longer ready."""

    def __init__(self, node: NodePort, exchange: Exchange, stopping: asyncio.Event, registering: Registering) -> None:
        self._registering = registering
        self._node = node
        self._exchange = exchange
        self._document: bytes | None = None
        self._stopping = stopping

    async def healthz(self, request: Request) -> Response:
        """`GET /healthz`: 200 as long as this loop turns."""
        return self._exchange.answer(request, Health())

    async def readyz(self, request: Request) -> Response:
        """`GET /readyz`: 503 until ready and from the stop on, with the progress."""
        readiness = self._node.readiness()
        if self._stopping.is_set():
            readiness = Readiness(ready=False, detail={**readiness.detail, "stopping": True})
        status = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return self._exchange.answer(request, readiness, status)

    async def partitions(self, request: Request) -> Response:
        """`GET /v1/partitions`."""
        require_all_tenants(caller_of(request))
        return self._exchange.answer(request, await self._node.partitions())

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        return Response(await self._node.metrics_text(), headers=NO_STORE, media_type=CONTENT_TYPE_LATEST)

    async def config(self, request: Request) -> Response:
        """`GET /v1/config`: for operators, secrets masked."""
        require_all_tenants(caller_of(request))
        self._registering.require_may_change(request.scope, dict(request.headers.raw))
        return self._exchange.answer(request, self._node.config())

    async def version(self, request: Request) -> Response:
        """`GET /v1/version`."""
        return self._exchange.answer(request, self._node.version())

    async def openapi(self, _request: Request) -> Response:
        """`GET /openapi.json`."""
        if self._document is None:
            version = self._node.version().version
            self._document = await asyncio.to_thread(_document, version)
        return Response(self._document, media_type="application/json")


def _document(version: str) -> bytes:
    """It takes a while, and what it takes is loaded for it."""
    from api.rest.openapi import openapi_document  # noqa: PLC0415 - a megabyte, and few ask

    return openapi_document(version)
