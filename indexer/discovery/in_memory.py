"""A ledger where there is no store: the sources of this process. It always watches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.store.registered import Registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.discovery.keeper import Outcome
    from indexer.discovery.plan import Step
    from indexer.index.registry import Registry
    from indexer.model import SourceId
    from indexer.roster import Roster


SOURCES_A_TURN: Final = 128
"""That are read: some half a millisecond."""


class InMemory:
    """Implements `keeper.Ledger`."""

    watches: Final = True

    def __init__(self, roster: Roster, registry: Registry) -> None:
        self._roster = roster
        self._registry = registry
        self._read_at = -1
        """How often sources had come and gone when this was read."""

    async def read(self) -> Mapping[SourceId, Registered]:
        """What stands."""
        self._read_at = self._roster.changes
        standing = {}
        for nth, (key, source) in enumerate(list(self._registry.sources.items())):
            standing[key] = Registered.of(source)
            if nth % SOURCES_A_TURN == SOURCES_A_TURN - 1:
                await asyncio.sleep(0)
        return standing

    async def take(self, step: Step, *, counts: bool) -> Outcome:  # noqa: ARG002  it was counted when it was allowed
        """One change, unless something else stands by now: a caller's source may have a name that was planned for."""
        source = self._registry.sources.get(step.source)
        if self._roster.changes != self._read_at or (None if source is None else Registered.of(source)) != step.stands:
            return "changed"
        if step.wanted is None:
            self._roster.undiscover(step.source)
        elif step.how == "edit":
            self._roster.edit(step.source, step.wanted)
        else:
            self._roster.discover(step.wanted)
        self._read_at = self._roster.changes
        return "done"

    def holds_blocks(self, source: SourceId) -> bool:
        """Whether any of it are known."""
        known = self._registry.sources.get(source)
        return known is not None and any(known.holdings[1:])
