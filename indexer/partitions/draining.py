"""[I/O] Having a replica give up all that it owns, at an operator's word, given to any replica.

A mark in the store names the process; all replicas then plan without it, and it hands its partitions over one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from typing import TYPE_CHECKING, Final

from indexer.errors import DrainRefusedError, ReplicaUnknownError
from indexer.store.failures import StoreFailure
from indexer.store.members import lift_drain, mark_drain
from schemas.rest import ReplicaDrained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from indexer.ports import Clock
    from indexer.sharding.members import Member, Members
    from indexer.store.client import Client

WAIT_S: Final = 2.0
"""So long an answer waits for the last partition to be handed over."""
POLL_S: Final = 0.25


class Draining:
    """`key` is the deployment's; `beat` has the store asked who is there, and `members` told."""

    def __init__(
        self,
        client: Client,
        key: bytes,
        members: Members,
        beat: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        retain_ms: int,
    ) -> None:
        self._client = client
        self._key = key
        self._members = members
        self._beat = beat
        self._clock = clock
        self._retain_ms = retain_ms

    async def drain(self, name: str) -> ReplicaDrained:
        """Mark it, and wait a little until it owns nothing; once more does no harm.

        Raises `ReplicaUnknownError`, `DrainRefusedError` where it is silent or nobody could take over, `StoreFailure`.
        """
        await self._beat()
        age_s, member = self._known(name)
        if member.collects and not member.leaving:  # else it owns nothing, or gives it up already
            if name not in self._members.live(self._clock.now()):
                raise DrainRefusedError(f"{name} is silent for {age_s:.0f} s: others take over what it owned")
            self._want_others(name)
            await mark_drain(self._client, self._key, name, member.process, self._retain_ms)
            await self._beat()
            try:
                self._want_others(name)
            except DrainRefusedError:  # the last one was drained, or left, at the same time
                await lift_drain(self._client, self._key, name)
                raise
        ends_at = self._clock.now() + WAIT_S
        while self._owned(name) and self._clock.now() < ends_at:
            await asyncio.sleep(POLL_S)
            with contextlib.suppress(StoreFailure):  # the mark stands, and it is told how far it is when it is known
                await self._beat()
        return self._told(name)

    async def undrain(self, name: str) -> ReplicaDrained:
        """Take the mark away. Raises `ReplicaUnknownError`, `StoreFailure`."""
        await self._beat()
        self._known(name)
        await lift_drain(self._client, self._key, name)
        await self._beat()
        return self._told(name)

    def _known(self, name: str) -> tuple[float, Member]:
        known = self._members.everyone(self._clock.now())
        if name not in known:
            raise ReplicaUnknownError(name, next(iter(difflib.get_close_matches(name, known, n=1)), None))
        return known[name]

    def _want_others(self, name: str) -> None:
        if not self._members.candidates(self._clock.now()) - {name}:
            raise DrainRefusedError(
                f"nobody could take over from {name}: no other replica is there that collects, and neither stops nor "
                "drains"
            )

    def _owned(self, name: str) -> int:
        known = self._members.everyone(self._clock.now())
        return len(known[name][1].owned) if name in known else 0

    def _told(self, name: str) -> ReplicaDrained:
        owned, draining = self._owned(name), self._members.is_draining(name)
        known = self._members.everyone(self._clock.now())
        is_leaving = name in known and known[name][1].leaving
        is_under_way = (draining or is_leaving) and owned > 0
        return ReplicaDrained(name=name, draining=draining, owned=owned, effect="accepted" if is_under_way else "done")
