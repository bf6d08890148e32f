"""What to do about what one source's sockets bring: the heart of collect. Pure: no I/O, no clock, decisions as data.

Inputs are messages, changes of the connection, replies of the replay endpoint and ticks, in the order in which the
sockets were read; each returns the commands to carry out, in order. Promises kept here: engine's order, each batch once
(P1), a lost message is noticed and healed or said (P6), nothing of an old life is applied to a new one (P4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from indexer.collect import remarks
from indexer.collect.asking import Asking
from indexer.collect.commands import Command, CoreCommand, Count, ReplayEnd, SetSyncing
from indexer.collect.lanes import Lane
from indexer.collect.leaving import hand_back
from indexer.collect.options import CollectOptions
from indexer.collect.recovery import Purpose
from indexer.collect.rejoin import Footing, lost
from indexer.collect.ring import Change, Down, Ring, Settled, Up
from indexer.collect.sequence import Duplicate, FirstAbove, Gap, Next, Restart
from indexer.collect.silence import Silence
from indexer.collect.stream import Phase, Stream
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from indexer.ports import Resume, SuspectReason


class Session:
    """One source's stream. `lane` holds live messages back; `replay` says whether there is an endpoint to ask.

    `resume`: a process before this one left off there. Its connection is gone like one that was lost, and the first one
    of this process is a reconnect: who is there is asked, or promise P6's rules apply. With a `footing` instead, this
    process has listened, and goes on from there. `suspicions`: what the core was told already, where else
    nothing is known.
    """

    def __init__(
        self,
        options: CollectOptions,
        lane: Lane,
        now: float,
        *,
        replay: bool,
        resume: Resume | None = None,
        footing: Footing | None = None,
        suspicions: frozenset[SuspectReason] = frozenset(),
    ) -> None:
        self._options = options
        if footing is None and resume is not None:
            footing = lost(resume, now)
        self._suspicions = suspicions if footing is None else footing.resume.suspicions
        self._stream = Stream(options, lane, replay=replay)
        self._silence = Silence(options, now)
        self._asking = Asking(options, self._stream, self._silence, now)
        if footing is not None:
            self._stream.resume(footing)
        self._stream.dropped = "dropped" in self._suspicions

    # --- what the sockets' owner needs to know ---

    @property
    def connected(self) -> bool:
        """Whether the engine is there now."""
        return self._stream.absence.connected

    @property
    def unsettled(self) -> bool:
        """Whether `socket_empty` would tell anything new."""
        return not self._stream.absence.settled

    @property
    def drains_lane(self) -> bool:
        """Whether `drain_lane` has work."""
        return self._stream.phase is Phase.DRAINING

    @property
    def takes_live(self) -> bool:
        """Whether messages are applied as they come."""
        return self._stream.phase is Phase.LIVE

    # --- inputs ---

    def begin(self) -> list[Command]:
        """The source starts."""
        out: list[Command] = [] if self._stream.replay else [remarks.NO_REPLAY]
        self._asking.take_over(self._suspicions, out)
        return out

    def stand_behind(self, *, laden: bool, tail_lost: bool) -> list[Command]:
        """A ring may stand in front: what it has comes first. `tail_lost`: the newest message found no room in it."""
        out: list[Command] = []
        if laden:
            self._stream.stand_behind(out)
        if tail_lost:
            self._stream.lose_tail(out)
        return out

    def caught_up(self) -> list[Command]:
        """The ring in front is worked off."""
        out: list[Command] = []
        self._stream.caught_up(out)
        return out

    def changed(self, change: Change, now: float) -> list[Command]:
        """The connection changed, at a moment that may be past."""
        match change:
            case Up(at):
                return self.connection_up(now, at=at)
            case Down(since):
                return self.connection_down(since)
            case Settled():
                return self.socket_empty(now)
            case _:
                assert_never(change)

    def connection_up(self, now: float, *, at: float | None = None) -> list[Command]:
        """A handshake succeeded, now or `at`. What the socket gives next may still be from before."""
        out: list[Command] = []
        stream = self._stream
        if stream.absence.ever_connected:
            out.append(Count("reconnects"))
        stream.lane.begin_connection(examined=not stream.absence.unexamined)
        again = stream.absence.up(now if at is None else at)
        stream.held_over = again and bool(stream.lane) and stream.absence.unproven and not stream.replay
        self._asking.connection_changed(out)
        if again:
            self._asking.hang_up(out)
            if stream.phase is Phase.ASKING or self._asking.may_ask(now):
                stream.hold(Phase.SETTLING, out)
                self._settle(now, out)
            else:
                stream.doubt_the_absent(out)
        elif self._asking.may_ask(now):
            self._asking.recover(Purpose.JOIN, now, out)
        return out

    def other_life(self, now: float) -> list[Command]:
        """Whoever runs the engine says that another process of it lives now, and nothing that came showed it yet.

        What is held of a connection before the present one is of the process before. What the present one brought, and
        what the socket has, may be of either: it is taken for the new one's. If it is not, the new one's own numbers
        tell, and end it.
        """
        out: list[Command] = []
        stream = self._stream
        self._asking.hang_up(out)
        if stream.absence.connected:
            stream.lane.drop_older()
        else:
            stream.lane.clear()
        self._asking.new_life("life_differs", out)
        if stream.phase is Phase.ASKING:
            stream.phase = Phase.SETTLING
        if not (stream.absence.connected and stream.absence.settled):
            return out
        stream.absence.examined()
        if stream.phase is Phase.SETTLING:
            self._settle(now, out)
        elif stream.phase is Phase.LIVE and self._asking.may_ask(now):
            self._asking.recover(Purpose.JOIN, now, out)
        return out

    def vouch(self, at: float) -> None:
        """Whoever runs the engine was heard at that moment, and says that the same process lives."""
        self._stream.absence.vouch(at)

    def connection_down(self, since: float) -> list[Command]:
        """The connection is lost, at `since`."""
        out: list[Command] = []
        stream = self._stream
        stream.absence.down(since)
        stream.end_overlap()
        self._asking.hang_up(out)  # another process may answer the rest of it
        if stream.phase is Phase.ASKING:
            stream.phase = Phase.SETTLING
        return out

    def messages(self, batches: Sequence[RawBatch], now: float) -> list[Command]:
        """Live messages, in order of arrival; at least one."""
        out: list[Command] = []
        stream = self._stream
        self._silence.heard(now, out)
        if stream.phase is Phase.LIVE:
            self._asking.hang_up(out)  # an idle probe: the message says more
        self._arrived(batches, now, out)
        if not stream.absence.settled:
            stream.absence.read(len(batches))
            self._settle(now, out)
        elif stream.absence.unexamined and stream.phase is Phase.LIVE:
            stream.absence.examined()  # by the message itself
        return out

    def end(self) -> list[CoreCommand]:
        """Nothing is decided any more: what is held back is dropped, and its bytes are free."""
        self._stream.lane.clear()
        return [SetSyncing(active=False)] if self._stream.syncing else []

    def leave(self, ring: Ring, now: float) -> list[CoreCommand]:
        """Give what is held back to the ring, with all that is needed to go on from it."""
        hand_back(self._stream, ring, now)
        return self.end()

    @property
    def suspicions(self) -> frozenset[SuspectReason]:
        """What was told and not taken back."""
        return self._asking.suspicions

    def backlogged(self) -> list[Command]:
        """More arrives than is applied: from here on messages are held, so that the socket can be read ahead."""
        out: list[Command] = []
        stream = self._stream
        if stream.phase is Phase.LIVE:
            self._asking.hang_up(out)
            stream.hold(Phase.DRAINING, out)
        return out

    def socket_empty(self, now: float) -> list[Command]:
        """Everything that had arrived is read: what comes now is from the present connection."""
        out: list[Command] = []
        stream = self._stream
        if stream.absence.socket_empty() and not stream.replay:
            stream.doubt_the_absent(out)  # a clear of before the absence may have lifted it
        self._settle(now, out)
        return out

    def replayed(self, conversation: int, batches: Sequence[RawBatch], now: float) -> list[Command]:
        """Replies of a conversation, in order of arrival."""
        out: list[Command] = []
        self._asking.replayed(conversation, batches, now, out)
        return out

    def replay_ended(self, conversation: int, end: ReplayEnd, now: float) -> list[Command]:
        """A conversation is over; all its replies were given to `replayed` before."""
        out: list[Command] = []
        self._asking.ended(conversation, end, now, out)
        return out

    def drain_lane(self, now: float) -> list[Command]:
        """Apply some of what was held back: two quanta, as one may come in meanwhile."""
        out: list[Command] = []
        stream = self._stream
        after_drop = not stream.lane.overflowed  # then all that is held came behind what was dropped
        messages, size_bytes = 2 * self._options.quantum_messages, 2 * self._options.quantum_bytes
        while stream.phase is Phase.DRAINING and stream.lane and messages > 0 and size_bytes > 0:
            batch = stream.lane.pop()
            messages -= 1
            size_bytes -= len(batch.payload)
            self._take(batch, now, out)
        if stream.phase is Phase.DRAINING and not stream.lane:
            if stream.dropped and after_drop and out and isinstance(out[-1], RawBatch):
                stream.make_good(out)
            stream.go_live(out)
        return out

    def tick(self, now: float, *, answers: bool = True) -> list[Command]:
        """Time passed: probe an idle engine, end what takes too long, remark on silence.

        `answers`: the engine's process runs, as far as is known.
        """
        out: list[Command] = []
        stream = self._stream
        self._asking.tick(now, out, answers=answers)
        if stream.tracker.expected is None:
            self._silence.tick(now, out, connected=stream.absence.ever_connected)
        return out

    # --- live messages ---

    def _arrived(self, batches: Sequence[RawBatch], now: float, out: list[Command]) -> None:
        stream = self._stream
        tracker = stream.tracker
        for batch in batches:
            if stream.phase is not Phase.LIVE:
                stream.keep(batch, out)
            elif batch.sequence == tracker.expected and not stream.absence.unproven:
                tracker.advance(batch.sequence, stamp(batch.payload))
                out.append(batch)
            else:
                self._take(batch, now, out)
        if stream.dropped and stream.phase is Phase.LIVE and out and out[-1] is batches[-1]:
            stream.make_good(out)  # it came behind what was dropped, and whatever it showed missing was reported

    def _take(self, batch: RawBatch, now: float, out: list[Command]) -> None:
        """A message in its turn, from the socket or the lane."""
        stream = self._stream
        if stream.repeats(batch):
            return
        verdict = stream.tracker.judge(batch.sequence, stamp(batch.payload))
        match verdict:
            case Next():
                stream.doubt_unproven(out)
                stream.apply(batch, out)
            case Duplicate():
                if stream.phase is Phase.LIVE:  # otherwise the overlap of replay and lane, as it should be
                    out.append(Count("duplicates"))
            case Gap():
                self._on_gap(verdict, batch, now, out)
            case FirstAbove():
                stream.doubt_unproven(out)
                self._join_before(batch, now, out)
            case Restart():
                self._asking.new_life("sequence_went_back", out)
                self._join_before(batch, now, out)
            case _:
                assert_never(verdict)

    def _on_gap(self, gap: Gap, batch: RawBatch, now: float, out: list[Command]) -> None:
        stream = self._stream
        can_ask = batch.sequence > stream.asked_before and self._asking.may_ask(now)
        if not can_ask and stream.absence.means_restart(gap):
            self._asking.new_life("reconnect_jump", out)
            self._join_before(batch, now, out)
            return
        if batch.sequence != stream.gap_before:
            stream.gap_before = batch.sequence
            out.append(Count("gaps"))
        if can_ask:
            self._ask_before(batch, Purpose.HEAL, now, out)
        else:
            stream.lose(gap.first, gap.last, out)
            stream.apply(batch, out)

    def _join_before(self, batch: RawBatch, now: float, out: list[Command]) -> None:
        """The first message of a life: what was published before it is asked for first, where that is possible."""
        stream = self._stream
        if stream.joined or not self._asking.may_ask(now):
            stream.apply(batch, out)
        else:
            self._ask_before(batch, Purpose.JOIN, now, out)

    def _ask_before(self, batch: RawBatch, purpose: Purpose, now: float, out: list[Command]) -> None:
        """Hold this message and all after it until the endpoint has been asked.

        Not while the connection is lost: another process may answer by the time it is back, and nothing would tell.
        And where a reconnect was not examined yet, the first question is who is there.
        """
        self._stream.lane.put_back(batch)
        if self._stream.absence.connected and not self._stream.absence.unexamined:
            self._asking.recover(purpose, now, out)
        else:
            self._stream.hold(Phase.SETTLING, out)
            self._settle(now, out)

    def _settle(self, now: float, out: list[Command]) -> None:
        """After a reconnect, once the socket gives nothing of the old connection any more: find out who is there."""
        absence = self._stream.absence
        if self._stream.phase is not Phase.SETTLING or not (absence.connected and absence.settled):
            return
        tracker = self._stream.tracker
        if not self._asking.may_ask(now):
            self._asking.resume(out)
        elif tracker.last is None and tracker.expected:
            self._stream.doubt_the_absent(out)  # what it has of the past cannot be compared
            self._asking.recover(Purpose.HEAL, now, out)
        elif tracker.last is None:
            self._stream.lane.mark()
            self._asking.recover(Purpose.JOIN, now, out)
        else:
            self._asking.recover(Purpose.IDENTIFY, now, out)
