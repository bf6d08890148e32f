"""Which models a replica follows, as sources carry them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexer.settings.sections import Models


def followed_models(models: Models) -> frozenset[str] | None:
    """Those of `models.follow`, an alias being what it stands for. None: all."""
    if not models.follow:
        return None
    return frozenset(models.aliases.get(name, name) for name in models.follow)
