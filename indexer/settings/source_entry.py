"""A source as a map in the configuration file: the fields of `Descriptor` that an operator may give. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from indexer.errors import SettingsError
from indexer.model import Descriptor
from indexer.settings.convert import shown
from indexer.settings.source_flag import RANK_MAX, check_address, check_name, endpoint_of_rank, nearest

_SOURCE_KEYS: Final = tuple(name for name in Descriptor.__struct_fields__ if name != "origin")


def descriptor_of(entry: object, key: str) -> Descriptor:
    """A source given as a map. Raises `SettingsError`."""
    if not isinstance(entry, dict):
        raise SettingsError(key, f"a map or a NAME=ENDPOINT entry wanted, got {shown(entry)}")
    for name in entry:
        if name not in _SOURCE_KEYS:
            raise SettingsError(f"{key}.{name}", f"unknown key ({nearest(str(name), _SOURCE_KEYS)})")
    try:
        descriptor = msgspec.convert({**entry, "origin": "config"}, Descriptor)
    except msgspec.ValidationError as error:
        rule, _, where = str(error).partition(" - at `$")
        raise SettingsError(key + where.rstrip("`"), rule) from error
    _check(descriptor, key)
    return descriptor


def _check(descriptor: Descriptor, key: str) -> None:
    check_name(descriptor.pod, f"{key}.pod")
    for alias in descriptor.aliases:
        check_name(alias, f"{key}.aliases")
    if descriptor.endpoint is None:
        raise SettingsError(f"{key}.endpoint", "a source needs an endpoint")
    endpoint_of_rank(descriptor.endpoint, 0, f"{key}.endpoint")
    if descriptor.replay_endpoint is not None:
        endpoint_of_rank(descriptor.replay_endpoint, 0, f"{key}.replay_endpoint")
    if descriptor.address is not None:
        check_address(descriptor.address, f"{key}.address")
    if not 0 <= descriptor.dp_rank <= RANK_MAX:
        raise SettingsError(f"{key}.dp_rank", f"0..{RANK_MAX}, got {descriptor.dp_rank}")
