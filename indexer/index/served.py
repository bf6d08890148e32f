"""What an engine says it serves (`GET /v1/models`), and by which names it may be asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indexer.model import SourceId

NAMES_MAX: Final = 64
"""Names of the model that are taken of one engine's list; more are left out."""
ADAPTERS_MAX: Final = 256
"""Adapters."""
NAME_MAX: Final = 512
"""Characters; a longer name cannot be asked for."""


class Served(msgspec.Struct, frozen=True, array_like=True):
    """Of one engine: the name that its model has first, further names of it, and adapters that are loaded."""

    names: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()


class LearntNames:
    """Which models go by names that engines told, by tenant. One a process; changes cost what changes.

    Several models may be told to go by one name: then it is that of the first source, in the order of (pod, rank),
    which every replica has alike.
    """

    def __init__(self) -> None:
        self._meant: dict[tuple[str, str], dict[SourceId, str]] = {}

    def enter(self, tenant: str, source: SourceId, model: str, names: Iterable[str]) -> None:
        """These are further names of what the source serves."""
        for name in names:
            self._meant.setdefault((tenant, name), {})[source] = model

    def leave(self, tenant: str, source: SourceId, names: Iterable[str]) -> None:
        """They are no more."""
        for name in names:
            told = self._meant.get((tenant, name), {})
            told.pop(source, None)
            if not told:
                self._meant.pop((tenant, name), None)

    def meaning(self, tenant: str, name: str) -> str | None:
        """The model of that name; None: nobody told it."""
        told = self._meant.get((tenant, name))
        return told[min(told)] if told else None

    def known(self, tenant: str, most: int) -> list[str]:
        """Names of a tenant, some of them."""
        found = []
        for of, name in self._meant:
            if of == tenant:
                found.append(name)
                if len(found) == most:
                    break
        return found
