"""The effective settings as plain values with secrets masked: what `config` and `GET /v1/config` show. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from indexer.model import Descriptor
from indexer.settings.convert import secrecy
from indexer.settings.forms import Section
from indexer.settings.sections import Settings

MASK: Final = "***"

_IN_QUERY: Final = re.compile(r"(?<=[?&]password=)[^&]*")
_BEFORE_HOST: Final = re.compile(r"(?<=://)(?P<user>[^/@:]*):.*@")  # to the last @: rather too much than too little


def masked(settings: Settings) -> dict[str, Any]:
    """Nested plain values in the order of the sections; sources without their defaults."""
    plain = _plain(settings)
    plain["sources"] = [_source(descriptor) for descriptor in settings.sources]
    return plain


def without_password(url: str) -> str:
    """The url with its password masked; the user name stays."""
    return _BEFORE_HOST.sub(rf"\g<user>:{MASK}@", _IN_QUERY.sub(MASK, url))


def _plain(section: Section) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        hidden = secrecy(field.type)
        if isinstance(value, Section):
            values[field.name] = _plain(value)
        elif value is None or hidden is None:
            values[field.name] = msgspec.to_builtins(value)
        elif isinstance(value, dict):
            values[field.name] = dict.fromkeys(value, MASK)
        else:
            values[field.name] = without_password(value) if hidden == "url" else MASK
    return values


def _source(descriptor: Descriptor) -> dict[str, Any]:
    fields = msgspec.structs.fields(Descriptor)
    given = {f.name: getattr(descriptor, f.name) for f in fields}
    defaults = {f.name: f.default for f in fields} | {"labels": {}, "aliases": ()}
    return {name: msgspec.to_builtins(value) for name, value in given.items() if value != defaults[name]}
