"""One source's messages and replies: told to its session, and what that decides carried out. I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from math import inf

import zmq

from indexer.collect.claims import Claims
from indexer.collect.commands import Ask, Command, ConnectAnew, ReplayEnd, SocketCommand
from indexer.collect.inbox import Inbox
from indexer.collect.lanes import Lane
from indexer.collect.listener import Standby
from indexer.collect.pulse import Pulse
from indexer.collect.rejoin import rejoin
from indexer.collect.ring import Change, Down, Ring, Up
from indexer.collect.session import Session
from indexer.collect.shared import Shared
from indexer.collect.telling import left_off, tell_core
from indexer.collect.unheard import Unheard
from indexer.collect.wire import Wire
from indexer.model import RawBatch
from indexer.ports import EventSink, Resume, SuspectReason


class Subscriber:
    """A wire, a pulse beside it and the running conversation, for one registration.

    Where this process has listened to the engine before, a ring stands in front: what it has is told first, and what
    comes meanwhile is added behind it, so that order holds (promise P1).
    """

    def __init__(self, sink: EventSink, shared: Shared, standby: Standby | None = None) -> None:
        """`standby`: a listener's to the same endpoint."""
        self.sink = sink
        self.descriptor = sink.descriptor
        self._shared = shared
        self._lane = Lane(shared.options.lane_bytes, shared.budget)
        now = shared.clock.now()
        replay = self.descriptor.replay_endpoint is not None
        resume, footing = left_off(sink), None
        suspicions = frozenset[SuspectReason]()
        if standby is not None:
            if standby.told is sink:
                suspicions = standby.suspicions
                resume = _continued(sink, standby, now) if resume is None else replace(resume, suspicions=suspicions)
            _part_from_strangers(standby, resume, now)
            footing = rejoin(standby.ring, resume, now)
        self.session = Session(
            shared.options, self._lane, now, replay=replay, resume=resume, footing=footing, suspicions=suspicions
        )
        self._claims = Claims(self.descriptor)
        self._inbox = Inbox(shared.options.replay_inbox_bytes)
        self._wire = Wire(self.descriptor.endpoint, shared, self) if standby is None else standby.wire
        self._ring = None if standby is None else standby.ring
        self._conversation: asyncio.Task[None] | None = None
        self._question: Ask | None = None  # waits until the ring is at the present connection
        self._pulse: Pulse | None = None
        self._unheard = Unheard(shared.options)
        self._perform(self.session.begin())
        if standby is not None:
            ring = standby.ring
            self._perform(self.session.stand_behind(laden=ring.batches > 0, tail_lost=ring.tail_lost))
            self._wire.hand_to(self)

    @property
    def endpoint(self) -> str | None:
        """Where it is connected to."""
        return self.descriptor.endpoint

    # --- life ---

    def open(self) -> None:
        """Connect and begin to read. Raises zmq.ZMQError where the address is none or sockets or files have run out."""
        endpoint = self.descriptor.endpoint
        if endpoint is None or (self._wire.is_open and self._pulse is not None):
            return
        listened = self._wire.is_open
        self._wire.open()
        try:
            self._pulse = Pulse(self._shared.context, endpoint, self._shared.options, self._shared.clock.now())
        except zmq.ZMQError:
            if not listened:  # what a listener brought is worth more than what is free by closing it
                self.close()
            raise

    def close(self) -> None:
        """Stop at once: what was read but not applied is dropped."""
        self._hang_up()
        self._lane.clear()
        if self._ring is not None:
            self._ring.clear()
            self._ring = None
        self._close_pulse()
        self._wire.close()

    def other_life(self) -> None:
        """Another process of the engine lives now, whoever runs it says."""
        self._perform(self.session.other_life(self._shared.clock.now()))
        self._shared.pump.wake(self)

    def vouch(self, at: float) -> None:
        """The same process of the engine lives, as was heard at that moment."""
        if self._ring is None:  # else the session is in the past, and that was not spoken of
            self.session.vouch(at)

    def step_down(self) -> Standby:
        """Tell the sink nothing more. What arrived and was not told goes on with the wire; replies do not."""
        self._hang_up()
        now = self._shared.clock.now()
        ring = self._ring
        if ring is None:
            ring = self._shared.ring()
        suspicions = self.session.suspicions
        for command in self.session.leave(ring, now):
            tell_core(command, self.sink)
        self._ring = None
        self._close_pulse()
        return Standby(self._wire, ring, self.sink, suspicions)

    def _close_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None

    # --- reading ---

    def drain(self) -> bool:
        """One quantum of everything that waits; True when there is more."""
        if not self._wire.is_open or self._wire.reader is not self or not self.sink.open:
            return False
        now = self._shared.clock.now()
        if self.sink.go_on():
            self._perform(self.session.backlogged())  # messages are read, and wait in the lane
        more = self._read(now)
        if self._inbox and not self.sink.busy:
            self._take_replies(now)
        if self.session.drains_lane and not self.sink.busy:
            self._perform(self.session.drain_lane(now))
        if self._ring is not None and not self.sink.busy:
            self._work_off(self._ring, now)
        worked_off = self._ring is None or not self._has_next(self._ring)
        return more or self.sink.busy or self.session.drains_lane or bool(self._inbox) or not worked_off

    def _read(self, now: float) -> bool:
        reading = self._wire.read(now)
        self._unheard.take(reading)
        if reading.malformed:
            self.sink.count("frames_malformed", reading.malformed)
        if self._ring is not None:
            if any(isinstance(change, Down) for change in reading.changes):
                self._end_conversation()  # another process may answer the rest of it; the session learns of it in turn
            self._ring.take_in(reading.changes, reading.batches, emptied=reading.emptied)
            return reading.more
        for change in reading.changes:
            self._on_change(change, now)
        if reading.backlog:
            self._perform(self.session.backlogged())
        if reading.batches:
            self._tell(reading.batches, now)
        if reading.emptied:
            self._perform(self.session.socket_empty(now))
        return reading.more

    def _tell(self, batches: list[RawBatch], now: float) -> None:
        self._perform(self._claims.check(batches))
        self._perform(self.session.messages(batches, now))

    def _on_change(self, change: Change, now: float) -> None:
        if isinstance(change, Up):
            self._claims.look_again()
        self._perform(self.session.changed(change, now))
        if isinstance(change, Up):
            self.sink.seen(change.at)  # where this owner ends in the past, whoever goes on must not begin before it
            if self._pulse is not None:
                self._pulse.silent = False  # whoever shook hands runs; the pulse itself is back in a moment
        if self._is_at_present or not self.connected:
            self.sink.alive(self.connected)

    def tick(self) -> None:
        """Look at the connections and let the session know that time passes. Called at least every 500 ms."""
        if self._pulse is not None:
            self._pulse.look(self._shared.clock.now())
        if self._wire.pending:  # behind the pulse: where both were lost at once, it is this one that tells when
            self._shared.pump.wake(self)
            self.drain()
        now = self._shared.clock.now()
        if self._pulse is not None and self.connected:
            self._unheard.look(now, silent=self._pulse.silent, beats=self._pulse.beats)
        self._wire.tick(now, connected=self.connected)
        # An engine is not idle whose messages wait in the ring.
        answers = self._ring is None and self._pulse is not None and self._pulse.beats
        commands = self.session.tick(now, answers=answers)
        if commands:
            self._perform(commands)
            self._shared.pump.wake(self)  # what they ended may have let the lane go
        self._tell_alive()

    @property
    def connected(self) -> bool:
        """Whether the engine is there now."""
        return self.session.connected if self._ring is None else self._ring.end.connected

    @property
    def _is_at_present(self) -> bool:
        """Whether the session knows all that happened to the connection: before, it may not say that it stands.

        Whoever hears that would take it for a sign of the engine that spoke last, and another may have come since.
        """
        return self._ring is None or not self._ring.tells_of_the_past

    def _tell_alive(self) -> None:
        """Both connections tell: one that the process runs, the other that its messages reach us.

        A process whose connection stands but whose heartbeats are overdue has been silent for that long. After a pause
        of our own nothing is told before it answers again: what was seen last speaks for itself. And behind a silence
        in which another process may have come, whoever answers is not yet known to be the one that spoke.
        """
        pulse = self._pulse
        if pulse is None or not self.connected:
            self.sink.alive(connected=False)
        elif self._unheard.unproven_since is not None:
            now = self._shared.clock.now()
            self.sink.alive(connected=False, silent_s=now - self._unheard.unproven_since)
        elif pulse.beats and self._is_at_present:
            self.sink.alive(connected=True)
        elif pulse.silent:
            self.sink.alive(connected=False, silent_s=self._shared.options.heartbeat_timeout_s)

    # --- the ring in front ---

    def _has_next(self, ring: Ring) -> bool:
        """Whether the ring may be worked off now.

        While a recovery runs, messages stay in it; but all it knows of the connection is told first, as the engine that
        is asked is the one that is there now.
        """
        return self.session.takes_live or ring.tells_of_the_past or not ring

    def _work_off(self, ring: Ring, now: float) -> None:
        """A quantum of what the ring has."""
        if self._has_next(ring) and ring:
            options = self._shared.options
            item = ring.take(options.quantum_messages, options.quantum_bytes)
            if isinstance(item, list):
                self._tell([batch._replace(late=True) for batch in item], now)
            elif item is not None:
                self._on_change(item, now)
        if self._question is not None and self._is_at_present:
            self._question = self._ask(self._question)
        if not ring:
            ring.clear()
            self._ring = None
            self._perform(self.session.caught_up())

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
            elif isinstance(command, SocketCommand):
                self._converse(command)
            else:
                tell_core(command, sink)
        if sink.busy:  # a large batch is under way: the source is syncing, and its messages wait in the lane
            for command in self.session.backlogged():
                self._perform([command])

    def _converse(self, command: SocketCommand) -> None:
        self._hang_up()
        if isinstance(command, Ask):
            self._question = self._ask(command)
        elif isinstance(command, ConnectAnew):
            self._unheard.gone()
            self._wire.renew()
            if self._ring is not None:
                self._ring.change(Down(self._shared.clock.now()))

    def _ask(self, question: Ask) -> Ask | None:
        """Ask, or put it off: while the ring tells of the past, another engine than the one of then might answer."""
        if not self._is_at_present:
            return question
        self._conversation = self._shared.ask(self, question)
        return None

    def _hang_up(self) -> None:
        self._question = None
        self._end_conversation()

    def _end_conversation(self) -> None:
        if self._conversation is not None:
            self._conversation.cancel()
            self._conversation = None


def _part_from_strangers(standby: Standby, resume: Resume | None, now: float) -> None:
    """Where the connection does not bring what the owner before had. Not while anything waits, as that may be it."""
    ring = standby.ring
    if resume is not None:
        ring.note(resume.sequence, resume.stamp, None, now)
    if not ring.is_strange:
        return
    reading = standby.wire.read(now)
    ring.take_in(reading.changes, reading.batches, emptied=reading.emptied)
    if not reading.more and ring.part():
        standby.wire.renew()


def _continued(sink: EventSink, standby: Standby, now: float) -> Resume | None:
    """Where a sink goes on that was told things here before, and stepped down."""
    cursor, ring = sink.cursor, standby.ring
    if cursor is None:
        return None
    stamp = ring.anchor.stamp if ring.anchor is not None and ring.anchor.sequence == cursor else None
    away_s = inf if ring.alive_at is None else now - ring.alive_at
    return Resume(cursor, stamp, away_s, suspicions=standby.suspicions)
