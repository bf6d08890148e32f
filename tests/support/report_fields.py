"""Every field of a report by its path, from the shapes in the code, and what a report says there.

Lists and maps of shapes are passed through; a map whose keys are a closed list has a path for each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ON_A_STORE: Final = (
    "sources.clears.operator",
    "sources.counted",
    "sources.counts_age_ms",
    "sources.owner",
    "sources.journal_lag_ms",
)
"""Of the staleness report: `tests/contract/store/test_report_fields.py` has them differ."""


def fields_of(shape: type[msgspec.Struct], before: str = "") -> Iterator[str]:
    """Paths of all that is no shape itself."""
    for field in msgspec.structs.fields(shape):
        inner, path = _shape_in(field.type), before + field.encode_name
        if inner is None:
            yield path
        else:
            for key in _keys_of(field.type):
                yield from fields_of(inner, f"{path}.{key}." if key else f"{path}.")


def said(report: Any, path: str, open_keys: Mapping[str, str]) -> Any:  # noqa: ANN401  a report as a caller reads it
    """The value there: in the first of a list, at `open_keys` where keys are no closed list; None: it has none."""
    value = report
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = value[0]
        if name in open_keys and isinstance(value, dict):
            value = value.get(open_keys[name])
    return value


def _shape_in(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401  an annotation
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((shape for each in get_args(kind) if (shape := _shape_in(each))), None)


def _keys_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401  an annotation
    """Of a map whose keys are a closed list; else one that is none."""
    keys = get_args(kind)[0] if get_origin(kind) is dict else None
    return get_args(keys) if get_origin(keys) is Literal else ("",)
