"""[I/O] The lease of a partition, renewed in time: while it is loaded, which may take longer than one, and after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.lease import release, renew
from indexer.store.outcomes import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Refusal

RETRY_S: Final = 0.1


class Holding:
    """`until`, on our clock, the partition is ours at least."""

    def __init__(self, parts: Parts, keys: PartitionKeys, token: bytes, until: float) -> None:
        self._parts = parts
        self._keys = keys
        self._token = token
        self.until = until

    async def renew(self, renewed: Callable[[], None]) -> Refusal:
        """Renew the lease in time, again and again, until the store refuses; `renewed` is called each time."""
        lease_s, chance = self._parts.options.lease_s, self._parts.chance
        rest = lease_s / 3
        while True:
            await asyncio.sleep(rest)
            asked_at = self._parts.clock.now()
            try:
                reply = await renew(self._parts.client, self._keys, self._token, self._parts.options.lease_ms)
            except StoreFailure:
                rest = min(RETRY_S + chance.random() * RETRY_S, lease_s / 3)
                continue
            if not isinstance(reply, Done):
                return reply
            self.until, rest = asked_at + lease_s, lease_s / 3
            renewed()

    async def release(self, to: str) -> Done | Refusal:
        """Give it up; `to`: who may have it first, empty for anybody. Raises StoreFailure."""
        try:
            return await release(self._parts.client, self._keys, self._token, to=to)
        except StoreFailure as failure:
            if not to or failure.kind != "out_of_memory":
                raise
        return await release(self._parts.client, self._keys, self._token)  # takes no room

    async def during(self, work: Coroutine[None, None, None]) -> None:
        """Do it, and renew the lease meanwhile. Raises what it raises of StoreFailure and DamagedValue."""
        failure: StoreFailure | DamagedValue | None = None
        async with asyncio.TaskGroup() as tasks:
            # Whoever has it now will be told by their own calls, and we by the first one that writes.
            renewing = tasks.create_task(self.renew(_nothing), name="store: renew while loading")
            try:
                await work
            except (StoreFailure, DamagedValue) as told:
                failure = told
            renewing.cancel()
        if failure is not None:
            raise failure


def _nothing() -> None:
    """Nobody asks yet."""
