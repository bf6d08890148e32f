"""The REST application: every path but the lookup's own short way (hot.py), and how the two are put together.

FastAPI gives routing, methods and the error path; bodies are decoded by msgspec, strictly, and the OpenAPI document
is made from the same types (openapi.py), so nothing here is described twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.ports import NodePort
from api.problems import RequestRefused, fault
from api.rest.body import BodyReader, CallerGone
from api.rest.exchange import Exchange
from api.rest.front import Front
from api.rest.hashing import HashRoute
from api.rest.hot import LookupRoute
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.openapi import openapi_document
from api.rest.replicas import ReplicaRoutes
from api.rest.request_ids import RequestIds
from api.rest.service import ServiceRoutes
from api.rest.sources import SourceRoutes
from indexer.errors import IndexerError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def create_app(node: NodePort, limits: RestLimits | None = None, *, stopping: asyncio.Event | None = None) -> Front:
    """The whole REST face as one ASGI application. While `stopping` is set, `/readyz` says 503 and nobody waits."""
    limits, stopping = limits or RestLimits(), stopping or asyncio.Event()
    bodies, request_ids, requests = BodyReader(limits), RequestIds(), LookupRequests(limits.tokens, node.texts)
    exchange = Exchange(bodies, request_ids)
    service = ServiceRoutes(node, exchange, openapi_document(node.version().version), stopping)
    sources, replicas = SourceRoutes(node, exchange), ReplicaRoutes(node, exchange)
    table: dict[str, dict[str, Handler]] = {
        "/v1/hash": {"POST": HashRoute(node, exchange, requests).hash},
        "/v1/sources": {
            "GET": sources.list_sources,
            "POST": sources.add_source,
            "PUT": sources.replace_sources,
        },
        "/v1/sources/{pod}": {"DELETE": sources.remove_source, "PATCH": sources.cordon_source},
        "/v1/sources/{pod}/clear": {"POST": sources.clear_source},
        "/v1/sources/{pod}/history": {"GET": sources.history},
        "/v1/sources/{pod}/blocks/{hash}": {"GET": sources.find_block},
        "/v1/partitions": {"GET": service.partitions},
        "/v1/replicas/{name}/drain": {"POST": replicas.drain, "DELETE": replicas.undrain},
        "/v1/version": {"GET": service.version},
        "/healthz": {"GET": service.healthz},
        "/readyz": {"GET": service.readyz},
        "/metrics": {"GET": service.metrics},
        "/openapi.json": {"GET": service.openapi},
    }
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=[Route(path, _by_method(methods), methods=list(methods)) for path, methods in table.items()],
        exception_handlers=_exception_handlers(exchange),
    )
    return Front(LookupRoute(node, bodies, requests, request_ids, limits, stopping), app)


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    """One route a path, so that a refused method learns all that the path takes. HEAD is answered where GET is."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def _exception_handlers(
    exchange: Exchange,
) -> dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]:
    async def refuse(request: Request, error: Exception) -> Response:
        return exchange.refuse(request, error)

    async def refuse_route(request: Request, error: HTTPException) -> Response:
        return exchange.refuse(request, _route_refusal(error))

    async def refuse_fault(request: Request, _error: Exception) -> Response:
        return exchange.refuse(request, fault())  # the front logs it, once

    async def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)  # nobody is there to read it

    return {HTTPException: refuse_route, IndexerError: refuse, CallerGone: gone, Exception: refuse_fault}


def _route_refusal(error: HTTPException) -> RequestRefused:
    """404 and 405 of the router."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return RequestRefused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method.not_allowed",
            f"this path takes {allowed}",
            headers=[(b"allow", allowed.encode())],
        )
    return RequestRefused(HTTPStatus.NOT_FOUND, "path.unknown", "no such path; GET /openapi.json lists them all")
