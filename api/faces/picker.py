"""`POST /lookup` and `GET /query`: what production-stack's picker for a gateway asks.

It sends model and prompt and goes to the one instance that is named, if that holds enough of it. Which of its pods that
instance is it asks by the pod's address, once.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from api.access.caller import tenant_of
from api.faces.questions import Unreadable, decoded
from api.faces.refusals import JSON, FaceRefused, as_response, refused, reply
from api.rest.exchange import sharer_of
from api.rest.media import body_form
from api.rest.query_options import options_from_query
from api.rest.readying import while_there
from indexer.errors import IndexerError
from indexer.model import DEFAULT_TENANT
from indexer.trace_context import asked_by
from schemas.lookup import LookupQuery, TextPrompt
from schemas.rest import TEXT_MAX, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from api.access.caller import Caller
    from api.faces.refusals import Reply
    from api.ports import NodePort
    from api.rest.body import BodyReader
    from api.rest.readying import Readying
    from schemas.lookup import Holding, Holdings
    from schemas.rest import SourceView

CLIENT_WAITS_MS: Final = 2_000
"""The picker goes its own way after so long."""


class PickerBody(msgspec.Struct, kw_only=True):
    """Body of `POST /lookup`. An empty model means any."""

    model: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None
    prompt: str


class WhoIs(msgspec.Struct, kw_only=True):
    """Query of `GET /query`."""

    ip: Text


class PickerRoutes:
    """Handlers. `caller`: who everybody is here, for nobody shows who it is."""

    def __init__(self, node: NodePort, bodies: BodyReader, caller: Caller, readying: Readying) -> None:
        self._node = node
        self._readying = readying
        self._bodies = bodies
        self._caller = caller

    async def lookup(self, request: Request) -> Response:
        """`POST /lookup`: the instance that holds most of the prompt; no name where nobody holds any."""
        headers = dict(request.headers.raw)
        label, held, started = "unknown", None, time.perf_counter()
        try:
            sharer = sharer_of(request.scope)
            received = await self._bodies.read(request.receive, headers, sharer)
            started = time.perf_counter()  # a slow caller's network is not our time
            content = await self._bodies.plain(received, headers, sharer)
            body = decoded(body_form(headers.get(b"content-type"), ids_allowed=False), content, PickerBody)
            label = "text"
            held = await while_there(request.receive, self._holdings(body, sharer))
            told = _named(held.held)
        except Unreadable as error:
            told = refused(error.why, "picker")
        except IndexerError as error:
            told = refused(error, "picker")
        code, state, seconds = int(told[0]), "" if held is None else held.state, time.perf_counter() - started
        self._node.observe_lookup(api="picker", input=label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_by(headers, "picker", label), held, code, seconds)
        return as_response(told)

    async def _holdings(self, body: PickerBody, sharer: str) -> Holdings:
        query = LookupQuery(
            model=body.model or None,
            tenant=tenant_of(self._caller, None),
            text=TextPrompt(prompt=body.prompt),
            timeout_ms=CLIENT_WAITS_MS,
        )
        return self._node.holdings(await self._readying.tokenized(query, sharer))

    async def who_is(self, request: Request) -> Response:
        """`GET /query?ip=`: the instance at that address."""
        try:
            ip = options_from_query(request.scope["query_string"], WhoIs).ip
            tenant = tenant_of(self._caller, None) or DEFAULT_TENANT
            for view in await self._node.source_views(counted=False):
                if view.tenant == tenant and ip in _hosts(view):
                    return as_response(reply(HTTPStatus.OK, JSON, msgspec.json.encode({"instance_id": view.pod})))
            raise FaceRefused(HTTPStatus.NOT_FOUND, "source.unknown", "no instance is known at that address")
        except IndexerError as error:
            return as_response(refused(error, "picker"))


def _named(held: Sequence[Holding]) -> Reply:
    best = max(held, key=lambda each: (each.storage, each.pod), default=None)
    said = {"instance_id": "" if best is None else best.pod, "tokens": 0 if best is None else best.storage}
    return reply(HTTPStatus.OK, JSON, msgspec.json.encode(said))


def _hosts(view: SourceView) -> set[str]:
    """The names of a source, and what stands before the port in those that have one."""
    names = {view.pod, *view.aliases, *([view.address] if view.address else [])}
    return names | {
        name.partition("://")[2].rpartition(":")[0] or name.rpartition(":")[0].strip("[]") for name in names
    }
