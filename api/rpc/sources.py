"""`ListSources`: what `GET /v1/sources` tells, by pages. Translation only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from api.rest.explain import explain
from api.rest.sources import cursor_of
from api.rpc.questions import parsed
from schemas.rest import SourceFilters
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import (
    CacheGroup,
    ListSourcesRequest,
    ListSourcesResponse,
    Source,
    SourceLoad,
)

if TYPE_CHECKING:
    from api.ports import NodePort
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context
    from schemas.rest import SourceView


class SourceLists:
    """Handler."""

    def __init__(self, node: NodePort, calls: Calls, limits: RpcLimits) -> None:
        self._node = node
        self._calls = calls
        self._most = limits.listed

    async def list_sources(self, data: bytes, context: Context) -> bytes:
        """`ListSources`."""
        try:
            self._calls.hold(self._calls.others, context, "calls.too_many", "calls of such methods")
            caller = self._calls.caller(context, "lookup")
            return await self._page(_filters(parsed(ListSourcesRequest, data)), caller.tenant)
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)
            return b""  # never comes to it

    async def _page(self, filters: SourceFilters, tenant: str | None) -> bytes:
        limit = min(filters.limit or self._most, self._most)
        after = None if filters.after is None else cursor_of(filters.after)
        views = await self._node.source_views(
            state=filters.state, model=filters.model, limit=limit + 1, after=after, tenant=tenant
        )
        shown = [source_message(view) for view in views[:limit]]
        last = views[limit - 1] if len(views) > limit else None
        following = None if last is None else f"{last.pod}#{last.dp_rank}"
        return ListSourcesResponse(sources=shown, next=following).SerializeToString()


def source_message(view: SourceView) -> Source:
    """The same facts, field for field."""
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    fields["groups"] = [CacheGroup(**msgspec.structs.asdict(group)) for group in view.groups]
    fields["load"] = None if view.load is None else SourceLoad(**msgspec.structs.asdict(view.load))
    return Source(**fields)


def _filters(message: ListSourcesRequest) -> SourceFilters:
    """Checked by the rules of the query string. Raises `BadRequestError`."""
    given = {field.name: value for field, value in message.ListFields()}
    try:
        return msgspec.convert(given, SourceFilters)
    except msgspec.ValidationError as error:
        raise explain(SourceFilters, given, error) from None
