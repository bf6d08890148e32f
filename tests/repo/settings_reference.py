"""SETTINGS.md out of the sections of settings: names, defaults, bounds and docstrings. `make settings` writes it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from indexer.model import Descriptor
from indexer.settings.convert import members_of, secrecy
from indexer.settings.forms import Section
from indexer.settings.sections import Settings

FILE: Final = Path(__file__).parents[2] / "SETTINGS.md"
HEAD: Final = """# Settings

Made by `make settings` out of `indexer/settings/sections.py` and its neighbours; change it there.

Each can be given in a YAML file (`kvindexer serve --config FILE`, a map a section), in the environment and, a few of
them, by flags; the later wins. `limits.batch` is `batch` in the map `limits`, or `KVINDEXER_LIMITS__BATCH`; deeper ones
go on with `__` again (`KVINDEXER_STALENESS__ENTRY_TTL_S__STORAGE`). In the environment a value is written as in YAML,
and an empty one changes nothing. `KVINDEXER_ROLES` and `KVINDEXER_SOURCES` take what `--roles` and `--source` take, the
latter with blanks between.

An unknown key, or a value that is not allowed, stops the start with everything that is wrong; `kvindexer config
--check` tells it beforehand, and `kvindexer config` what the settings come to. Units are in the names: `_s` seconds,
`_ms` milliseconds, `_bytes` bytes.
"""
_UNITS: Final = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_WORDS: Final = {int: "a whole number", float: "a number", str: "text", bool: "`true` or `false`", type(None): "`null`"}
_HIDDEN: Final = {None: "", "all": " A secret: shown as `***`.", "url": " Its password is shown as `***`."}
_NOT_GIVEN: Final = {"origin"}
"""Of a source: who named it, which nobody gives."""


def reference() -> str:
    """The whole document."""
    parts = [HEAD]
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            parts.append(f"## {field.name}\n\n{_paragraph(field.type)}\n\n{_table(_rows(field.type, field.name))}")
        else:
            parts.append(f"## {field.name}\n\n{_meanings(Settings)[field.name]}\n\n{_table(_rows(Descriptor, ''))}")
    return "\n".join(parts)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    return (
        "\n".join(lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows])
        + "\n"
    )


def _rows(section: type[msgspec.Struct], above: str) -> list[tuple[str, str, str, str]]:
    meanings = _meanings(section)
    rows: list[tuple[str, str, str, str]] = []
    for field in msgspec.structs.fields(section):
        if field.name in _NOT_GIVEN:
            continue
        name = f"{above}.{field.name}" if above else field.name
        if isinstance(field.type, type) and issubclass(field.type, Section):
            rows += _rows(field.type, name)
            continue
        meaning = meanings.get(field.name) or _paragraph(section)
        meaning += _HIDDEN[secrecy(field.type)]
        rows.append((f"`{name}`", _default(field, name), _allowed(field.type, name), meaning))
        if (entry := _entries_of(field.type)) is not None:
            rows += _rows(entry, f"{name}.NAME")
    return rows


def _entries_of(annotation: object) -> type[Section] | None:
    """Of a map of sections: the section."""
    entry = get_args(annotation)[1] if get_origin(annotation) is dict else None
    return entry if isinstance(entry, type) and issubclass(entry, Section) else None


def _paragraph(section: type[msgspec.Struct]) -> str:
    return " ".join(inspect.cleandoc(section.__doc__ or "").split())


def _meanings(section: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings that stand under the fields."""
    (body,) = (node for node in ast.parse(textwrap.dedent(inspect.getsource(section))).body)
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, told in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(told, ast.Expr):
            assert isinstance(told.value, ast.Constant)
            found[field.target.id] = " ".join(str(told.value.value).split())
    return found


def _default(field: msgspec.structs.FieldInfo, name: str) -> str:
    if field.required:
        return "must be given"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()  # type: ignore[operator]
    return _size(value) if name.endswith("_bytes") else _value(value)


def _value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return f"`{msgspec.json.encode(value).decode()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value:g}`" if isinstance(value, float) and value < 1_000_000 else f"`{value}`"


def _size(value: object) -> str:
    """Bytes, as a file has them and as people say them."""
    assert isinstance(value, int)
    unit = next((f" ({value // size:,} {word})" for size, word in _UNITS if value and value % size == 0), "")
    return f"`{value}`{unit}"


def _allowed(annotation: object, name: str) -> str:
    return " or ".join(_member(member, name) for member in members_of(annotation))


def _member(member: Any, name: str) -> str:  # noqa: ANN401  any type of a setting
    metas: tuple[Meta, ...] = ()
    if get_origin(member) is Annotated:
        member, *rest = get_args(member)
        metas = tuple(meta for meta in rest if isinstance(meta, Meta))
    if described := next((meta.description for meta in metas if meta.description), None):
        return described
    if get_origin(member) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(member))
    if get_origin(member) is tuple:
        some = "one or more of " if any(meta.min_length for meta in metas) else ""
        return f"a list: {some}{_allowed(get_args(member)[0], name)}"
    if get_origin(member) is dict:
        entry = get_args(member)[1]
        return "a map of names to " + ("maps, whose keys follow" if _entries_of(member) else _allowed(entry, name))
    return _WORDS[member] + "".join(_bounds(meta, name) for meta in metas)


def _bounds(meta: Meta, name: str) -> str:
    show = _size if name.endswith("_bytes") else lambda number: f"{number:,}"
    told = [
        f"{words} {show(bound)}"
        for words, bound in (("more than", meta.gt), ("at least", meta.ge), ("at most", meta.le))
        if bound is not None
    ]
    if meta.max_length is not None:
        told.append(f"{meta.min_length or 0} to {meta.max_length:,} characters")
    return "".join(f", {each}" for each in told)


if __name__ == "__main__":
    FILE.write_text(reference())
