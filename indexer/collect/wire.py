"""The connection that carries one engine's messages: a SUB socket and its monitor. I/O, without waiting.

Messages are read first and the monitor after them: a message of a new connection is then never seen before the event
that announces the connection. The other way round it could be applied as the old engine's.

The socket is read whatever happens, and ahead of what is applied where that is slow. What finds no room is dropped by
whoever reads, never in ZMQ: a connection that breaks while its queue is full makes libzmq abort the process (libzmq
#3937, decisions/0009).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import zmq

from indexer.collect.anew import Anew
from indexer.collect.messages import read_messages
from indexer.collect.pump import Drainable
from indexer.collect.ring import Change, Down, Up
from indexer.collect.shared import Shared
from indexer.collect.sockets import Link, Monitor, attach, attach_anew, descriptor_of, open_subscriber
from indexer.model import RawBatch


@dataclass(slots=True)
class Reading:
    """One look at the sockets. Changes are told before the messages."""

    changes: list[Change] = field(default_factory=list)
    batches: list[RawBatch] = field(default_factory=list)
    malformed: int = 0
    emptied: bool = False
    """Nothing more waits, and all of it is of the present connection."""
    more: bool = False
    """Come again: something waits."""
    backlog: bool = False
    """More arrives than is read in quanta: what ZMQ had queued was taken."""


class Wire:
    """One engine's. It outlives whoever reads it: `reader` is woken when something came."""

    def __init__(self, endpoint: str | None, shared: Shared, reader: Drainable) -> None:
        self.endpoint = endpoint
        self.reader = reader
        self._shared = shared
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._descriptors: tuple[int, ...] = ()
        now = shared.clock.now()
        self._looked_at = now
        self._taken = 0
        self._moved_at = now
        self._anew = Anew(shared.options, now)

    def open(self) -> None:
        """Connect and begin to read. Raises zmq.ZMQError where the address is none or sockets or files have run out."""
        if self._socket is not None or self.endpoint is None:
            return
        socket = open_subscriber(self._shared.context, self._shared.options)
        try:
            monitor = Monitor(socket)
        except zmq.ZMQError:
            socket.close()
            raise
        self._socket, self._monitor = socket, monitor
        try:
            attach(socket, self.endpoint)
        except zmq.ZMQError:
            self.close()
            raise
        self._descriptors = (descriptor_of(socket), monitor.descriptor)
        loop = asyncio.get_running_loop()
        for descriptor in self._descriptors:
            loop.add_reader(descriptor, self._wake)
        self._wake()

    def close(self) -> None:
        """Stop at once."""
        if self._descriptors:
            loop = asyncio.get_running_loop()
            for descriptor in self._descriptors:
                loop.remove_reader(descriptor)
            self._descriptors = ()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def is_open(self) -> bool:
        """Whether there is anything to read."""
        return self._socket is not None

    def hand_to(self, reader: Drainable) -> None:
        """Somebody else reads from here on."""
        self.reader = reader
        self._wake()

    def read(self, now: float) -> Reading:
        """A quantum of what waits."""
        socket, monitor = self._socket, self._monitor
        if socket is None or monitor is None:
            return Reading()
        options = self._shared.options
        batches, malformed, emptied = read_messages(socket, options)
        reading = Reading(batches=batches, malformed=malformed)
        self._taken += len(batches) + malformed
        if emptied or self._taken * 2 > options.rcvhwm_messages:
            self._taken, self._moved_at = 0, now
        elif now - self._moved_at >= options.read_ahead_after_s:
            ahead, bad, emptied = read_messages(socket, options, ahead=True)
            batches += ahead
            reading.malformed += bad
            reading.backlog = True
            self._taken, self._moved_at = 0, now
        since = now if now - self._looked_at <= 2 * options.tick_s else self._looked_at
        for link, _ in monitor.drain():
            reading.changes.append(Up(now) if link is Link.UP else Down(since))
        # What is left of the old connection may have come in behind the look that found nothing.
        reading.emptied = emptied and not reading.changes
        reading.more = not reading.emptied
        self._looked_at = now
        return reading

    def tick(self, now: float, *, connected: bool) -> None:
        """The monitor was looked at just now; connect anew where ZMQ may have given up."""
        self._looked_at = now
        if self._socket is not None and self.endpoint is not None and self._anew.due(now, connected=connected):
            attach_anew(self._socket, self.endpoint)

    def renew(self) -> None:
        """Give the connection up, with all that waits of it, and make another. ZMQ says nothing of its end."""
        if self._socket is not None and self.endpoint is not None:
            attach_anew(self._socket, self.endpoint)

    @property
    def pending(self) -> bool:
        """Whether the connection changed."""
        return self._monitor is not None and self._monitor.pending

    def _wake(self) -> None:
        self._shared.pump.wake(self.reader)
