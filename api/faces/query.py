"""`POST /query` and `/query_by_hash`: what a router that speaks another indexer's API asks before each of its requests.

Two ways lead here, as to our own lookup: a request that lies whole in one read (`answer_now`, a pure function of what
came), and any other through the application. Both decode, ask and encode by the same lines.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from api.access.caller import tenant_of
from api.faces.answers import dynamos, mooncakes
from api.faces.plain_hashes import PlainHashes
from api.faces.questions import Unreadable, by_hashes, by_tokens, plain_options
from api.faces.refusals import JSON, MSGPACK, as_response, refused, reply
from api.problems import RequestRefused, count_denial
from api.rest.body import is_coded
from api.rest.exchange import sharer_of
from api.rest.media import body_form
from api.rest.plain_json import PlainJson
from indexer.model import DEFAULT_TENANT
from indexer.trace_context import asked_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from api.access.caller import Caller
    from api.faces.refusals import Protocol, Reply
    from api.ports import NodePort
    from api.rest.body import BodyReader
    from api.rest.limits import RestLimits
    from api.rest.media import BodyForm
    from schemas.lookup import Holdings, LookupQuery

QUERY: Final = "/query"
QUERY_BY_HASH: Final = "/query_by_hash"


class QueryRoute:
    """Answers one of the two paths. `caller`: who everybody is here, for nobody shows who it is."""

    def __init__(self, path: str, node: NodePort, bodies: BodyReader, limits: RestLimits, caller: Caller) -> None:
        self._hashes = path == QUERY_BY_HASH
        self._node = node
        self._bodies = bodies
        self._tokens_max = limits.tokens
        self._caller = caller
        self._plain = PlainJson(limits.tokens, node.texts, plain_options)
        self._plain_hashes = PlainHashes()

    def answer_now(self, query_string: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Reply | None:  # noqa: ARG002 - these paths take no parameters
        """The reply to a whole POST; None where its body has to be decompressed, which takes the other way."""
        return None if is_coded(headers) else self._answer(headers, body)

    def _answer(self, headers: Mapping[bytes, bytes], body: bytes) -> Reply:
        started = time.perf_counter()
        protocol: Protocol | None = None
        form: BodyForm | None = None
        holdings: Holdings | None = None
        try:
            form = body_form(headers.get(b"content-type"), ids_allowed=False)
            self._bodies.check(body)
            query = self._question(form, body)
            protocol = "dynamo" if query.block_size is None else "mooncake"
            query.tenant = tenant_of(self._caller, query.tenant)
            holdings = self._node.holdings(query)
            held = holdings.held
            if protocol == "dynamo":
                out = reply(200, JSON, dynamos(held))
            else:
                packed = form == "msgpack"
                content = mooncakes(held, query.tenant or DEFAULT_TENANT, packed=packed)
                out = reply(200, MSGPACK if packed else JSON, content)
        except Unreadable as error:
            protocol = error.protocol
            out = refused(error.why, protocol)
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            count_denial(error, self._node.access_refused)
            out = refused(error, protocol)
        self._observe(protocol or "unknown", form, holdings, out[0], time.perf_counter() - started, headers)
        return out

    def _observe(
        self,
        api: str,
        form: BodyForm | None,
        holdings: Holdings | None,
        code: int,
        seconds: float,
        headers: Mapping[bytes, bytes],
    ) -> None:
        label = "unknown" if form is None else "hashes" if self._hashes else form
        state = "" if holdings is None else holdings.state
        self._node.observe_lookup(api=api, input=label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_by(headers, api, label), holdings, code, seconds)

    async def handle(self, request: Request) -> Response:
        """The same for a request that comes in parts."""
        headers = dict(request.headers.raw)
        sharer = sharer_of(request.scope)
        try:
            received = await self._bodies.read(request.receive, headers, sharer)
            body = await self._bodies.plain(received, headers, sharer)
        except RequestRefused as error:
            return as_response(refused(error, None))
        return as_response(self._answer(headers, body))

    def _question(self, form: BodyForm, content: bytes) -> LookupQuery:
        if self._hashes:
            return (self._plain_hashes.read(content) if form == "json" else None) or by_hashes(form, content)
        query = self._plain.read(content) if form == "json" else None
        return by_tokens(form, content, self._tokens_max) if query is None else query
