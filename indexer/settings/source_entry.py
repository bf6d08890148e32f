"""A source as a map in the configuration file: the fields of `Descriptor` that an operator may give. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.errors import SettingsError
from indexer.model import Descriptor
from indexer.settings.convert import converted, shown
from indexer.settings.source_flag import BLOCKS_MAX, RANK_MAX, check_address, check_name, endpoint_of_rank, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Descriptor) if field.name != "origin"}


def descriptor_of(entry: object, key: str, errors: list[SettingsError]) -> Descriptor | None:
    """A source given as a map; None where something is wrong, which then stands in `errors`, field by field."""
    if not isinstance(entry, dict):
        errors.append(SettingsError(key, f"a map or a NAME=ENDPOINT entry wanted, got {shown(entry)}"))
        return None
    found: list[SettingsError] = []
    given: dict[str, object] = {}
    for name, value in entry.items():
        field = _FIELDS.get(name)
        if field is None:
            found.append(SettingsError(f"{key}.{name}", f"unknown key ({nearest(str(name), tuple(_FIELDS))})"))
            continue
        try:
            given[field.name] = converted(value, str if field.name == "endpoint" else field.type)
            _check(field.name, given[field.name], f"{key}.{field.name}")
        except SettingsError as error:
            found.append(error)
        except ValueError as error:
            found.append(SettingsError(f"{key}.{field.name}", f"{error}, got {shown(value)}"))
    if entry.keys() <= _FIELDS.keys():  # else a misspelt one may be it
        # relations.py: without endpoint where its model is one whose engines may announce nothing
        needed = (("pod", "a pod"), *(() if "model" in entry else (("endpoint", "an endpoint"),)))
        found += [
            SettingsError(f"{key}.{name}", f"a source needs {what}") for name, what in needed if name not in entry
        ]
    errors += found
    return None if found else msgspec.convert({**given, "origin": "config"}, Descriptor)


def _check(name: str, value: object, key: str) -> None:
    """What types do not say. Raises `SettingsError`."""
    check = _CHECKS.get(name)
    if check is not None and value is not None:
        check(value, key)


def _check_endpoint(value: object, key: str) -> None:
    endpoint_of_rank(str(value), 0, key)


def _check_aliases(value: object, key: str) -> None:
    for alias in value if isinstance(value, tuple) else ():
        check_name(alias, key)


def _bounded(low: int, high: int) -> Callable[[object, str], None]:
    def check(value: object, key: str) -> None:
        if not isinstance(value, int) or not low <= value <= high:
            raise SettingsError(key, f"{low}..{high}, got {value}")

    return check


_CHECKS: Final[dict[str, Callable[[object, str], None]]] = {
    "pod": lambda value, key: check_name(str(value), key),
    "aliases": _check_aliases,
    "endpoint": _check_endpoint,
    "replay_endpoint": _check_endpoint,
    "address": lambda value, key: check_address(str(value), key),
    "dp_rank": _bounded(0, RANK_MAX),
    "blocks_total": _bounded(1, BLOCKS_MAX),
}
