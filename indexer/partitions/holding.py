"""[I/O] A partition is held while it is loaded, which may take longer than a lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.lease import renew
from indexer.store.outcomes import Done

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys

RETRY_S: Final = 0.1


class Holding:
    """`until`, on our clock, the partition is ours at least."""

    def __init__(self, parts: Parts, keys: PartitionKeys, token: bytes, until: float) -> None:
        self._parts = parts
        self._keys = keys
        self._token = token
        self.until = until

    async def during(self, work: Coroutine[None, None, None]) -> None:
        """Do it, and renew the lease meanwhile. Raises what it raises of StoreFailure and DamagedValue."""
        failure: StoreFailure | DamagedValue | None = None
        async with asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(self._renew(), name="store: renew while loading")
            try:
                await work
            except (StoreFailure, DamagedValue) as told:
                failure = told
            renewing.cancel()
        if failure is not None:
            raise failure

    async def _renew(self) -> None:
        """Until somebody else has it, which whoever writes then will be told, too."""
        lease_s = self._parts.options.lease_s
        rest = lease_s / 3
        while True:
            await asyncio.sleep(rest)
            asked_at = self._parts.clock.now()
            try:
                reply = await renew(self._parts.client, self._keys, self._token, self._parts.options.lease_ms)
            except StoreFailure:
                rest = min(RETRY_S, lease_s / 3)
                continue
            if not isinstance(reply, Done):
                return
            self.until, rest = asked_at + lease_s, lease_s / 3
