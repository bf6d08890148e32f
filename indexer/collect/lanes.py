"""A bounded lane per source: live messages wait in order while a replay or a probe runs. Pure.

Counted in bytes over the process, because a limit in messages is no limit: a batch may be 100 bytes or 16 MiB.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from indexer.model import RawBatch

BATCH_OVERHEAD_BYTES: Final = 240
"""What one held batch costs beside its payload: tuple, two bytes objects, one int, a slot in the lane."""


class LaneBudget:
    """What all lanes of the process may hold together."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0


class Lane:
    """First in, first out, bounded.

    Once full it takes nothing more until it is empty: what follows a loss is of no use before the loss is healed. An
    empty lane takes one message of any size, or a source that sends large ones would never get on.
    """

    __slots__ = (
        "_batches",
        "_budget",
        "_known",
        "_limit_bytes",
        "_marked",
        "_older",
        "_popped_known",
        "_popped_older",
        "overflowed",
        "used_bytes",
    )

    def __init__(self, limit_bytes: int, budget: LaneBudget) -> None:
        self._batches: deque[RawBatch] = deque()
        self._budget = budget
        self._limit_bytes = limit_bytes
        self._marked = 0
        self._known = self._older = 0
        self._popped_known = self._popped_older = False  # and may be put back
        self.used_bytes = 0
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def first_sequence(self) -> int | None:
        """Number of the oldest held batch."""
        return self._batches[0].sequence if self._batches else None

    @property
    def first(self) -> RawBatch | None:
        """The oldest held batch."""
        return self._batches[0] if self._batches else None

    def push(self, batch: RawBatch) -> bool:
        """Hold a batch behind the others. False: it did not fit and is lost, and so will be all after it."""
        cost = cost_bytes(batch)
        if (
            self.overflowed
            or (self._batches and self.used_bytes + cost > self._limit_bytes)
            or self._budget.used_bytes + cost > self._budget.limit_bytes
        ):
            self.overflowed = True
            return False
        self._batches.append(batch)
        self._account(cost)
        return True

    def put_back(self, batch: RawBatch) -> None:
        """Hold a batch before all others. Always fits: it was just taken from here or is the only one."""
        self._batches.appendleft(batch)
        self._known += self._popped_known
        self._older += self._popped_older
        self._account(cost_bytes(batch))

    def pop(self) -> RawBatch:
        """Take the oldest batch out."""
        batch = self._batches.popleft()
        self._account(-cost_bytes(batch))
        self._marked = max(0, self._marked - 1)
        self._popped_known, self._popped_older = self._known > 0, self._older > 0
        self._known -= self._popped_known
        self._older -= self._popped_older
        if not self._batches:
            self.overflowed = False
        return batch

    def mark(self) -> None:
        """Remember what is held now: `drop_marked` drops just that."""
        self._marked = len(self._batches)

    def unmark(self) -> None:
        """What is held stays."""
        self._marked = 0

    def drop_marked(self) -> None:
        """Drop what was held at the last `mark`."""
        while self._marked:
            self.pop()

    def begin_connection(self, *, examined: bool) -> None:
        """What is held now came by a connection before the one that begins. `examined`: of a process that is known."""
        self._older = len(self._batches)
        if examined:
            self._known = self._older

    def drop_older(self) -> None:
        """Drop what came by a connection before the present one."""
        while self._older > 0:
            self.pop()

    def take_all(self) -> tuple[list[RawBatch], int, int]:
        """Take all out, the oldest first.

        And how many of them came before the connection was lost the first time since it was known to whom it is, and
        how many before the present one.
        """
        batches, known, older = list(self._batches), self._known, self._older
        self.clear()
        return batches, known, older

    def clear(self) -> None:
        """Drop everything and give the bytes back."""
        self._batches.clear()
        self._account(-self.used_bytes)
        self._marked = self._known = self._older = 0
        self._popped_known = self._popped_older = False
        self.overflowed = False

    def _account(self, cost: int) -> None:
        self.used_bytes += cost
        self._budget.used_bytes += cost


def cost_bytes(batch: RawBatch) -> int:
    """What holding it takes."""
    return len(batch.payload) + len(batch.topic) + BATCH_OVERHEAD_BYTES
