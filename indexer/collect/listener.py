"""An engine that another replica owns: connected along, and what it sends kept in a ring. I/O, without waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from indexer.collect.ring import Ring
from indexer.collect.shared import Shared
from indexer.collect.wire import Wire
from indexer.model import SourceId
from indexer.ports import EventSink, ListenerView, SuspectReason


class Standby(NamedTuple):
    """All that a subscriber needs to go on from a listener, and a listener from a subscriber."""

    wire: Wire
    ring: Ring
    told: EventSink | None = None
    """Whom the subscriber told things before it stepped down."""
    suspicions: frozenset[SuspectReason] = frozenset()
    """Of those, what nobody has taken back."""


class Listener:
    """A SUB socket, its monitor and its ring. No pulse: whether the engine answers is the owner's to say."""

    def __init__(self, endpoint: str | None, shared: Shared, standby: Standby | None = None) -> None:
        """`standby`: a subscriber's, who stepped down."""
        self._shared = shared
        self._standby = standby or Standby(Wire(endpoint, shared, self), shared.ring())
        self._wire, self.ring = self._standby.wire, self._standby.ring
        self._dropped_before = self.ring.dropped
        self._heard_at: float | None = None
        if standby is not None:
            self._wire.hand_to(self)

    @property
    def endpoint(self) -> str | None:
        """Where it is connected to."""
        return self._wire.endpoint

    def open(self) -> None:
        """Connect and begin to read. Raises zmq.ZMQError where the address is none or sockets or files have run out."""
        self._wire.open()

    def close(self) -> None:
        """Stop at once: what is kept is dropped."""
        self._wire.close()
        self.ring.clear()

    def hand_over(self) -> Standby:
        """Somebody else goes on with all this; nothing is read here any more."""
        return self._standby

    def drain(self) -> bool:
        """One quantum of what waits; True when there is more."""
        if self._wire.reader is not self:
            return False
        now = self._shared.clock.now()
        reading = self._wire.read(now)
        if reading.batches:
            self._heard_at = now
        self.ring.take_in(reading.changes, reading.batches, emptied=reading.emptied)
        return reading.more and self._wire.is_open

    def tick(self) -> None:
        """Look at the connection. Called at least every 500 ms."""
        if self._wire.pending:
            self._shared.pump.wake(self)
            self.drain()
        # Not while anything waits: what the owner was faster with may be among it.
        if self.ring.is_strange and not self.drain() and self.ring.part():
            self._wire.renew()
        self._wire.tick(self._shared.clock.now(), connected=self.ring.end.connected)

    @property
    def view(self) -> ListenerView:
        """What operators and the owning side see."""
        ring, link = self.ring, self.ring.end
        since = link.since if link.connected else None
        joins = ring.alive_at is not None and since is not None and since <= ring.alive_at
        dropped = ring.dropped - self._dropped_before
        return ListenerView(since, ring.batches, ring.used_bytes, dropped, joins, self._heard_at)


class ListenerViews(Mapping[SourceId, ListenerView]):
    """Of all of a process, each made when it is looked at: there may be a thousand."""

    def __init__(self, listeners: Mapping[SourceId, Listener]) -> None:
        self._listeners = listeners

    def __getitem__(self, source: SourceId) -> ListenerView:
        return self._listeners[source].view

    def __iter__(self) -> Iterator[SourceId]:
        return iter(list(self._listeners))

    def __len__(self) -> int:
        return len(self._listeners)
