"""Replies of a replay conversation between the task that reads them and the session that judges them. Waits, no I/O."""

from __future__ import annotations

import asyncio
from collections import deque

from indexer.collect.commands import ReplayEnd
from indexer.model import RawBatch


class Inbox:
    """Replies of the running conversation, on their way from its task to the session; bounded in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._items: deque[tuple[int, list[RawBatch] | ReplayEnd]] = deque()
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, conversation: int, item: list[RawBatch] | ReplayEnd) -> None:
        """Add what came. Whoever adds waits for `room` before reading on."""
        self._items.append((conversation, item))
        self._used_bytes += _size_bytes(item)
        if self._used_bytes >= self._limit_bytes:
            self._room.clear()

    def take(self) -> tuple[int, list[RawBatch] | ReplayEnd]:
        """The oldest that is there."""
        conversation, item = self._items.popleft()
        self._used_bytes -= _size_bytes(item)
        if self._used_bytes < self._limit_bytes:
            self._room.set()
        return conversation, item

    async def room(self) -> None:
        """Wait until more may be added."""
        await self._room.wait()


def _size_bytes(item: list[RawBatch] | ReplayEnd) -> int:
    return 0 if isinstance(item, ReplayEnd) else sum(len(batch.payload) for batch in item)
