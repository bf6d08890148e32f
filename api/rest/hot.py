"""`POST /v1/lookup`: what a router asks before each of its requests must not pay for a framework.

Two ways lead here. A request whose body comes quickly is answered by the protocol itself (lane.py, `answer_now`): no
task, no scope, one write. Any other comes as bare ASGI (`__call__`). Both parse, ask and encode by the same three
lines. Everything else about HTTP is in `app`; all of it is documented in one OpenAPI document.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from api.access.access import Access
from api.access.caller import Caller, require, tenant_of
from api.ports import Encoding, NodePort
from api.problems import RequestRefused, counted_refusal, problem_response
from api.rest.body import BodyReader, CallerGone, is_coded
from api.rest.exchange import CALLER, sharer_of
from api.rest.heads import Reply
from api.rest.lookup_request import LookupRequests
from api.rest.media import ANSWER_TYPES, BodyForm, answer_encoding, body_form
from api.rest.plain_json import SLICED_BYTES
from api.rest.readying import Readying, overload, while_there
from api.rest.request_ids import RequestIds
from indexer.trace_context import asked_by
from schemas.lookup import LookupAnswer, LookupQuery

PATH: Final = "/v1/lookup"

_ENCODERS: Final[dict[Encoding, Callable[[object], bytes]]] = {
    "json": msgspec.json.Encoder().encode,
    "msgpack": msgspec.msgpack.Encoder().encode,
}
_TYPE_HEADERS: Final = {encoding: (b"content-type", name) for encoding, name in ANSWER_TYPES.items()}


class LookupRoute:
    """Answers `/v1/lookup`, any method."""

    def __init__(
        self,
        node: NodePort,
        bodies: BodyReader,
        requests: LookupRequests,
        request_ids: RequestIds,
        readying: Readying,
        *,
        access: Access,
    ) -> None:
        self._node = node
        self._bodies = bodies
        self._requests = requests
        self._request_ids = request_ids
        self._readying = readying
        self._access = access
        self._tracing = node.tracing

    def answer_now(self, query_string: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Reply | None:
        """The reply to a whole POST; None where the question takes the other way.

        It has to wait, for events or for the tokens of a text; or it takes so long to read that others must not wait.
        """
        started = time.perf_counter()
        label, answer = "unknown", None
        if is_coded(headers) or (len(body) > SLICED_BYTES and body[:1] == b"{"):
            return None
        try:
            caller = self._caller(headers)
            self._bodies.check(body)
            query, label, encoding = self._question(caller, query_string, headers, body)
            if query.text is not None:
                query = self._node.tokenized_before(query) or query
            if self._readying.has_to_wait(query):
                return None
            reply, answer = self._answer(query, encoding, started)
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            reply = self._refusal(error, headers)
        self._observe(label, reply[0], answer, time.perf_counter() - started, headers)
        return reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a caller that is gone gets none."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        label, answer = "unknown", None
        started = time.perf_counter()
        try:
            caller = scope[CALLER] = self._caller(headers)
            sharer = sharer_of(scope)
            with self._readying.lookups.place(sharer) as granted:
                self._admit(scope["method"], granted=granted)
                body = await self._bodies.read(receive, headers, sharer)
                started = time.perf_counter()  # a slow caller's network is not our time
                body = await self._bodies.plain(body, headers, sharer)
                form = body_form(headers.get(b"content-type"), ids_allowed=True)
                query, label = await self._requests.parse_long(form, body, scope["query_string"], headers)
                encoding = self._completed(query, caller, form, headers)
                del body
            if self._readying.has_to_wait(query):  # not among those that plain questions are refused for
                query = await while_there(receive, self._readying.ready(query, sharer))
            reply, answer = self._answer(query, encoding, started)
        except CallerGone:
            return
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            reply = self._refusal(error, headers)
        status, out, content = reply
        self._observe(label, status, answer, time.perf_counter() - started, headers)
        await send({"type": "http.response.start", "status": status, "headers": out})
        await send({"type": "http.response.body", "body": content})

    def _admit(self, method: str, *, granted: bool) -> None:
        """Raise what can be told before the body is read."""
        if method != "POST":
            raise RequestRefused(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "method.not_allowed",
                "this path takes POST",
                headers=[(b"allow", b"POST")],
            )
        if not granted:
            raise overload("lookups.too_many", "too many lookups are under way, of all callers or of this one")

    def _caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Who asks, known anew with each request. Raises `RequestRefused`."""
        caller = self._access.caller(headers.get(b"authorization"))
        require(caller, "lookup")
        return caller

    def _question(
        self, caller: Caller, query_string: bytes, headers: Mapping[bytes, bytes], body: bytes
    ) -> tuple[LookupQuery, str, Encoding]:
        form = body_form(headers.get(b"content-type"), ids_allowed=True)
        query, label = self._requests.parse(form, body, query_string, headers)
        return query, label, self._completed(query, caller, form, headers)

    def _completed(
        self, query: LookupQuery, caller: Caller, form: BodyForm, headers: Mapping[bytes, bytes]
    ) -> Encoding:
        """Put in what the body leaves open; how to answer. Raises `RequestRefused` where the tenant is another's."""
        query.tenant = tenant_of(caller, query.tenant)
        if query.request_id is None:
            query.request_id = self._request_ids.of(headers.get(b"x-request-id"))
        return answer_encoding(headers.get(b"accept"), form)

    def _observe(
        self, label: str, code: int, answer: LookupAnswer | None, seconds: float, headers: Mapping[bytes, bytes]
    ) -> None:
        """Count it, and trace it where that is wanted."""
        state = "" if answer is None else answer.state
        self._node.observe_lookup(api="rest", input=label, code=code, state=state, seconds=seconds)
        if self._tracing is not None:
            self._tracing.lookup(asked_by(headers, "rest", label), answer, code, seconds)

    def _answer(self, query: LookupQuery, encoding: Encoding, started: float) -> tuple[Reply, LookupAnswer]:
        answer = self._node.lookup(query, encoding=encoding)
        answer.took_us = int((time.perf_counter() - started) * 1e6)
        content = _ENCODERS[encoding](answer)
        return (200, [_TYPE_HEADERS[encoding], (b"content-length", b"%d" % len(content))], content), answer

    def _refusal(self, error: Exception, headers: Mapping[bytes, bytes]) -> Reply:
        request_id = self._request_ids.of(headers.get(b"x-request-id"))
        reached, denied = self._node.limit_reached, self._node.access_refused
        refusal = counted_refusal(error, reached, denied, request_id, headers.get(b"traceparent"))
        return problem_response(refusal, request_id)
