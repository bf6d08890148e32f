"""Options in the query string, for bodies that are bare token bytes, and for paths with filters. Pure.

Lists by repeating the key; objects as JSON text; a scalar given twice is refused. Values become what they would be in
a JSON body, then the same decoder and the same explanations apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from api.problems import RequestRefused
from api.rest.explain import explain
from indexer.errors import BadRequestError, FieldIssue

T = TypeVar("T")

FIELDS_MAX: Final = 70_000
"""Parameters in one query string; above every list that a lookup may carry."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS: Final = {"true": True, "false": False}
NO_HINTS: Final[Mapping[str, FieldIssue]] = {}


def options_from_query(query_string: bytes, kind: type[T], hints: Mapping[str, FieldIssue] = NO_HINTS) -> T:
    """The struct that the query string spells.

    Raises `BadRequestError`, and `RequestRefused` 400 for what is no query string.
    """
    members = _members(query_string, kind)
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        raise explain(kind, members, error, hints) from None


def _members(query_string: bytes, kind: type) -> dict[str, object]:
    shapes = _shapes(kind)
    members: dict[str, object] = {}
    for key, text in _pairs(query_string):
        shape = shapes.get(key, inspect.StrType)
        if shape is inspect.ListType:
            listed = members.setdefault(key, [])
            if isinstance(listed, list):
                listed.extend(_entries(text) if key == "mm_items" else [text])
        elif key in members:
            raise BadRequestError(f"{key[:64]}.repeated", [FieldIssue(key[:64], "given once")])
        else:
            members[key] = _scalar(shape, text)
    return members


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:  # also of characters that are no UTF-8
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST,
            "query.malformed",
            "the query string is not percent-encoded UTF-8 of a bearable length",
        ) from None


def _scalar(shape: type, text: str) -> object:
    if shape is inspect.IntType and _INTEGER.fullmatch(text):
        return int(text)
    if shape is inspect.BoolType:
        return _BOOLEANS.get(text.lower(), text)
    if shape in {inspect.DictType, inspect.StructType}:
        return _json(text)
    return text


def _entries(text: str) -> list[object]:
    """One JSON object, or an array of them."""
    value = _json(text)
    return value if isinstance(value, list) else [value]


def _json(text: str) -> object:
    """The value, or the text as it is, which the decoder will then refuse by name."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


@lru_cache(maxsize=16)
def _shapes(kind: type) -> dict[str, type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - a programming error, not input
    return {field.encode_name: type(_bare(field.type)) for field in info.fields}


def _bare(kind: inspect.Type) -> inspect.Type:
    """The type without its annotations and without null."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _bare(next(member for member in kind.types if not isinstance(member, inspect.NoneType)))
    return kind
