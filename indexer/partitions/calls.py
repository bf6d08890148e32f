"""[I/O] Calls that write an entry of the journal: one after the other, each known to be done or not before the next.

A call of which it is not known is sent again until it is: nothing else may follow it (decisions/0014). It outlives the
epoch: the first entry of the next one names the last entry before it, which tells.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from indexer.partitions.parts import Parts
    from indexer.store.client import Reply
    from indexer.store.entries import Position
    from indexer.store.journal import Journal
    from indexer.store.outcomes import Fenced, Lost, Refusal

T = TypeVar("T")
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 1.0


class EpochOver(Exception):
    """Nothing more may be written: somebody else owns the partition, or nobody, or the store went back."""

    def __init__(self, why: Fenced | Lost) -> None:
        super().__init__(type(why).__name__)
        self.why = why


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of which it is not known whether it was done: `position` is its entry's."""

    position: Position
    outcome: Callable[[Reply], object]
    was_done: Callable[[], None]
    was_not: Callable[[], None]


class Calls:
    """Of one epoch. Whoever makes one holds `turn`."""

    def __init__(self, parts: Parts, journal: Journal) -> None:
        self._parts = parts
        self._journal = journal
        self.turn = asyncio.Lock()
        self.open: OpenCall | None = None
        self.wrote_at = parts.clock.now()
        """When the store last took an entry."""

    async def make(
        self,
        call: Callable[[], Awaitable[T | Refusal]],
        outcome: Callable[[Reply], T | Refusal],
        was_done: Callable[[], None],
        was_not: Callable[[], None],
    ) -> T | Refusal | None:
        """Make a call and learn whether it was done. None: it was not, and the store refuses it for now."""
        try:
            await self.settle_open()  # of a hand-over that took too long
        except asyncio.CancelledError:
            was_not()  # else what the caller took for it would wait no more, and never be written
            raise
        position = self._journal.position.next
        opened = self.open = OpenCall(position, outcome, was_done, was_not)
        reply: T | Refusal | None = None
        try:
            reply = await call()
        except StoreFailure:
            reply = await self._settle(outcome)
        self._close(opened)
        return reply

    def _close(self, call: OpenCall) -> None:
        """It is known whether it was done. Where the next epoch's first entry told that meanwhile, all is done."""
        if self.open is not call:
            return
        self.open = None
        if self._journal.position == call.position:
            self.wrote_at = self._parts.clock.now()
            call.was_done()
        else:
            call.was_not()

    async def _settle(self, outcome: Callable[[Reply], T | Refusal]) -> T | Refusal | None:
        rest = RETRY_S
        while not self._journal.is_settled:
            await self._parts.rest(rest)
            rest = min(2 * rest, RETRY_MAX_S)
            try:
                return await self._journal.settle(outcome)
            except StoreFailure:
                continue
        return None

    async def settle_open(self) -> None:
        """Learn it of a call whose task was cancelled over it."""
        opened = self.open
        if opened is not None:
            await self._settle(opened.outcome)
            self._close(opened)
