"""`POST /v1/pick`, and `/v1/pick/…` for gateways that ask before each request whether to let it pass.

Promise: what a client sent to an engine never fails here. Of what is not understood, not known or not answered in time
the load decides; where that is not known either the answer is 204, "balance as you would without me". Only a caller
that may not ask, a body that is too large and overload are told.

Envoy's ext_authz asks with the client's method, its path behind ours, and takes any answer but 200 for a refusal of the
client's request. So below `/v1/pick/` the answer is always 200, and what would have been 204 or a refusal is one
without a destination.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.access import Access
from api.access.caller import Caller, require, tenant_of
from api.pick.openai_body import question
from api.pick.picked import NO_SIGNAL, PICKS_MAX, STATE_HEADER, headers, lines, picks
from api.ports import NodePort
from api.problems import RequestRefused, count_denial, fault, log_fault, refusal_of
from api.rest.body import BodyReader, CallerGone
from api.rest.exchange import CALLER, Exchange, caller_of, sharer_of
from api.rest.header_options import add_header_options
from api.rest.limits import RestLimits
from api.rest.readying import Readying, overload, while_there
from indexer.errors import IndexerError
from indexer.trace_context import asked_by
from schemas.lookup import LookupQuery
from schemas.recommend import RecommendAnswer, RecommendQuery
from schemas.rest import TEXT_MAX

PODS_HEADER: Final = b"x-kvindexer-pods"
PODS_MAX: Final = 4_096
CUT_HEADERS: Final = (b"x-kvindexer-truncated", b"x-envoy-auth-partial-body")
REASON_HEADER: Final = "x-kvindexer-reason"
"""Why nobody is named: the answer's reason, `not_scored` of matches that do not count, `not_understood` of a body, or
the code of the problem that another path would have told."""
METHODS: Final = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "SEARCH", "PURGE", "SOURCE"),
    *("COPY", "MOVE", "LOCK", "UNLOCK", "MKCOL", "PROPFIND", "PROPPATCH", "BIND", "REBIND", "UNBIND", "ACL"),
    *("REPORT", "MKACTIVITY", "CHECKOUT", "MERGE", "MKCALENDAR", "LINK", "UNLINK"),
    *("M-SEARCH", "NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE"),
)
"""Of clients, below `/v1/pick/`: all that gateways let through, for 405 would be a refusal of the client's request."""

_TOLD: Final = frozenset({401, 403, 413, 429})


class _Reply:
    """What came of one request: `state` of the answer, or why there is none."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.label = "unknown"
        self.state = NO_SIGNAL
        self.answer: RecommendAnswer | None = None
        self.code = HTTPStatus.NO_CONTENT.value
        self.content = b""
        self.headers = {STATE_HEADER: NO_SIGNAL, "x-kvindexer-request-id": request_id}


class PickRoute:
    """The handlers."""

    def __init__(
        self,
        node: NodePort,
        exchange: Exchange,
        bodies: BodyReader,
        limits: RestLimits,
        readying: Readying,
        access: Access,
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._bodies = bodies
        self._limits = limits
        self._readying = readying
        self._access = access

    async def pick(self, request: Request) -> Response:
        """`POST /v1/pick`."""
        reply = await self._reply(request, caller_of(request))
        return Response(
            reply.content, HTTPStatus.OK if reply.content else HTTPStatus.NO_CONTENT, reply.headers, "text/plain"
        )

    async def pick_and_let_pass(self, request: Request) -> Response:
        """`/v1/pick/…`, any method."""
        try:
            caller = self._access.caller(dict(request.headers.raw).get(b"authorization"))
            require(caller, "lookup")
            request.scope[CALLER] = caller
            reply = await self._reply(request, caller)
        except IndexerError as error:
            refusal = refusal_of(error)
            count_denial(refusal, self._node.access_refused)
            told = {STATE_HEADER: NO_SIGNAL, "x-kvindexer-refused": refusal.code}
            return Response(b"", HTTPStatus.OK, told, "text/plain")
        return Response(reply.content, HTTPStatus.OK, reply.headers, "text/plain")

    async def _reply(self, request: Request, caller: Caller) -> _Reply:
        """Raises `RequestRefused` for what is told, and `CallerGone`."""
        began, reply = time.perf_counter(), _Reply(self._exchange.request_id(request))
        try:
            await self._fill(reply, request, caller)
        except RequestRefused as refused:
            if refused.status.value in _TOLD:
                reply.code = refused.status.value
                raise
            self._name_by_load(reply, request, caller, refused)
        except CallerGone:
            raise
        except IndexerError as error:
            self._name_by_load(reply, request, caller, refusal_of(error))
        except Exception as error:  # noqa: BLE001 - the client's request is worth more than our fault
            log_fault(error, reply.request_id, dict(request.headers.raw).get(b"traceparent"))
            self._name_by_load(reply, request, caller, fault())
        finally:
            seconds = time.perf_counter() - began
            self._node.observe_lookup(
                api="pick", input=reply.label, code=reply.code, state=reply.state, seconds=seconds
            )
            if self._node.tracing is not None:
                asked = asked_by(dict(request.headers.raw), "pick", reply.label)
                self._node.tracing.lookup(asked, reply.answer, reply.code, seconds)
        return reply

    async def _fill(self, reply: _Reply, request: Request, caller: Caller) -> None:
        told = dict(request.headers.raw)
        sharer = sharer_of(request.scope)
        query = await self._question(request, told, sharer)
        if query is None or not _add_options(query, told):
            self._name_by_load(reply, request, caller, None)
            return
        query.tenant, query.request_id = tenant_of(caller, None), reply.request_id
        reply.label = "json" if query.text is None else "text"
        if self._readying.has_to_wait(query):
            query = await while_there(request.receive, self._readying.ready(query, sharer))
        if not self._name(reply, _asked(query)):
            reply.headers[REASON_HEADER] = self._node.lookup(query, encoding="json").reason or "not_scored"

    def _name(self, reply: _Reply, asked: RecommendQuery) -> bool:
        """Say in the reply whom the service would send it to; whether there is anybody."""
        answer = reply.answer = self._node.recommend(asked)
        tenant = asked.query.tenant
        chosen = picks(answer, lambda pod: self._node.address_of(pod, tenant))
        reply.state = answer.state
        reply.content = lines(chosen)
        reply.headers |= headers(chosen, answer.state if chosen else NO_SIGNAL, reply.request_id)
        reply.code = HTTPStatus.OK.value if chosen else HTTPStatus.NO_CONTENT.value
        if chosen:
            self._node.note_sent(chosen[0].pod.pod, chosen[0].pod.dp_rank, reply.request_id, tenant)
        return bool(chosen)

    def _name_by_load(self, reply: _Reply, request: Request, caller: Caller, refusal: RequestRefused | None) -> None:
        """The same without the prompt, for which it was refused or not understood. A fault here leaves it as it was."""
        reply.headers[REASON_HEADER] = "not_understood" if refusal is None else refusal.code
        code = reply.code if refusal is None else refusal.status.value
        pods = _pods(dict(request.headers.raw))
        query = LookupQuery(tokens=b"", pods=pods, tenant=tenant_of(caller, None), request_id=reply.request_id)
        try:
            if pods != ():
                self._name(reply, msgspec.structs.replace(_asked(query), blind=True))
        except Exception as error:  # noqa: BLE001 - the client's request is worth more than our fault
            log_fault(error, reply.request_id, dict(request.headers.raw).get(b"traceparent"))
        if refusal is not None or not reply.content:
            reply.code = code

    async def _question(self, request: Request, told: Mapping[bytes, bytes], sharer: str) -> LookupQuery | None:
        """What the body asks, as far as it is understood. Raises `RequestRefused`, also where no place is left."""
        with self._readying.lookups.place(sharer) as granted:
            if not granted:
                raise overload("lookups.too_many", "too many lookups are under way, of all callers or of this one")
            body = await self._bodies.plain(await self._bodies.read(request.receive, told, sharer), told, sharer)
            cut = any(told.get(name, b"").strip().lower() == b"true" for name in CUT_HEADERS)
            return question(body, cut=cut, tokens_max=self._limits.tokens)


def _asked(query: LookupQuery) -> RecommendQuery:
    """For the pods that may serve a client: engines for prefill alone do not."""
    query.group, query.limit, query.pod_roles = "pod", PICKS_MAX, ("decode",)
    return RecommendQuery(query=query, detailed=True)


def _add_options(query: LookupQuery, told: Mapping[bytes, bytes]) -> bool:
    """Add what the headers say; False for pods that nobody can be called. Raises `BadRequestError`."""
    query.pods = _pods(told)
    add_header_options(query, told)
    return query.pods != ()


def _pods(told: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    """Those that the header names; None where there is no header, none where nobody can be called what it says."""
    if PODS_HEADER not in told:
        return None
    try:
        names = [name.strip() for name in told[PODS_HEADER].decode().split(",")]
    except UnicodeDecodeError:
        return ()
    pods = tuple(dict.fromkeys(name for name in names if name))
    return pods if len(pods) <= PODS_MAX and all(len(name) <= TEXT_MAX for name in pods) else ()
