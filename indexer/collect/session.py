"""What to do about what one source's sockets bring: the heart of collect. Pure: no I/O, no clock, decisions as data.

Inputs are messages, changes of the connection, replies of the replay endpoint and ticks, in the order in which the
sockets were read; each returns the commands to carry out, in order. Promises kept here: engine's order, each batch once
(P1), a lost message is noticed and healed or said (P6), nothing of an old life is applied to a new one (P4).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Literal, assert_never

from indexer.collect import remarks
from indexer.collect.absence import Absence
from indexer.collect.commands import (
    Ask,
    BeginLife,
    Command,
    Count,
    Doubt,
    HangUp,
    Prove,
    ReplayEnd,
    ReportGap,
    SetSyncing,
    Suspect,
)
from indexer.collect.lanes import Lane
from indexer.collect.options import CollectOptions
from indexer.collect.patience import Patience
from indexer.collect.recovery import Answer, Outcome, Purpose, Recovery, TakeAfterLoss
from indexer.collect.sequence import Duplicate, FirstAbove, Gap, Next, Restart, SequenceTracker
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from indexer.ports import RestartReason


class Phase(Enum):
    """What happens to live messages."""

    LIVE = auto()
    """Applied as they come; an idle probe may run beside."""
    SETTLING = auto()
    """Held: the connection is lost, or is back and the socket may still give messages from before."""
    ASKING = auto()
    """Held: a recovery runs."""
    DRAINING = auto()
    """Held, behind what was held before: the recovery is over and that is applied first."""


class Session:
    """One source's stream. `lane` holds live messages back; `replay` says whether there is an endpoint to ask."""

    def __init__(self, options: CollectOptions, lane: Lane, now: float, *, replay: bool) -> None:
        self._options = options
        self._lane = lane
        self._replay = replay
        self._tracker = SequenceTracker()
        self._absence = Absence(options)
        self._patience = Patience(options)
        self._phase = Phase.LIVE
        self._syncing = False
        self.same_process = False
        """The orchestrator vouches that the engine process did not change (promise P6)."""

        self.answers = True
        """The engine's process runs, as far as is known: a frozen one is not asked whether anything got lost."""

        self._recovery: Recovery | None = None
        self._waits = False  # for its turn: nothing was asked yet
        self._conversation = 0  # number of the newest Ask: what older ones still bring is ignored
        self._joined = False  # this life's history was asked for, with an answer
        self._gap_before = 0  # the batch behind the last counted gap: each is counted once
        self._asked_before = 0  # the batch before which everything was asked for, in vain

        self._dropped = False
        """Messages found no room in the lane, and neither a replay nor the rules for gaps have made up for it yet."""
        self._dropped_in = 0  # the newest conversation at that time: what it brings may have left the engine before

        self._started_at = now
        self._heard_at = now
        self._asked_at = now
        self._replayed_at = now
        self._heard = False
        self._silence_told = False
        self._loss_told = False

    # --- what the sockets' owner needs to know ---

    @property
    def connected(self) -> bool:
        """Whether the engine is there now."""
        return self._absence.connected

    @property
    def unsettled(self) -> bool:
        """Whether `socket_empty` would tell anything new."""
        return not self._absence.settled

    @property
    def drains_lane(self) -> bool:
        """Whether `drain_lane` has work."""
        return self._phase is Phase.DRAINING

    # --- inputs ---

    def begin(self) -> list[Command]:
        """The source starts."""
        return [] if self._replay else [remarks.NO_REPLAY]

    def connection_up(self, now: float) -> list[Command]:
        """A handshake succeeded. What the socket gives next may still be from before."""
        out: list[Command] = []
        again = self._absence.up(now)
        if again:
            out.append(Count("reconnects"))
        if again:
            self._end_recovery(out)
            if self._phase is Phase.ASKING or self._may_ask(now):
                self._hold(Phase.SETTLING, out)
            else:
                self._doubt_the_absent(out)
        elif self._may_ask(now):
            self._recover(Purpose.JOIN, 0, now, out)
        return out

    def connection_down(self, since: float) -> list[Command]:
        """The connection is lost, at `since`."""
        out: list[Command] = []
        self._absence.down(since)
        self._end_recovery(out)  # another process may answer the rest of it
        if self._phase is Phase.ASKING:
            self._phase = Phase.SETTLING
        return out

    def messages(self, batches: Sequence[RawBatch], now: float) -> list[Command]:
        """Live messages, in order of arrival; at least one."""
        out: list[Command] = []
        self._heard_at = now
        if not self._heard:
            self._first_heard(out)
        if self._phase is Phase.LIVE:
            self._end_recovery(out)  # an idle probe: the message says more
        self._arrived(batches, now, out)
        if not self._absence.settled:
            self._absence.read(len(batches))
            self._settle(now, out)
        elif self._absence.unexamined and self._phase is Phase.LIVE:
            self._absence.examined()  # by the message itself
        return out

    def backlogged(self) -> list[Command]:
        """More arrives than is applied: from here on messages are held, so that the socket can be read ahead."""
        out: list[Command] = []
        if self._phase is Phase.LIVE:
            self._end_recovery(out)
            self._hold(Phase.DRAINING, out)
        return out

    def socket_empty(self, now: float) -> list[Command]:
        """Everything that had arrived is read: what comes now is from the present connection."""
        out: list[Command] = []
        self._absence.socket_empty()
        self._settle(now, out)
        return out

    def replayed(self, conversation: int, batches: Sequence[RawBatch], now: float) -> list[Command]:
        """Replies of a conversation, in order of arrival."""
        out: list[Command] = []
        self._replayed_at = now
        for batch in batches:
            if self._recovery is None or conversation != self._conversation:
                break
            self._reply(self._recovery, batch, now, out)
        return out

    def replay_ended(self, conversation: int, end: ReplayEnd, now: float) -> list[Command]:
        """A conversation is over; all its replies were given to `replayed` before."""
        out: list[Command] = []
        recovery = self._recovery
        if recovery is None or conversation != self._conversation:
            return out
        if end is ReplayEnd.TIMEOUT:
            out.append(Count("replays_timeout"))
        elif end is ReplayEnd.FAILED:
            out.append(Count("replays_failed"))
        else:
            self._joining_answered(recovery)
        outcome = recovery.on_end(end, self._tracker, self._lane.first_sequence)
        match outcome:
            case Outcome.AGAIN:
                self._ask_again(recovery, now, out)
            case Outcome.OTHER_PROCESS:
                self._other_process(now, out)
            case Outcome.GIVE_UP:
                self._give_up(now, out)
            case Outcome.DONE:
                self._answered_in_full(out)
                self._complete(recovery, out)
            case _:
                assert_never(outcome)
        return out

    def drain_lane(self, now: float) -> list[Command]:
        """Apply some of what was held back: two quanta, as one may come in meanwhile."""
        out: list[Command] = []
        after_drop = not self._lane.overflowed  # then all that is held came behind what was dropped
        messages, size_bytes = 2 * self._options.quantum_messages, 2 * self._options.quantum_bytes
        while self._phase is Phase.DRAINING and self._lane and messages > 0 and size_bytes > 0:
            batch = self._lane.pop()
            messages -= 1
            size_bytes -= len(batch.payload)
            self._take(batch, now, out)
        if self._phase is Phase.DRAINING and not self._lane:
            if self._dropped and after_drop and out and isinstance(out[-1], RawBatch):
                self._make_good(out)
            self._go_live(out)
        return out

    def tick(self, now: float) -> list[Command]:
        """Time passed: probe an idle engine, end what takes too long, remark on silence."""
        out: list[Command] = []
        recovery = self._recovery
        if recovery is not None and now - recovery.started_at > self._options.replay_overall_s:
            out += [HangUp(), Count("replays_timeout")]
            self._give_up(now, out)
        elif recovery is not None and self._waits:
            self._ask_in_turn(recovery, now, out)
        elif recovery is None and self._phase is Phase.LIVE:
            if now - self._replayed_at >= self._options.overlap_s:
                self._tracker.trim()
            self._probe(now, out)
        unheard = not self._heard and self._tracker.expected is None
        if unheard and not self._silence_told and now - self._started_at >= self._options.silent_after_s:
            self._silence_told = True
            out.append(remarks.NEVER_DELIVERED if self._absence.ever_connected else remarks.NEVER_CONNECTED)
        return out

    # --- live messages ---

    def _arrived(self, batches: Sequence[RawBatch], now: float, out: list[Command]) -> None:
        tracker = self._tracker
        for batch in batches:
            if self._phase is not Phase.LIVE:
                self._keep(batch, out)
            elif batch.sequence == tracker.expected and not self._absence.unproven:
                tracker.advance(batch.sequence, stamp(batch.payload))
                out.append(batch)
            else:
                self._take(batch, now, out)
        if self._dropped and self._phase is Phase.LIVE and out and out[-1] is batches[-1]:
            self._make_good(out)  # it came behind what was dropped, and whatever it showed missing was reported

    def _take(self, batch: RawBatch, now: float, out: list[Command]) -> None:
        """A message in its turn, from the socket or the lane."""
        verdict = self._tracker.judge(batch.sequence, stamp(batch.payload))
        match verdict:
            case Next():
                self._doubt_unproven(out)
                self._apply(batch, out)
            case Duplicate():
                if self._phase is Phase.LIVE:  # otherwise the overlap of replay and lane, as it should be
                    out.append(Count("duplicates"))
            case Gap():
                self._on_gap(verdict, batch, now, out)
            case FirstAbove():
                self._join_before(batch, now, out)
            case Restart():
                self._new_life("sequence_went_back", out)
                self._join_before(batch, now, out)
            case _:
                assert_never(verdict)

    def _on_gap(self, gap: Gap, batch: RawBatch, now: float, out: list[Command]) -> None:
        can_ask = batch.sequence > self._asked_before and self._may_ask(now)
        if not can_ask and self._absence.means_restart(gap, same_process=self.same_process):
            self._new_life("reconnect_jump", out)
            self._join_before(batch, now, out)
            return
        if batch.sequence != self._gap_before:
            self._gap_before = batch.sequence
            out.append(Count("gaps"))
        if can_ask:
            self._ask_before(batch, Purpose.HEAL, gap.first, now, out)
        else:
            self._lose(gap.first, gap.last, out)
            self._apply(batch, out)

    def _doubt_unproven(self, out: list[Command]) -> None:
        """The number that had to come, perhaps after an absence in which the engine may have started anew.

        Promise P6's rule sees no jump then, and without a replay endpoint nothing tells the two apart.
        """
        if self._absence.unproven and not self._replay and not self.same_process:
            out.append(Doubt("process_unproven"))
        self._absence.unproven = False

    def _doubt_the_absent(self, out: list[Command]) -> None:
        """Nobody can tell whether an engine that was away for long is the one that came back: say so at once.

        It may be idle, and its first message far off.
        """
        if self._absence.unproven and self._tracker.expected is not None and not self.same_process:
            out.append(Doubt("process_unproven"))

    def _join_before(self, batch: RawBatch, now: float, out: list[Command]) -> None:
        """The first message of a life: what was published before it is asked for first, where that is possible."""
        if self._joined or not self._may_ask(now):
            self._apply(batch, out)
        else:
            self._ask_before(batch, Purpose.JOIN, 0, now, out)

    def _apply(self, batch: RawBatch, out: list[Command]) -> None:
        self._tracker.advance(batch.sequence, stamp(batch.payload))
        out.append(batch)

    @staticmethod
    def _lose(first: int, last: int, out: list[Command]) -> None:
        out += [Count("batches_lost", last - first + 1), ReportGap(first, last)]

    def _keep(self, batch: RawBatch, out: list[Command]) -> None:
        had_room = not self._lane.overflowed
        if self._lane.push(batch):
            return
        self._dropped_in = self._conversation
        if had_room:
            out.append(Count("lane_overflows"))
        if not self._dropped:
            self._dropped = True
            out.append(Suspect("dropped", active=True))

    def _make_good(self, out: list[Command]) -> None:
        self._dropped = False
        out.append(Suspect("dropped", active=False))

    def _first_heard(self, out: list[Command]) -> None:
        self._heard = True
        if self._silence_told:
            out.append(remarks.NOT_SILENT)

    def _new_life(self, reason: RestartReason, out: list[Command]) -> None:
        out += [Count("restarts"), BeginLife(reason)]
        self._tracker.forget()
        self._joined = False
        if self._absence.settled:
            self._absence.unproven = False
        self._gap_before = self._asked_before = 0

    # --- recoveries: begin ---

    def _may_ask(self, now: float) -> bool:
        return self._replay and self._patience.allows(now)

    def _hold(self, phase: Phase, out: list[Command]) -> None:
        self._phase = phase
        if not self._syncing:
            self._syncing = True
            out.append(SetSyncing(active=True))

    def _ask_before(self, batch: RawBatch, purpose: Purpose, first: int, now: float, out: list[Command]) -> None:
        """Hold this message and all after it until the endpoint has been asked.

        Not while the connection is lost: another process may answer by the time it is back, and nothing would tell.
        And where a reconnect was not examined yet, the first question is who is there.
        """
        self._lane.put_back(batch)
        if self._absence.connected and not self._absence.unexamined:
            self._recover(purpose, first, now, out)
        else:
            self._hold(Phase.SETTLING, out)
            self._settle(now, out)

    def _recover(self, purpose: Purpose, first: int, now: float, out: list[Command]) -> None:
        self._recovery = Recovery(purpose, first, now)
        self._waits = False
        if purpose is not Purpose.IDLE:
            self._hold(Phase.ASKING, out)
            self._waits = not self._patience.take_turn(now)
        self._conversation += 1
        if not self._waits:
            self._ask(self._recovery, now, out)

    def _ask(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        self._asked_at = now
        out.append(Ask(self._conversation, recovery.asked, probe=recovery.purpose is Purpose.IDLE))

    def _ask_in_turn(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        """Too many recoveries in a short time: this one has waited for its turn, and messages are held meanwhile."""
        if self._patience.take_turn(now):
            self._waits = False
            self._conversation += 1
            self._ask(recovery, now, out)

    def _settle(self, now: float, out: list[Command]) -> None:
        """After a reconnect, once the socket gives nothing of the old connection any more: find out who is there."""
        if self._phase is not Phase.SETTLING or not (self._absence.connected and self._absence.settled):
            return
        last = self._tracker.last
        if not self._may_ask(now):
            self._resume(out)
        elif last is None:
            self._lane.mark()
            self._recover(Purpose.JOIN, 0, now, out)
        else:
            self._recover(Purpose.IDENTIFY, last, now, out)

    def _probe(self, now: float, out: list[Command]) -> None:
        """An idle engine: is there anything that did not reach us?"""
        if not (self._absence.connected and self.answers and self._may_ask(now)):
            return
        expected = self._tracker.expected
        if expected is None:
            self._recover(Purpose.JOIN, 0, now, out)  # an earlier try failed
        elif self._dropped:
            self._recover(Purpose.HEAL, expected, now, out)
        elif now - max(self._heard_at, self._asked_at) >= self._options.probe_interval_s:
            self._recover(Purpose.IDLE, expected, now, out)

    # --- recoveries: answers ---

    def _reply(self, recovery: Recovery, batch: RawBatch, now: float, out: list[Command]) -> None:
        if not self._heard:
            self._first_heard(out)
        self._joining_answered(recovery)
        if recovery.purpose is Purpose.IDLE:
            recovery.purpose = Purpose.HEAL
            out.append(Count("gaps"))  # a lost tail
            self._hold(Phase.ASKING, out)
        answer = recovery.on_reply(batch.sequence, stamp(batch.payload), self._tracker, self._lane.first_sequence)
        if answer is Answer.SKIP:
            return
        if answer is Answer.SAME_PROCESS:
            self._absence.examined()
        elif answer is Answer.TAKE:
            self._apply(batch, out)
        elif isinstance(answer, TakeAfterLoss):
            self._lose(answer.first, answer.last, out)
            self._apply(batch, out)
        else:
            out.append(HangUp())
            self._break_off(answer, recovery, now, out)
            return
        # A lane that lost its end is no reason to stop: the more is replayed, the less is missing behind it.
        if not self._lane.overflowed and recovery.reached(self._tracker, self._lane.first_sequence):
            out.append(HangUp())
            self._complete(recovery, out)

    def _break_off(
        self,
        why: Literal[Answer.OTHER_PROCESS, Answer.HOLE, Answer.NOTHING_OLDER],
        recovery: Recovery,
        now: float,
        out: list[Command],
    ) -> None:
        """What follows a conversation that is of no use any more."""
        if why is Answer.OTHER_PROCESS:
            self._other_process(now, out)
        elif why is Answer.NOTHING_OLDER:
            self._complete(recovery, out)
        else:
            if not self._loss_told:
                self._loss_told = True
                out.append(remarks.REPLAY_LOSES)
            self._ask_again(recovery, now, out)

    @property
    def _dropped_now(self) -> bool:
        """Whether a message was dropped since the running question, whose answer may be older, or still would be."""
        return self._dropped and (self._lane.overflowed or self._dropped_in == self._conversation)

    def _joining_answered(self, recovery: Recovery) -> None:
        if recovery.purpose is Purpose.JOIN:
            self._absence.examined()
            self._lane.drop_marked()  # received before the question: in the answer, or of an older life

    def _other_process(self, now: float, out: list[Command]) -> None:
        self._new_life("probe_differs", out)
        self._absence.examined()
        self._lane.clear()  # received before the question that follows: in its answer, or of the old life
        self._recover(Purpose.JOIN, 0, now, out)

    def _ask_again(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        if recovery.conversations >= self._options.replay_attempts_max:
            out.append(Count("replays_partial"))
            self._give_up(now, out)
            return
        recovery.ask_again(self._tracker.expected or 0)
        self._conversation += 1
        out.append(Ask(self._conversation, recovery.asked))

    def _answered_in_full(self, out: list[Command]) -> None:
        """An end marker, and nothing says that replies before it got lost."""
        if self._tracker.expected is None:
            self._tracker.expect_first()
        if not self._lane and not self._dropped_now:
            out.append(Prove())

    # --- recoveries: end ---

    def _end_recovery(self, out: list[Command]) -> None:
        if self._recovery is not None:
            self._recovery = None
            if not self._waits:
                out.append(HangUp())

    def _complete(self, recovery: Recovery, out: list[Command]) -> None:
        if recovery.purpose is not Purpose.IDLE:
            out.append(Count("replays_partial" if recovery.incomplete else "replays_ok"))
        if self._patience.answered():
            out.append(remarks.REPLAY_ANSWERS)
        self._joined = True
        if self._dropped and not self._dropped_now:
            self._make_good(out)
        self._resume(out)

    def _give_up(self, now: float, out: list[Command]) -> None:
        """Go on with what there is; the endpoint gets some rest."""
        self._patience.failed(now)
        out.append(remarks.REPLAY_SILENT)
        self._doubt_the_absent(out)
        self._resume(out)

    def _resume(self, out: list[Command]) -> None:
        """A recovery is over, one way or the other: what was held goes first."""
        self._recovery = None
        self._lane.unmark()
        self._asked_before = self._lane.first_sequence or 0
        if self._lane:
            self._phase = Phase.DRAINING
        else:
            self._go_live(out)

    def _go_live(self, out: list[Command]) -> None:
        self._phase = Phase.LIVE
        self._lane.clear()
        if self._syncing:
            self._syncing = False
            out.append(SetSyncing(active=False))
