"""`/v1/reports`: what an operator reads or puts into a sheet. Translation only; the node reports."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import tenant_of
from api.ports import NodePort
from api.rest.consistency_sheet import CONSISTENCY_COLUMNS, consistency_lines
from api.rest.exchange import Exchange, caller_of
from api.rest.query_options import options_from_query
from indexer.model import TIER_NAMES
from schemas.reports import ConsistencyFilters, StalenessFilters, StalenessRow

CSV: Final = "text/csv; charset=utf-8; header=present"
_BEGINS_FORMULA: Final = tuple("=+-@\t\r")
"""What a spreadsheet would take for a formula; names may come from whoever registers."""


class ReportRoutes:
    """Handlers."""

    def __init__(self, node: NodePort, exchange: Exchange) -> None:
        self._node = node
        self._exchange = exchange

    async def staleness(self, request: Request) -> Response:
        """`GET /v1/reports/staleness`."""
        filters = options_from_query(request.scope["query_string"], StalenessFilters)
        report = await self._node.staleness_report(
            pod=filters.pod, model=filters.model, state=filters.state, tenant=caller_of(request).tenant
        )
        if filters.format == "csv":
            return Response(as_csv(report.sources), media_type=CSV)
        return self._exchange.answer(request, report)

    async def consistency(self, request: Request) -> Response:
        """`GET /v1/reports/consistency`."""
        filters = options_from_query(request.scope["query_string"], ConsistencyFilters)
        report = await self._node.consistency_report(
            pod=filters.pod,
            model=filters.model,
            tenant=tenant_of(caller_of(request), filters.tenant),
            window=filters.window,
        )
        if filters.format == "csv":
            return Response(sheet(CONSISTENCY_COLUMNS, consistency_lines(report.sources)), media_type=CSV)
        return self._exchange.answer(request, report)


def as_csv(rows: list[StalenessRow]) -> str:
    """A line a source; columns are the same however many there are and whatever they hold."""
    return sheet(COLUMNS, (dict(_flat(msgspec.to_builtins(row))) for row in rows))


def sheet(columns: Sequence[str], lines: Iterable[Mapping[str, object]]) -> str:
    """As CSV with a header. What a line has no value for is empty."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_cell(line.get(column)) for column in columns])
    return out.getvalue()


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """What is nested, by its path."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _flat(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, "; ".join(map(str, value))
    else:
        yield path, value


def _columns(kind: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    """Of the fields of a row, from its type: of tiers all that there are."""
    for field in msgspec.structs.fields(kind):
        name = f"{path}.{field.encode_name}" if path else field.encode_name
        if field.name == "tiers":
            tier = field.type.__args__[1]
            for each in TIER_NAMES:
                yield from _columns(tier, f"{name}.{each}")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _columns(field.type, name)
        else:
            yield name


COLUMNS: Final = tuple(_columns(StalenessRow))


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"  # as in JSON
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_FORMULA) else value
