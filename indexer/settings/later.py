"""Settings that are understood and checked, and that this version cannot honour yet. Pure."""

from __future__ import annotations

from indexer.errors import SettingsError
from indexer.settings.layers import BadSettings
from indexer.settings.sections import Settings


def refuse_what_is_not_there(settings: Settings) -> None:
    """Raise `BadSettings` for every such setting that is set: ignoring it would promise what nobody does."""
    errors = []
    if "lookup" not in settings.server.roles:
        errors.append(SettingsError("server.roles", "this version answers lookups in every role; add lookup"))
    if errors:
        raise BadSettings(errors)
