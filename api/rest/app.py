"""The REST application: every path but the lookup's own short way (hot.py), and how the two are put together.

FastAPI, or what it stands on, gives routing, methods and the error path; bodies are decoded by msgspec, strictly, and
the OpenAPI document is made from the same types (openapi.py), so nothing here is described twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from api.access.access import Access
from api.access.caller import require
from api.access.gates import Gates, open_gates
from api.faces.doors import FACE_PATHS, face_caller, face_doors, query_routes
from api.faces.query import QueryRoute
from api.pick.route import METHODS, PickRoute
from api.ports import NodePort
from api.problems import RequestRefused, fault
from api.rest.batch import BatchRoute
from api.rest.body import BodyReader, CallerGone
from api.rest.door import Door, Handler
from api.rest.exchange import CALLER, Exchange
from api.rest.explaining import ExplainRoute
from api.rest.front import Front
from api.rest.hashing import HashRoute
from api.rest.hot import LookupRoute
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.readying import Readying
from api.rest.receipts import ReceiptRoutes
from api.rest.recommending import RecommendRoute
from api.rest.replicas import ReplicaRoutes
from api.rest.report_bodies import prepare
from api.rest.reports import ReportRoutes
from api.rest.request_ids import RequestIds
from api.rest.service import ServiceRoutes
from api.rest.slim import Handlers, SlimApplication
from api.rest.sources import SourceRoutes
from indexer.errors import IndexerError

_NO_PATH: Final = (
    "no such path; GET /openapi.json lists all of this service's own, and names those of other services' APIs that it "
    "takes the place of"
)
_CLOSED: Final = (
    "this path is another service's API, whose clients show no token: beside auth.tokens_file it is closed unless "
    "compat.anonymous is set"
)


def create_app(
    node: NodePort,
    limits: RestLimits | None = None,
    *,
    stopping: asyncio.Event | None = None,
    gates: Gates | None = None,
    readying: Readying | None = None,
    slim: bool = False,
) -> Front:
    """The whole REST face as one ASGI application. While `stopping` is set, `/readyz` says 503 and nobody waits.

    `gates`: who may ask; None: whoever reaches it. `readying`: where other faces share it. `slim`: see `_application`.
    """
    limits, stopping = limits or RestLimits(), stopping or asyncio.Event()
    access, registering, faces = gates or open_gates()
    readying = readying or Readying(node, limits, stopping)
    bodies, request_ids = BodyReader(limits, node.limit_reached, readying.pending), RequestIds()
    requests, exchange = (
        LookupRequests(limits.tokens, node.texts),
        Exchange(bodies, request_ids, node.limit_reached, node.access_refused),
    )
    service = ServiceRoutes(node, exchange, stopping, registering)
    sources, replicas = SourceRoutes(node, exchange, registering), ReplicaRoutes(node, exchange, registering)
    receipts, reports = ReceiptRoutes(node, exchange, requests, limits), ReportRoutes(node, exchange)
    pick = PickRoute(node, exchange, bodies, limits, readying, access)
    table: dict[str, dict[str, Door]] = {
        "/v1/lookup/batch": {"POST": Door("lookup", BatchRoute(node, exchange, requests, limits, readying).batch)},
        "/v1/recommend": {"POST": Door("lookup", RecommendRoute(node, exchange, requests, readying).recommend)},
        "/v1/pick": {"POST": Door("lookup", pick.pick)},
        "/v1/pick/{path:path}": dict.fromkeys(METHODS, Door(None, pick.pick_and_let_pass)),
        "/v1/hash": {"POST": Door("lookup", HashRoute(node, exchange, requests, readying).hash)},
        "/v1/explain": {"POST": Door("lookup", ExplainRoute(node, exchange, requests, limits, readying).explain)},
        "/v1/sources": {
            "GET": Door("lookup", sources.list_sources),
            "POST": Door("admin", sources.add_source),
            "PUT": Door("admin", sources.replace_sources),
        },
        "/v1/sources/{pod}": {
            "DELETE": Door("admin", sources.remove_source),
            "PATCH": Door("admin", sources.cordon_source),
        },
        "/v1/sources/{pod}/clear": {"POST": Door("admin", sources.clear_source)},
        "/v1/sources/{pod}/history": {"GET": Door("lookup", sources.history)},
        "/v1/sources/{pod}/blocks/{hash}": {"GET": Door("admin", sources.find_block)},
        "/v1/partitions": {"GET": Door("lookup", service.partitions)},
        "/v1/reports/staleness": {"GET": Door("lookup", reports.staleness)},
        "/v1/reports/consistency": {"GET": Door("lookup", reports.consistency)},
        "/v1/routed": {"POST": Door("report", receipts.routed)},
        "/v1/feedback": {"POST": Door("report", receipts.feedback)},
        "/v1/replicas/{name}/drain": {
            "POST": Door("admin", replicas.drain),
            "DELETE": Door("admin", replicas.undrain),
        },
        "/v1/config": {"GET": Door("admin", service.config)},
        "/v1/version": {"GET": Door("lookup", service.version)},
        "/healthz": {"GET": Door(None, service.healthz)},
        "/readyz": {"GET": Door(None, service.readyz)},
        "/metrics": {"GET": Door(None, service.metrics)},
        "/openapi.json": {"GET": Door("lookup", service.openapi)},
    }
    queries: dict[str, QueryRoute] = {}
    if faces:
        caller = face_caller(controlled=access.controlled)
        queries = query_routes(node, bodies, limits, caller)
        table |= face_doors(node, bodies, caller, queries, registering, readying)
    routes = [Route(path, _by_method(doors, access), methods=list(doors)) for path, doors in table.items()]
    handlers = _exception_handlers(exchange, frozenset() if faces else FACE_PATHS)
    app = _application(routes, handlers, slim=slim)
    return Front(LookupRoute(node, bodies, requests, request_ids, readying, access=access), app, queries)


def _application(routes: list[Route], handlers: Handlers, *, slim: bool) -> ASGIApp:
    """Routing, methods and the error path, of FastAPI; `slim`: of what that stands on, which takes 14 MB less.

    No route here has a body or an answer that FastAPI would read, check or describe, so that both do the same.
    """
    if slim:
        return SlimApplication(routes, handlers)
    from fastapi import FastAPI  # noqa: PLC0415 - only where its size is no matter

    prepare()
    return FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=list[BaseRoute](routes),
        exception_handlers=dict(handlers),
    )


def _by_method(doors: Mapping[str, Door], access: Access) -> Handler:
    """One route a path, so that a refused method learns all that the path takes. HEAD is answered where GET is.

    Who may not come in is refused before a byte of the body is read.
    """

    async def handle(request: Request) -> Response:
        scope, handler = doors["GET" if request.method == "HEAD" else request.method]
        if scope is not None:
            caller = access.caller(dict(request.headers.raw).get(b"authorization"))
            require(caller, scope)
            request.scope[CALLER] = caller
        return await handler(request)

    return handle


def _exception_handlers(exchange: Exchange, closed: frozenset[str]) -> Handlers:
    async def refuse(request: Request, error: Exception) -> Response:
        return exchange.refuse(request, error)

    async def refuse_route(request: Request, error: HTTPException) -> Response:
        return exchange.refuse(request, _route_refusal(error, is_closed=request.scope["path"] in closed))

    async def refuse_fault(request: Request, _error: Exception) -> Response:
        return exchange.refuse(request, fault())  # the front logs it, once

    async def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)  # nobody is there to read it

    return {HTTPException: refuse_route, IndexerError: refuse, CallerGone: gone, Exception: refuse_fault}


def _route_refusal(error: HTTPException, *, is_closed: bool) -> RequestRefused:
    """404 and 405 of the router."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return RequestRefused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method.not_allowed",
            f"this path takes {allowed}",
            headers=[(b"allow", allowed.encode())],
        )
    detail = _CLOSED if is_closed else _NO_PATH
    return RequestRefused(HTTPStatus.NOT_FOUND, "path.unknown", detail)
