"""Whether an engine's process runs: a connection of its own that asks for nothing and is sent heartbeats. I/O.

The connection that carries the messages must have no heartbeats: libzmq aborts the whole process when one falls due on
a connection whose queue is full and whose peer is gone, and one that stands still behind a full queue sees no answers
and is cut for nothing (decisions/0010). No message comes here, so this one's queue is never full. A frozen process
leaves heartbeats unanswered and no handshake succeeds with it, although its kernel still accepts connections.
"""

from __future__ import annotations

import zmq

from indexer.collect.anew import Anew
from indexer.collect.options import CollectOptions
from indexer.collect.sockets import Link, Monitor, attach, attach_anew, open_pulse, state_of


class Pulse:
    """One engine's. Looked at by its subscriber's tick."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, options: CollectOptions, now: float
    ) -> None:
        """Connect. Raises zmq.ZMQError where the address is none or sockets or files have run out."""
        self._endpoint = endpoint
        self._options = options
        self._anew = Anew(options, now)
        self._looked_at = now
        self.beats = False
        """The process answered: its newest answer is at most heartbeat_interval_s + heartbeat_timeout_s old."""
        self.silent = False
        """The process did answer, and has not for heartbeat_timeout_s at least."""
        socket = open_pulse(context, options)
        try:
            self._monitor = Monitor(socket)
        except zmq.ZMQError:
            socket.close()
            raise
        self._socket = socket
        try:
            attach(socket, endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def look(self, now: float) -> None:
        """See what happened since the last look.

        Where that was too long ago, this process was paused: heartbeats were not sent either, so a connection that
        still stands proves nothing, and one is made anew.
        """
        paused = now - self._looked_at >= self._options.pause_s
        self._looked_at = now
        for link, _ in self._monitor.drain():
            self.beats = link is Link.UP
            self.silent = not self.beats
        # What comes unasked would fill the queue, and with a full queue this connection has the fault it is to avoid.
        unasked = bool(state_of(self._socket) & zmq.POLLIN)
        if paused or unasked:
            self.beats = self.silent = False
        if paused or unasked or self._anew.due(now, connected=self.beats):
            attach_anew(self._socket, self._endpoint)

    def close(self) -> None:
        """Stop at once."""
        self._monitor.close()
        self._socket.close()
