"""Lookups that wait for a `min_sequence`, within limits of their own."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from api.problems import RequestRefused

if TYPE_CHECKING:
    from typing import Any

    from api.ports import NodePort
    from api.rpc.limits import RpcLimits
    from schemas.lookup import LookupQuery

SEQUENCE_WAIT_MS: Final = 1_000
"""Where the caller names no deadline; never longer than `SEQUENCE_WAIT_MS_MAX`. As in REST."""
SEQUENCE_WAIT_MS_MAX: Final = 60_000
HASH_BYTES: Final = 40
"""Of one block hash of a waiting question."""


class SequenceWaits:
    """One instance a server. While `stopping` is set nobody waits."""

    def __init__(self, node: NodePort, limits: RpcLimits, stopping: asyncio.Event) -> None:
        self._node = node
        self._limits = limits
        self._stopping = stopping
        self._waits = 0
        self._bytes = 0

    async def until_applied(self, query: LookupQuery) -> None:
        """Give the events that the caller knows of the time to arrive. Raises `RequestRefused` 429."""
        wait_ms = SEQUENCE_WAIT_MS if query.timeout_ms is None else min(query.timeout_ms, SEQUENCE_WAIT_MS_MAX)
        held = len(query.tokens or b"") + HASH_BYTES * len(query.block_hashes or ())
        if self._waits >= self._limits.sequence_waits:
            raise too_many("lookups.too_many_waits", f"{self._limits.sequence_waits} lookups wait for a sequence")
        if self._bytes + held > self._limits.sequence_wait_bytes:
            raise too_many("lookups.too_many_waits", "lookups that wait for a sequence hold too many bytes of prompts")
        self._waits += 1
        self._bytes += held
        try:
            await self._applied_or_over(query, wait_ms / 1_000)
        finally:
            self._waits -= 1
            self._bytes -= held

    async def _applied_or_over(self, query: LookupQuery, wait_s: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            ends: set[asyncio.Task[Any]] = {
                tasks.create_task(self._node.wait_applied(query, wait_s), name="lookup-applied"),
                tasks.create_task(self._stopping.wait(), name="lookup-over"),
            }
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()


def too_many(code: str, detail: str) -> RequestRefused:
    """What the next one is told when a limit is reached."""
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, code, detail)
