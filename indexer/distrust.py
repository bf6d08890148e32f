"""What becomes of sources that keep reusing something else than is claimed of them (reports/drift.py).

They are `suspect` from then on, until a restart, a clear, or a new beginning of what is known of them. No single block
is taken back: by the time a report comes the engine has computed and announced these very blocks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from indexer.errors import LimitReachedError, SourceUnknownError
from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from indexer.ingest import SourceSink
    from indexer.model import SourceId
    from indexer.roster import Roster
    from schemas.rest import SourcesTouched

LOOK_S: Final = 0.5
BY: Final = "feedback.drift_policy"
"""Who clears them, for the line of the log."""


class Commands(Protocol):
    """With a store: another replica may be the one that applies a source's events."""

    async def doubt(self, source: SourceId, generation: int) -> None:
        """Its owner shall not believe what is known of it in that generation. Raises StoreFailure."""
        ...

    async def clear(self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str) -> SourcesTouched:
        """Everybody shall forget what is known of it. Raises StoreFailure, SourceUnknownError and LimitReachedError."""
        ...


class Distrust:
    """`clears`: what is known of them is forgotten, too, as far as `limits.max_clears_per_minute` allows."""

    def __init__(self, roster: Roster, *, clears: bool) -> None:
        self._roster = roster
        self._clears = clears
        self.commands: Commands | None = None
        """None in memory mode."""

    async def run(self, drifted: Callable[[], Mapping[SourceId, int]]) -> None:
        """Look after those that drifted since it looked last, until cancelled: a store may take its time."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.act(drifted())

    async def act(self, drifted: Mapping[SourceId, int]) -> None:
        """Of these sources, each in the generation that drifted: a later one has done nothing wrong yet."""
        for key, generation in drifted.items():
            sink = self._roster.sink(key)
            if sink is None or sink.source.facts.generation != generation:
                continue
            try:
                await self._act(sink, key, generation)
            except (LimitReachedError, SourceUnknownError, StoreFailure):
                continue  # where it goes on, it drifts again; limits and failures count themselves

    async def _act(self, sink: SourceSink, key: SourceId, generation: int) -> None:
        if not sink.followed:
            sink.doubt("drift")
        elif self.commands is not None:
            await self.commands.doubt(key, generation)
        if not self._clears:
            return
        if self.commands is not None:
            await self.commands.clear(key.pod, key.dp_rank, by=BY)
        else:
            self._roster.clear(key.pod, key.dp_rank, by=BY)
