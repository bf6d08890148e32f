"""`/v1/sources` and below: who is followed, and what is known of them. Translation only; the node decides.

Who is bound to a tenant sees and changes its sources alone; others are not there for it (404). What changes a source or
looks into its blocks takes more than to reach the port (api/access/registering.py). Pod names in paths are
percent-encoded; `?dp_rank=N` narrows a command to one rank.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import named_in_log, tenant_of
from api.access.registering import Registering
from api.ports import NodePort
from api.problems import RequestRefused
from api.rest.exchange import Exchange, caller_of, path_name
from api.rest.query_options import options_from_query
from api.rest.registration import descriptor_of, descriptors_of
from indexer.errors import BadRequestError, FieldIssue
from schemas.history import HISTORY_LIMIT, HistoryFilters
from schemas.rest import (
    BlockList,
    CordonBody,
    RankFilter,
    ReplaceOptions,
    SourceBody,
    SourceFilters,
    SourceList,
    SourceRegistered,
    SourceSet,
    SourcesReplaced,
    SourcesTouched,
)

RANK_BEYOND: Final = 2**16
"""Greater than every rank: with it an `after` that names only a pod means after all its ranks."""

_HASH: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")


class SourceRoutes:
    """Handlers; each takes a request and returns a response or raises an `IndexerError`."""

    def __init__(self, node: NodePort, exchange: Exchange, registering: Registering) -> None:
        self._node = node
        self._exchange = exchange
        self._registering = registering

    async def list_sources(self, request: Request) -> Response:
        """`GET /v1/sources`."""
        filters = options_from_query(request.scope["query_string"], SourceFilters)
        limit = filters.limit or 0
        views = await self._node.source_views(
            state=filters.state,
            model=filters.model,
            limit=limit + 1 if limit else 0,  # one more tells whether there is more
            after=None if filters.after is None else cursor_of(filters.after),
            tenant=caller_of(request).tenant,
        )
        shown = views[:limit] if limit else views
        more = len(views) > len(shown)
        following = f"{shown[-1].pod}#{shown[-1].dp_rank}" if more else None
        models = self._node.followed_models
        told = SourceList(sources=shown, next=following, models_followed=msgspec.UNSET if models is None else models)
        return self._exchange.answer(request, told)

    async def add_source(self, request: Request) -> Response:
        """`POST /v1/sources`."""
        self._registering.require_may_register(request.scope, dict(request.headers.raw))
        body = await self._exchange.body(request, SourceBody)
        body.tenant = tenant_of(caller_of(request), body.tenant)
        descriptor = descriptor_of(body, silent_models=self._node.silent_models)
        self._registering.check([descriptor])
        answer = await self._node.add_source(descriptor, by=named_in_log(caller_of(request)))
        return self._done(request, answer, HTTPStatus.CREATED if answer.result == "created" else HTTPStatus.OK)

    async def replace_sources(self, request: Request) -> Response:
        """`PUT /v1/sources`."""
        self._registering.require_may_replace(request.scope, dict(request.headers.raw))
        caller = caller_of(request)
        options = options_from_query(request.scope["query_string"], ReplaceOptions)
        body: list[SourceBody] | SourceSet = await self._exchange.body(request, list[SourceBody] | SourceSet)  # type: ignore[arg-type]
        bodies = body.sources if isinstance(body, SourceSet) else body
        for each in bodies:
            each.tenant = tenant_of(caller, each.tenant)
        descriptors = await descriptors_of(bodies, self._node.silent_models)
        self._registering.check(descriptors, listed=True)
        await asyncio.sleep(0)  # entering a thousand of them takes 15 ms: nothing else in the same turn
        replaced = await self._node.replace_api_sources(
            descriptors, max_removals=options.max_removals, tenant=caller.tenant, by=named_in_log(caller)
        )
        return self._done(request, replaced)

    async def remove_source(self, request: Request) -> Response:
        """`DELETE /v1/sources/{pod}`."""
        pod, dp_rank, tenant = self._named(request)
        by = named_in_log(caller_of(request))
        return self._done(request, await self._node.remove_source(pod, dp_rank, tenant=tenant, by=by))

    async def cordon_source(self, request: Request) -> Response:
        """`PATCH /v1/sources/{pod}`."""
        pod, dp_rank, tenant = self._named(request)
        body = await self._exchange.body(request, CordonBody)
        by = named_in_log(caller_of(request))
        touched = await self._node.cordon_source(pod, dp_rank, cordoned=body.cordoned, tenant=tenant, by=by)
        return self._done(request, touched)

    async def clear_source(self, request: Request) -> Response:
        """`POST /v1/sources/{pod}/clear`."""
        pod, dp_rank, tenant = self._named(request)
        by = named_in_log(caller_of(request))
        return self._done(request, await self._node.clear_source(pod, dp_rank, tenant=tenant, by=by))

    async def find_block(self, request: Request) -> Response:
        """`GET /v1/sources/{pod}/blocks/{hash}`."""
        pod, dp_rank, tenant = self._named(request)
        text = path_name(request, "hash")
        found = _HASH.fullmatch(text)
        if found is None:
            raise BadRequestError("hash.not_hex", [FieldIssue("hash", "1..16 hexadecimal digits", text[:40])])
        blocks = await self._node.find_block(pod, dp_rank, int(found[1], 16), tenant=tenant)
        if not blocks:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "block.unknown", "this source holds no block by that hash")
        return self._exchange.answer(request, BlockList(blocks=blocks))

    async def history(self, request: Request) -> Response:
        """`GET /v1/sources/{pod}/history`."""
        filters = options_from_query(request.scope["query_string"], HistoryFilters)
        after: tuple[int, int, int] | None = None
        if filters.after is not None:
            ms, number, rank = map(int, filters.after.split("-"))
            after = ms, number, rank
        limit = filters.limit or HISTORY_LIMIT
        tenant = caller_of(request).tenant
        answer = await self._node.source_history(
            path_name(request), filters.dp_rank, limit=limit, after=after, tenant=tenant
        )
        return self._exchange.answer(request, answer)

    def _named(self, request: Request) -> tuple[str, int | None, str | None]:
        """Pod and rank of a path that not everybody may use, and the one tenant that the caller knows of, if so."""
        self._registering.require_may_change(request.scope, dict(request.headers.raw))
        rank = options_from_query(request.scope["query_string"], RankFilter).dp_rank
        return path_name(request), rank, caller_of(request).tenant

    def _done(
        self,
        request: Request,
        answer: SourceRegistered | SourcesReplaced | SourcesTouched,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response:
        """What became of a command: 202 where it is recorded but not seen to be in force."""
        return self._exchange.answer(request, answer, HTTPStatus.ACCEPTED if answer.effect == "accepted" else status)


def cursor_of(after: str) -> tuple[str, int]:
    """Pod and rank behind which a list goes on."""
    pod, mark, rank = after.rpartition("#")
    if mark and rank.isascii() and rank.isdigit() and len(rank) < 10:  # noqa: PLR2004 - else part of a name
        return pod, int(rank)
    return after, RANK_BEYOND
