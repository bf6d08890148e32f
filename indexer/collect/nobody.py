"""In the place of the fleet where no engine is listened to: a replica that follows the store. Pure but for its wait.

What subscribes, ZMQ with it, takes 3 MB, and is loaded only by who does.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from indexer.collect.bound_stream import BoundCounts
    from indexer.model import Descriptor, SourceId
    from indexer.ports import EventSink, ListenerView


class NobodyHeard:
    """Implements ports.Collector, and what the node asks of collect/fleet.py beside: nothing happens."""

    standby_bytes = standby_dropped = 0
    bound_counts: Sequence[BoundCounts] = ()

    def start(self, sink: EventSink) -> None:
        """It hears nothing."""

    def stop(self, source: SourceId) -> None:
        """Nor did it."""

    def other_life(self, source: SourceId) -> bool:  # noqa: ARG002 - of nobody
        """Nobody subscribes who could be told."""
        return False

    def vouch(self, source: SourceId, at: float) -> None:
        """As above."""

    def step_down(self, source: SourceId) -> None:
        """As above."""

    def listen(self, descriptor: Descriptor) -> None:
        """As above."""

    def unlisten(self, source: SourceId) -> None:
        """As above."""

    def note(self, source: SourceId, cursor: int | None, stamp: float | None, alive_at: float | None) -> None:
        """Nothing is kept."""

    def listeners(self) -> Mapping[SourceId, ListenerView]:
        """There are none."""
        return MappingProxyType({})

    def sources(self) -> Sequence[SourceId]:
        """As above."""
        return ()

    def bind(self) -> None:
        """There is no socket to bind: settings refuse `events.source_bind` without the role `collect`."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        await stop.wait()
