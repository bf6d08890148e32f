"""Which discoverers the settings ask for, in the order in which they win."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexer.discovery.found import Discoverer
    from indexer.ports import Clock
    from indexer.settings import Settings


def discoverers(settings: Settings, clock: Clock) -> tuple[Discoverer, ...]:
    """None where nothing is asked for."""
    del settings, clock
    return ()
