"""`POST /v1/explain`: a lookup's question, asked by somebody who wants to know why.

The body is a lookup's in all its forms. `pod` and `dp_rank` beside it are taken out first, of the body or of the query
string; the rest is read as a lookup is.
"""

from __future__ import annotations

import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import tenant_of
from api.admission import Shares
from api.ports import NodePort
from api.rest.beside import Beside
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.media import body_form
from api.rest.readying import Readying, in_time_left, overload, while_there
from indexer.errors import BadRequestError, FieldIssue
from schemas.explain import ExplainTarget
from schemas.lookup import LookupQuery

_BESIDE: Final = Beside(ExplainTarget)


class ExplainRoute:
    """The handler."""

    def __init__(
        self, node: NodePort, exchange: Exchange, requests: LookupRequests, limits: RestLimits, readying: Readying
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._requests = requests
        self._readying = readying
        self._at_once = Shares("rest.explanations", limits.explanations, reached=node.limit_reached)

    async def explain(self, request: Request) -> Response:
        """`POST /v1/explain`."""
        with self._at_once.place(sharer_of(request.scope)) as granted:
            if not granted:
                raise overload("explain.too_many", "too many explanations are under way, of all or of this caller")
            return await self._answered(request)

    async def _answered(self, request: Request) -> Response:
        headers = dict(request.headers.raw)
        body = await self._exchange.raw_body(request)
        began = time.perf_counter()
        form = body_form(headers.get(b"content-type"), ids_allowed=True)
        target, body, query_string = _BESIDE.take(form, body, request.scope["query_string"])
        query = (await self._requests.parse_long(form, body, query_string, headers)).query
        if target.pod is not None:
            query.pods = _only(target.pod, query)
        query.tenant = tenant_of(caller_of(request), query.tenant)
        query.request_id = query.request_id or self._exchange.request_id(request)
        if self._readying.has_to_wait(query):
            query = await while_there(request.receive, self._readying.ready(query, sharer_of(request.scope)))
        answer = await self._node.explain(in_time_left(query, began), target.dp_rank)
        answer.took_us = int((time.perf_counter() - began) * 1e6)
        return self._exchange.answer(request, answer)


def _only(pod: str, query: LookupQuery) -> tuple[str, ...]:
    if query.pods is not None:
        raise BadRequestError("pod.not_allowed", [FieldIssue("pod", "not beside pods")])
    return (pod,)
