"""The consistency report as a sheet: a line a source and window. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from indexer.reports.causes import CAUSES
from indexer.trust import AGE_CLASSES
from schemas.reports import AgeFigures, CauseFigures, ConsistencyFigures, ConsistencyRow

_OF_SOURCE: Final = ("pod", "dp_rank", "model", "tenant", "state", "drifted")


def _columns() -> Iterator[str]:
    """Of all ages and causes that there are, whatever a report has."""
    yield from (*_OF_SOURCE, "window")
    inner = {"by_age": (AGE_CLASSES, AgeFigures), "causes": (CAUSES, CauseFigures)}
    for name in ConsistencyFigures.__struct_fields__:
        if name not in inner:
            yield name
            continue
        keys, figures = inner[name]
        yield from (f"{name}.{key}.{field}" for key in keys for field in figures.__struct_fields__)


CONSISTENCY_COLUMNS: Final = tuple(_columns())


def consistency_lines(rows: Iterable[ConsistencyRow]) -> Iterator[dict[str, object]]:
    """By column."""
    for row in rows:
        source = {name: getattr(row, name) for name in _OF_SOURCE}
        for window, figures in row.windows.items():
            line: dict[str, object] = {**source, "window": window}
            for name, value in msgspec.structs.asdict(figures).items():
                if isinstance(value, dict):
                    for key, inner in value.items():
                        line |= {f"{name}.{key}.{field}": told for field, told in msgspec.structs.asdict(inner).items()}
                else:
                    line[name] = value
            yield line
