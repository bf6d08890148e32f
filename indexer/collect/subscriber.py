"""One source's sockets: bytes in, ordered raw batches out. I/O; what to do about them is decided by the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import zmq

from indexer.collect.anew import Anew
from indexer.collect.claims import Claims
from indexer.collect.commands import (
    Ask,
    Command,
    HangUp,
    ReplayEnd,
)
from indexer.collect.inbox import Inbox
from indexer.collect.lanes import Lane, LaneBudget
from indexer.collect.messages import read_messages
from indexer.collect.options import CollectOptions
from indexer.collect.pulse import Pulse
from indexer.collect.pump import Pump
from indexer.collect.session import Session
from indexer.collect.sockets import Link, Monitor, attach, attach_anew, descriptor_of, open_subscriber
from indexer.collect.telling import left_off, tell_core
from indexer.model import RawBatch
from indexer.ports import Clock, EventSink

AskEngine: TypeAlias = Callable[["Subscriber", Ask], "asyncio.Task[None] | None"]
"""Opens a conversation for a subscriber; None when the fleet is closing."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all subscribers of a process have in common."""

    context: zmq.Context[zmq.Socket[bytes]]
    options: CollectOptions
    clock: Clock
    budget: LaneBudget
    pump: Pump
    ask: AskEngine


class Subscriber:
    """A SUB socket, its monitor and the running conversation, for one registration.

    Messages are read first and the monitor after them: a message of a new connection is then never seen before the
    event that announces the connection. The other way round it could be applied as the old engine's.

    The socket is read whatever happens, and ahead of what is applied where that is slow. What finds no room is dropped
    here, never in ZMQ: a connection that breaks while its queue is full makes libzmq abort the process (libzmq #3937,
    decisions/0009).
    """

    def __init__(self, sink: EventSink, shared: Shared) -> None:
        self.sink = sink
        self.descriptor = sink.descriptor
        self._shared = shared
        self._lane = Lane(shared.options.lane_bytes, shared.budget)
        now = shared.clock.now()
        replay = self.descriptor.replay_endpoint is not None
        self.session = Session(shared.options, self._lane, now, replay=replay, resume=left_off(sink))
        self._claims = Claims(self.descriptor)
        self._inbox = Inbox(shared.options.replay_inbox_bytes)
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._descriptors: tuple[int, ...] = ()
        self._conversation: asyncio.Task[None] | None = None
        self._looked_at = now
        self._taken = 0
        self._moved_at = now
        self._anew = Anew(shared.options, now)
        self._pulse: Pulse | None = None
        self._perform(self.session.begin())

    # --- life ---

    def open(self) -> None:
        """Connect and begin to read. Raises zmq.ZMQError where the address is none or sockets or files have run out."""
        if self._socket is not None or self.descriptor.endpoint is None:
            return
        socket = open_subscriber(self._shared.context, self._shared.options)
        try:
            monitor = Monitor(socket)
        except zmq.ZMQError:
            socket.close()
            raise
        self._socket, self._monitor = socket, monitor
        try:
            attach(socket, self.descriptor.endpoint)
        except zmq.ZMQError:
            self.close()
            raise
        try:
            self._pulse = Pulse(
                self._shared.context, self.descriptor.endpoint, self._shared.options, self._shared.clock.now()
            )
        except zmq.ZMQError:
            self.close()
            raise
        self._descriptors = (descriptor_of(socket), monitor.descriptor)
        loop = asyncio.get_running_loop()
        for descriptor in self._descriptors:
            loop.add_reader(descriptor, self._shared.pump.wake, self)
        self._shared.pump.wake(self)

    def close(self) -> None:
        """Stop at once: what was read but not applied is dropped."""
        if self._conversation is not None:
            self._conversation.cancel()
            self._conversation = None
        self._lane.clear()
        if self._descriptors:
            loop = asyncio.get_running_loop()
            for descriptor in self._descriptors:
                loop.remove_reader(descriptor)
            self._descriptors = ()
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # --- reading ---

    def drain(self) -> bool:
        """One quantum of everything that waits; True when there is more."""
        socket, monitor = self._socket, self._monitor
        if socket is None or monitor is None or not self.sink.open:
            return False
        now = self._shared.clock.now()
        if self.sink.go_on():
            self._perform(self.session.backlogged())  # messages are read, and wait in the lane
        more = self._drain_sockets(socket, monitor, now)
        if self._inbox and not self.sink.busy:
            self._take_replies(now)
        if self.session.drains_lane and not self.sink.busy:
            self._perform(self.session.drain_lane(now))
        return more or self.sink.busy or self.session.drains_lane or bool(self._inbox)

    def _drain_sockets(self, socket: zmq.Socket[bytes], monitor: Monitor, now: float) -> bool:
        options = self._shared.options
        batches, malformed, emptied = read_messages(socket, options)
        backlog = False
        self._taken += len(batches) + malformed
        if emptied or self._taken * 2 > options.rcvhwm_messages:
            self._taken, self._moved_at = 0, now
        elif now - self._moved_at >= options.read_ahead_after_s:
            ahead, bad, emptied = read_messages(socket, options, ahead=True)
            batches, malformed, backlog = batches + ahead, malformed + bad, True
            self._taken, self._moved_at = 0, now
        if malformed:
            self.sink.count("frames_malformed", malformed)
        changes = monitor.drain()
        if changes:
            self._on_changes([link for link, _ in changes], now)
            emptied = False  # what is left of the old connection may have come in behind that look
        self._looked_at = now
        if backlog:
            self._perform(self.session.backlogged())
        if batches:
            self._perform(self._claims.check(batches))
            self._perform(self.session.messages(batches, now))
        if emptied:
            self._perform(self.session.socket_empty(now))
        return not emptied

    def tick(self) -> None:
        """Look at the connections and let the session know that time passes. Called at least every 500 ms."""
        if self._monitor is not None and self._monitor.pending:
            self._shared.pump.wake(self)
            self.drain()
        now = self._looked_at = self._shared.clock.now()
        if self._pulse is not None:
            self._pulse.look(now)
        self._keep_connecting(now)
        commands = self.session.tick(now, answers=self._pulse is not None and self._pulse.beats)
        if commands:
            self._perform(commands)
            self._shared.pump.wake(self)  # what they ended may have let the lane go
        self._tell_alive()

    def _on_changes(self, links: Iterable[Link], now: float) -> None:
        since = now if now - self._looked_at <= 2 * self._shared.options.tick_s else self._looked_at
        for link in links:
            if link is Link.UP:
                self._claims.look_again()
                self._perform(self.session.connection_up(now))
                if self._pulse is not None:
                    self._pulse.silent = False  # whoever shook hands runs; the pulse itself is back in a moment
            else:
                self._perform(self.session.connection_down(since))
        self.sink.alive(self.session.connected)

    def _tell_alive(self) -> None:
        """Both connections tell: one that the process runs, the other that its messages reach us.

        A process whose connection stands but whose heartbeats are overdue has been silent for that long. After a pause
        of our own nothing is told before it answers again: what was seen last speaks for itself.
        """
        pulse, connected = self._pulse, self.session.connected
        if pulse is None or not connected:
            self.sink.alive(connected=False)
        elif pulse.beats:
            self.sink.alive(connected=True)
        elif pulse.silent:
            self.sink.alive(connected=False, silent_s=self._shared.options.heartbeat_timeout_s)

    def _keep_connecting(self, now: float) -> None:
        socket, endpoint = self._socket, self.descriptor.endpoint
        if socket is not None and endpoint is not None and self._anew.due(now, connected=self.session.connected):
            attach_anew(socket, endpoint)

    # --- replay ---

    async def deliver(self, conversation: int, batches: list[RawBatch], malformed: int) -> None:
        """Replies of a conversation; waits while the session has enough to do."""
        if malformed:
            self.sink.count("frames_malformed", malformed)
        self._inbox.put(conversation, batches)
        self._shared.pump.wake(self)
        await self._inbox.room()

    def conversation_ended(self, conversation: int, end: ReplayEnd) -> None:
        """A conversation ended by itself."""
        self._inbox.put(conversation, end)
        self._shared.pump.wake(self)

    def _take_replies(self, now: float) -> None:
        conversation, item = self._inbox.take()
        if isinstance(item, ReplayEnd):
            self._perform(self.session.replay_ended(conversation, item, now))
        else:
            self._perform(self._claims.check_replayed(item))
            self._perform(self.session.replayed(conversation, item, now))

    def _perform(self, commands: Iterable[Command]) -> None:
        sink = self.sink
        for command in commands:
            if type(command) is RawBatch:
                sink.apply(command)
            elif isinstance(command, HangUp):
                self._hang_up()
            elif isinstance(command, Ask):
                self._hang_up()
                self._conversation = self._shared.ask(self, command)
            else:
                tell_core(command, sink)
        if sink.busy:  # a large batch is under way: the source is syncing, and its messages wait in the lane
            for command in self.session.backlogged():
                self._perform([command])

    def _hang_up(self) -> None:
        if self._conversation is not None:
            self._conversation.cancel()
            self._conversation = None
