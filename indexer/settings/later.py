"""Settings that are understood and checked, and that this version cannot honour yet. Pure."""

from __future__ import annotations

from typing import Final

from indexer.errors import SettingsError
from indexer.settings.layers import BadSettings
from indexer.settings.sections import Settings

_LATER: Final = {
    "models.discover": "this version does not ask engines for their models",
}


def refuse_what_is_not_there(settings: Settings) -> None:
    """Raise `BadSettings` for every such setting that is set: ignoring it would promise what nobody does."""
    defaults = Settings()
    errors = [
        SettingsError(key, f"{why}; leave it out")
        for key, why in _LATER.items()
        if _value(settings, key) != _value(defaults, key)
    ]
    if "lookup" not in settings.server.roles:
        errors.append(SettingsError("server.roles", "this version answers lookups in every role; add lookup"))
    if errors:
        raise BadSettings(errors)


def _value(settings: Settings, key: str) -> object:
    value: object = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value
