"""The file of tokens: what stands in it, and what is wrong with it. Pure.

A list, in YAML or JSON, of entries with a name, the SHA-256 of the token, its scopes, and a tenant where it is bound to
one. The tokens themselves stand nowhere. What is refused is named by its place and its rule; nothing of it is quoted,
since whoever puts a token where its hash belongs must not find it in a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.access.caller import SCOPES, Caller, Scope
from api.access.files import FileUnusable

ENTRIES_MAX: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.@/-]{1,64}")
_RULES: Final[dict[str, str]] = {
    "name": "1..64 letters, digits or any of _ . @ / -",
    "sha256": "the SHA-256 of the token, 64 hexadecimal digits: kvindexer token makes both",
    "scopes": f"one or more of {', '.join(sorted(SCOPES))}, as a list",
    "tenant": "text of 1..256 characters, or left out for a token of all tenants",
}
_FIELD: Final = re.compile(r"`\$\.(\w+)")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token."""

    name: Annotated[str, Meta(pattern=rf"^{_NAME.pattern}\Z")]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z")]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=16)]
    tenant: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


def callers_by_digest(content: bytes) -> dict[bytes, Caller]:
    """Who shows which token, by the digest of the token. Raises `FileUnusable`."""
    entries = _decoded(content)
    if not isinstance(entries, list):
        raise FileUnusable("a list of entries is wanted, each with name, sha256 and scopes")
    if len(entries) > ENTRIES_MAX:
        raise FileUnusable(f"has more than {ENTRIES_MAX} entries")
    found: dict[bytes, Caller] = {}
    names: set[str] = set()
    for place, told in enumerate(entries):
        entry = _entry(place, told)
        if entry.name in names:
            raise FileUnusable(f"{_called(place, told)}: name: another entry has it")
        digest = bytes.fromhex(entry.sha256)
        if digest in found:
            raise FileUnusable(f"{_called(place, told)}: sha256: the entry {found[digest].name} has the same token")
        names.add(entry.name)
        found[digest] = Caller(entry.name, frozenset(entry.scopes), entry.tenant)
    return found


def _decoded(content: bytes) -> object:
    """JSON where it is that: it is read a hundred times faster."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.yaml.decode(content)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        mark = getattr(error.__cause__, "problem_mark", None)
        where = "" if mark is None else f", see line {mark.line + 1}"
        raise FileUnusable(f"is neither YAML nor JSON{where}") from None


def _entry(place: int, told: object) -> Entry:
    try:
        return msgspec.convert(told, Entry)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        unknown = sorted(map(str, set(told) - set(_RULES))) if isinstance(told, Mapping) else []
        missing = [name for name in ("name", "sha256", "scopes") if isinstance(told, Mapping) and name not in told]
        if unknown:
            rule = f"an entry has {', '.join(_RULES)}, and nothing else"
        elif missing:
            rule = f"{missing[0]} is missing: {_RULES[missing[0]]}"
        elif field is not None:
            rule = f"{field[1]}: {_RULES[field[1]]}"
        else:
            rule = f"a map of {', '.join(_RULES)} is wanted"
        raise FileUnusable(f"{_called(place, told)}: {rule}") from None


def _called(place: int, told: object) -> str:
    """Its place, and its name where that is one."""
    name = told.get("name") if isinstance(told, Mapping) else None
    return f"entry {place + 1} ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else f"entry {place + 1}"
