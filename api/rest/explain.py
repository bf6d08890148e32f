"""Why a body was refused: field by field, with the rule, what came, and the nearest known name.

Runs only after the strict decoder refused. It walks the decoded document along the same types that the decoder used,
so a rule is never written twice. Pure. `got` shows a number, a name without blanks where names are taken, or a word
that may have been meant as a number; of everything else, which may be a prompt in the wrong place, only its kind.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Annotated, Final, cast

import msgspec
from msgspec import inspect

from indexer.errors import BadRequestError, FieldIssue
from indexer.settings.convert import in_words

ISSUES_MAX: Final = 8
GOT_MAX: Final = 40
NAME_MAX: Final = 64
BEGINNING_MIN: Final = 4
"""Letters of a known name that say which one was meant: `replay` is `replay_endpoint`."""
U32_MAX: Final = 2**32 - 1
U64_BITS: Final = 64
WALKED_MAX: Final = 4_096
"""Of a longer list of integers only the first wrong one is shown."""
SAID_MAX: Final = 200
_SAID: Final = re.compile(r"(?P<rule>.*) - at `\$\.?(?P<path>[^`]*)`\Z", re.DOTALL)
_QUOTED: Final = re.compile(r"(?<=unknown field `)[^`]*(?=`)|(?<=Invalid enum value ')[^']*(?=')", re.DOTALL)
"""Where the decoder repeats what came."""
_FIRST: Final = re.compile(r"\$\[([0-9]+)\]")
CONTENT_FIELDS: Final = frozenset(
    {"token_ids", "prompt", "messages", "tools", "documents", "chat_template_kwargs", "cache_salt"}
)
"""What stands in them is a caller's content: shown by its kind, never as it is, but for numbers that are no token."""
NO_TEXT: Final[Mapping[str, str]] = {
    "token_ids": "an array of ids; a text is sent as prompt",
    "block_hashes": "an array, also of one hash",
}
"""What to do where text came instead of an array."""
UNQUOTED: Final = "write it without quotation marks"
TOKENS_FIELD: Final = "token_ids"
UNKNOWN_FIELD: Final = "unknown field"

_COMPOSED: Final = (inspect.StructType, inspect.ListType, inspect.DictType, inspect.UnionType)
Finding = tuple[str, FieldIssue]
"""Code and issue."""


def explain(
    expected: type, document: object, error: msgspec.ValidationError, hints: Mapping[str, FieldIssue] | None = None
) -> BadRequestError:
    """The precise form of `error`, which the decoder raised for this document and type.

    `hints` maps unknown field names that deserve a better answer than "unknown" to it.
    """
    findings = list(islice(_walk(_info(expected), document, "", hints or {}), ISSUES_MAX))
    if not findings:
        return vague(error)
    return BadRequestError(findings[0][0], [issue for _, issue in findings])


def vague(error: msgspec.ValidationError) -> BadRequestError:
    """The decoder's own words, for a document too large or too deep to be walked: field and rule, not what came."""
    text = _QUOTED.sub(_named_only, str(error))[:SAID_MAX]
    said = _SAID.match(text)
    rule, path = (said["rule"], said["path"]) if said else (text, "")
    plain = _plain(path)
    code = "token_ids.not_u32" if path.startswith("token_ids[") else f"{plain or 'body'}.invalid"
    hint = NO_TEXT.get(path) if rule.endswith("got `str`") else None
    return BadRequestError(code, [FieldIssue(path or "body", in_words(rule), hint=hint)])


def _named_only(found: re.Match[str]) -> str:
    return _name(found[0])


def nearest(name: str, known: list[str]) -> str | None:
    """A hint with the known name that looks most like `name`, if any does."""
    begun = [each for each in known if len(name) >= BEGINNING_MIN and each.startswith(name)]
    close = difflib.get_close_matches(name[:NAME_MAX], known, n=1, cutoff=0.6)
    meant = begun[0] if len(begun) == 1 else close[0] if close else None
    return f"did you mean {meant}?" if meant else None


@lru_cache(maxsize=64)
def _info(expected: type) -> inspect.Type:
    return inspect.type_info(expected)


def _walk(kind: inspect.Type, value: object, path: str, hints: Mapping[str, FieldIssue]) -> Iterator[Finding]:
    match kind:
        case inspect.Metadata(type=inner) if isinstance(inner, _COMPOSED):
            yield from _walk(inner, value, path, hints)
        case inspect.AnyType():
            return  # read by a model's chat template alone, which has rules of its own
        case inspect.UnionType():
            yield from _walk_union(kind, value, path, hints)
        case inspect.StructType() if type(value) is dict:
            yield from _walk_struct(kind, value, path, hints)
        case inspect.ListType() | inspect.DictType() if _same_shape(kind, value) and _within(
            kind, len(cast("list[object]", value))
        ):
            yield from _walk_entries(kind, value, path, hints)
        case _:
            if not _scalar_fits(_bare(kind), value):
                yield _finding(kind, value, path)


def _walk_entries(
    kind: inspect.ListType | inspect.DictType, value: object, path: str, hints: Mapping[str, FieldIssue]
) -> Iterator[Finding]:
    if isinstance(kind, inspect.ListType):
        item = kind.item_type
        if isinstance(item, inspect.IntType) and len(cast("list[object]", value)) > WALKED_MAX:
            i = _first_wrong(item, value)
            if i is not None:
                yield from _walk(item, cast("list[object]", value)[i], f"{path}[{i}]", hints)
            return
        for i, entry in enumerate(cast("list[object]", value)):
            if type(item) is inspect.IntType and type(entry) is int and _in_range(item, entry):
                continue  # the usual entry of the longest list, before all else
            yield from _walk(item, entry, f"{path}[{i}]", hints)
    else:
        for key, entry in cast("dict[object, object]", value).items():
            yield from _walk(kind.value_type, entry, f'{path}["{_name(key)}"]', hints)


def _first_wrong(item: inspect.IntType, values: object) -> int | None:
    """Index of the first entry that is not such an integer, by the decoder: some fifty times faster than a walk."""
    try:
        msgspec.convert(values, list[Annotated[int, msgspec.Meta(ge=item.ge, le=item.le)]])
    except msgspec.ValidationError as error:
        found = _FIRST.search(str(error))
        return int(found[1]) if found else None
    return None


def _walk_union(
    kind: inspect.UnionType, value: object, path: str, hints: Mapping[str, FieldIssue]
) -> Iterator[Finding]:
    """A value fits if any member fits; else the member of the value's own shape explains best."""
    best: list[Finding] | None = None
    for member in kind.types:
        found = list(islice(_walk(member, value, path, hints), ISSUES_MAX))
        if not found:
            return
        if _same_shape(_bare(member), value):
            best = found
    yield from best or [_finding(kind, value, path)]


def _walk_struct(
    kind: inspect.StructType, value: dict[object, object], path: str, hints: Mapping[str, FieldIssue]
) -> Iterator[Finding]:
    fields = {field.encode_name: field for field in kind.fields}
    for key, entry in value.items():
        field = fields.get(key) if isinstance(key, str) else None
        if field is not None:
            yield from _walk(field.type, entry, _join(path, field.encode_name), hints)
        elif isinstance(key, str) and key in hints:
            yield f"{key}.not_available", hints[key]
        else:
            name = _name(key)
            yield "unknown_field", FieldIssue(_join(path, name), UNKNOWN_FIELD, None, nearest(name, list(fields)))
    for name, field in fields.items():
        if field.required and name not in value:
            yield (
                f"{_plain(_join(path, name))}.missing",
                FieldIssue(_join(path, name), f"required: {_rule(field.type, typed=True)}"),
            )


def _finding(kind: inspect.Type, value: object, path: str) -> Finding:
    plain = _plain(path)
    fitting = _same_shape(_bare(kind), value)
    rule, got = _rule(kind, typed=not fitting), _got(value, plain, named=_takes_text(kind))
    issue = FieldIssue(path or "body", rule, got, _hint(kind, value, path))
    if plain == "token_ids" and path != plain:
        return "token_ids.not_u32", issue
    return f"{plain or 'body'}.{'not_allowed' if fitting else 'wrong_type'}", issue


def _hint(kind: inspect.Type, value: object, path: str) -> str | None:
    if not isinstance(value, str):
        return None
    if path in NO_TEXT:
        return NO_TEXT[path]
    whole = any(isinstance(_bare(member), inspect.IntType | inspect.FloatType) for member in _members(kind))
    return UNQUOTED if whole and not _takes_text(kind) and _DIGITS.fullmatch(value) else None


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


_SHAPES: Final[dict[type, type]] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BoolType: bool,
    inspect.LiteralType: str,
    inspect.ListType: list,
    inspect.DictType: dict,
    inspect.StructType: dict,
    inspect.BytesType: bytes,
    inspect.NoneType: type(None),
}


def _same_shape(kind: inspect.Type, value: object) -> bool:
    if type(kind) is inspect.FloatType and type(value) is int:
        return True
    return type(value) is _SHAPES.get(type(kind))


def _scalar_fits(kind: inspect.Type, value: object) -> bool:
    if not _same_shape(kind, value):
        return False
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return _in_range(kind, cast("float", value))
        case inspect.StrType():
            return _within(kind, len(cast("str", value))) and (
                kind.pattern is None or re.search(kind.pattern, cast("str", value)) is not None
            )
        case inspect.LiteralType():
            return value in kind.values
        case inspect.ListType() | inspect.DictType():
            return False  # of the right shape, yet not walked: it is too long
        case _:
            return True


def _in_range(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _within(kind: inspect.StrType | inspect.ListType | inspect.DictType, length: int) -> bool:
    return (kind.min_length or 0) <= length and (kind.max_length is None or length <= kind.max_length)


def _rule(kind: inspect.Type, *, typed: bool) -> str:
    """What would be right; `typed`: with the type also where bounds say the rest."""
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(text)}):
            return text
        case inspect.Metadata(type=inner):
            return _rule(inner, typed=typed)
        case inspect.UnionType(types=members):
            return " or ".join(_rule(m, typed=typed) for m in members if type(m) is not inspect.NoneType)
        case inspect.ListType(item_type=item) if typed and isinstance(_bare(item), inspect.IntType):
            return f"{_KINDS[inspect.ListType]} of whole numbers"
        case inspect.IntType() | inspect.FloatType() if typed and (limits := _limits(kind)):
            return f"{_KINDS[type(kind)]}, {limits}"
        case _:
            return _limits(kind) or _KINDS.get(type(kind), "another type")


def _limits(kind: inspect.Type) -> str | None:
    """The rule of a type that has bounds."""
    match kind:
        case inspect.IntType(ge=low, le=high) | inspect.FloatType(ge=low, le=high) if {low, high} != {None}:
            return f"{'' if low is None else int(low)}..{'' if high is None else int(high)}"
        case inspect.StrType(min_length=low, max_length=high) if high is not None:
            return f"string of {low or 0}..{high} characters"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(map(str, values))
        case inspect.ListType(max_length=high) | inspect.DictType(max_length=high) if high is not None:
            return f"{_KINDS[type(kind)]} of at most {high} entries"
        case _:
            return None


_KINDS: Final[dict[type, str]] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "string",
    inspect.BoolType: "true or false",
    inspect.ListType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
    inspect.BytesType: "bytes",
}
_SHOWN: Final[dict[type, str]] = {list: "array", dict: "object", bytes: "bytes", type(None): "null", str: "string"}


def got_of(value: object, field: str) -> str:
    """What came in a field that takes no free text, cut short."""
    return _got(value, field, named=False)


def _takes_text(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(map(_takes_text, kind.types))
    return isinstance(_bare(kind), inspect.StrType | inspect.LiteralType)


def _got(value: object, plain: str, *, named: bool) -> str:
    """What came, cut short."""
    content = CONTENT_FIELDS.intersection(plain.split("."))
    if isinstance(value, int) and value.bit_length() > U64_BITS:
        return "a number beyond 64 bits"
    if isinstance(value, int | float):
        is_id = not isinstance(value, bool) and 0 <= value <= U32_MAX and value == int(value)
        hidden = not plain or (content and (content != {TOKENS_FIELD} or is_id))  # a bare list may be one of tokens
        return "number" if hidden else json.dumps(value)[:GOT_MAX]
    if isinstance(value, str) and not content and (_KEY if named else _WORD).fullmatch(value):
        return value if len(value) <= GOT_MAX else value[: GOT_MAX - 1] + "…"
    return _SHOWN.get(type(value), "another type")


def _name(key: object) -> str:
    """A key as far as it may be one that was meant."""
    text = key if isinstance(key, str) and _KEY.fullmatch(key) else "?"
    return text if len(text) <= NAME_MAX else text[: NAME_MAX - 1] + "…"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_DIGITS: Final = re.compile(r"-?[0-9]{1,20}(\.0*)?")
_WORD: Final = re.compile(r"[0-9A-Za-z.+_-]{0,20}")
_KEY: Final = re.compile(r"[!-~]{0,512}")
"""A name that may have been meant: in many languages a whole prompt has no blank in it."""

_INDEX: Final = re.compile(r"\[.*?\]")


def _plain(path: str) -> str:
    """The path without its indices: what the code of a problem is made of."""
    return _INDEX.sub("", path).lstrip(".")
