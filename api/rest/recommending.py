"""`POST /v1/recommend`: a lookup's question, asked by somebody who wants to know where to send the request.

The body is a lookup's in all its forms; what it says of loads and of how to rank stands beside it.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import tenant_of
from api.ports import NodePort
from api.problems import refusal_of
from api.rest.beside import Beside
from api.rest.body import CallerGone
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.lookup_request import LookupRequests
from api.rest.media import body_form
from api.rest.readying import Readying, in_time_left, overload, while_there
from indexer.errors import BadRequestError
from indexer.trace_context import asked_by
from schemas.recommend import RecommendOptions

if TYPE_CHECKING:
    from schemas.lookup import LookupQuery
    from schemas.recommend import RecommendAnswer, RecommendQuery

API: Final = "recommend"
_BESIDE: Final = Beside(RecommendOptions)


class RecommendRoute:
    """The handler."""

    def __init__(self, node: NodePort, exchange: Exchange, requests: LookupRequests, readying: Readying) -> None:
        self._node = node
        self._exchange = exchange
        self._requests = requests
        self._readying = readying

    async def recommend(self, request: Request) -> Response:
        """`POST /v1/recommend`."""
        question = _Question()
        answer: RecommendAnswer | None = None
        code = HTTPStatus.OK.value
        try:
            asked = await self._asked(request, question)
            answer = self._node.recommend(asked)
            return self._exchange.answer(request, answer)
        except CallerGone:
            question.counts = False
            raise
        except Exception as error:
            code = refusal_of(error).status.value
            raise
        finally:
            if question.counts:
                self._observe(request, question, answer, code)

    async def _asked(self, request: Request, question: _Question) -> RecommendQuery:
        """The question as it can be asked. Raises what refuses it, and `CallerGone`."""
        sharer = sharer_of(request.scope)
        with self._readying.lookups.place(sharer) as granted:
            if not granted:
                raise overload("lookups.too_many", "too many lookups are under way, of all callers or of this one")
            body = await self._exchange.raw_body(request)
            question.began = time.perf_counter()  # a slow caller's network is not our time
            query, options = await self._read(request, body, question)
        if self._readying.has_to_wait(query):
            ready = self._readying.ready(in_time_left(query, question.began), sharer)
            query = await while_there(request.receive, ready)
        return options.about(query)

    async def _read(self, request: Request, body: bytes, question: _Question) -> tuple[LookupQuery, RecommendOptions]:
        headers = dict(request.headers.raw)
        form = body_form(headers.get(b"content-type"), ids_allowed=True)
        options, body, query_string = _BESIDE.take(form, body, request.scope["query_string"])
        try:
            query, question.label = await self._requests.parse_long(form, body, query_string, headers)
        except BadRequestError as error:
            raise _BESIDE.hinted(error) from None
        query.tenant = tenant_of(caller_of(request), query.tenant)
        query.request_id = query.request_id or self._exchange.request_id(request)
        return query, options

    def _observe(self, request: Request, question: _Question, answer: RecommendAnswer | None, code: int) -> None:
        """Count it among lookups, and trace it where that is wanted."""
        seconds, state = time.perf_counter() - question.began, "" if answer is None else answer.state
        self._node.observe_lookup(api=API, input=question.label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            asked = asked_by(dict(request.headers.raw), API, question.label)
            self._node.tracing.lookup(asked, answer, code, seconds)


class _Question:
    """What is counted of one."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.label = "unknown"
        self.counts = True
