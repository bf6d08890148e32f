"""An engine and the connections of several replicas to it, simulated: what each gives when it is read."""

from __future__ import annotations

from collections import deque

from indexer.collect.options import CollectOptions
from indexer.collect.pump import Drainable
from indexer.collect.ring import Change, Down, Up
from indexer.collect.wire import Reading
from indexer.model import RawBatch


class ScriptedWire:
    """In the place of `collect.wire.Wire`. It queues up to a high-water mark, and keeps that over a reconnect."""

    def __init__(self, options: CollectOptions) -> None:
        self.endpoint = "tcp://engine"
        self.reader: Drainable | None = None
        self.queue: deque[RawBatch] = deque()
        self.events: deque[Change] = deque()
        self.linked = False
        self.seen_at = 0.0
        """When it was last known to stand."""
        self.renewals = 0
        self._options = options

    def arrive(self, message: RawBatch) -> bool:
        """From the engine; False where it is lost."""
        if not self.linked or len(self.queue) >= self._options.rcvhwm_messages:
            return False
        self.queue.append(message)
        return True

    def connect(self, now: float) -> None:
        """The connection stands."""
        self.linked = True
        self.events.append(Up(now))

    def cut(self, now: float) -> None:
        """It is lost."""
        self.linked = False
        self.seen_at = now
        self.events.append(Down(now))

    # --- as a wire ---

    @property
    def is_open(self) -> bool:
        return True

    @property
    def pending(self) -> bool:
        return bool(self.events)

    def open(self) -> None:
        """It is."""

    def renew(self) -> None:
        """Another connection, of which nothing is known yet."""
        self.renewals += 1
        self.linked = False
        self.queue.clear()
        self.events.clear()

    def close(self) -> None:
        self.queue.clear()
        self.events.clear()
        self.linked = False

    def hand_to(self, reader: Drainable) -> None:
        self.reader = reader

    def tick(self, now: float, *, connected: bool) -> None:
        """Nothing to do."""

    def read(self, now: float) -> Reading:
        self.seen_at = now if self.linked else self.seen_at
        wanted = self._options.quantum_messages
        batches = [self.queue.popleft() for _ in range(min(wanted, len(self.queue)))]
        changes = list(self.events)
        self.events.clear()
        emptied = len(batches) < wanted and not changes
        return Reading(batches=batches, changes=changes, emptied=emptied, more=not emptied)
