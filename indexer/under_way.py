"""A large batch of which a part is applied, and what came behind it. Pure bookkeeping."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from indexer.model import Event


@dataclass(slots=True)
class UnderWay:
    """One source's. `sequence` becomes its cursor at the end."""

    sequence: int
    pieces: Iterator[list[Event]]
    later: list[Callable[[], None]] = field(default_factory=list)
    """What else the collector told meanwhile, in order: at most a quantum, as it looks at `SourceSink.busy`."""
