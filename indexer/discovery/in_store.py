"""A ledger in a store that replicas share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.discovery.keeper import Outcome
    from indexer.discovery.plan import Step
    from indexer.model import SourceId
    from indexer.partitions.discovered import Discovered
    from indexer.store.registered import Registered


class InStore:
    """Implements `keeper.Ledger`."""

    def __init__(self, registries: Discovered) -> None:
        self._registries = registries

    @property
    def watches(self) -> bool:
        """Whether this replica is the one that watches now."""
        return self._registries.watches

    async def read(self) -> Mapping[SourceId, Registered] | None:
        """What stands; None while the store does not answer."""
        return await self._registries.read()

    async def take(self, step: Step, *, counts: bool) -> Outcome:
        """One change, unless something else stands by now."""
        try:
            done = await self._registries.change(step.how, step.source, step.wanted, counts=counts)
        except StoreFailure:
            return "failed"
        return "done" if done else "changed"

    def holds_blocks(self, source: SourceId) -> bool:
        """Whether any of it are known."""
        return self._registries.holds_blocks(source)
