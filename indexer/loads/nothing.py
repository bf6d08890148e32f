"""Loads of which nobody tells anything. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from indexer.loads.known import LoadView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.model import SourceId


class NothingKnown:
    """Stands where nothing is read and nothing is kept."""

    def view(self, sources: Sequence[SourceId], now: float) -> LoadView:  # noqa: ARG002 - of nobody
        """Nothing."""
        return LoadView("none", None, MappingProxyType({}))

    def sent(self, source: SourceId, request_id: str, tenant: str | None, now: float) -> None:
        """It is not kept."""

    def ended(self, request_id: str, tenant: str | None) -> None:
        """Nor was it."""
