"""What one source's replay endpoint is asked, when, and what follows from its answers. Pure.

One recovery at a time; `Recovery` judges its replies, here they are carried out on the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, assert_never

from indexer.collect import remarks
from indexer.collect.commands import Ask, Command, ConnectAnew, Count, Doubt, HangUp, Prove, ReplayEnd
from indexer.collect.options import CollectOptions
from indexer.collect.patience import Patience
from indexer.collect.recovery import Answer, Outcome, Purpose, Recovery, TakeAfterLoss
from indexer.collect.silence import Silence
from indexer.collect.stream import Phase, Stream
from indexer.collect.trust import Trust
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from indexer.ports import CollectorCount, Replayed, ReplayResult, RestartReason, SuspectReason

_COUNTED: Final[dict[ReplayResult, CollectorCount]] = {
    "ok": "replays_ok",
    "partial": "replays_partial",
    "failed": "replays_failed",
    "timeout": "replays_timeout",
}


class Asking:
    """The recoveries of one stream."""

    def __init__(self, options: CollectOptions, stream: Stream, silence: Silence, now: float) -> None:
        self._options = options
        self._stream = stream
        self._silence = silence
        self._patience = Patience(options)
        self._trust = Trust(stream)
        self._recovery: Recovery | None = None
        self._waits = False  # for its turn: nothing was asked yet
        self._asked_at = now
        self._replayed_at = now
        self._loss_told = False

    def take_over(self, suspicions: Collection[SuspectReason], out: list[Command]) -> None:
        """Go on where somebody before left off, who had told so much."""
        self._trust.resume(suspicions)
        if self._trust.foreign:
            out.append(remarks.REPLAY_FOREIGN)

    @property
    def suspicions(self) -> frozenset[SuspectReason]:
        """What was told and not taken back."""
        told: set[SuspectReason] = set()
        if self._stream.dropped:
            told.add("dropped")
        if self._trust.foreign:
            told.add("replay_differs")
        return frozenset(told)

    # --- questions ---

    def may_ask(self, now: float) -> bool:
        """Whether there is an endpoint that is believed, and it need not rest."""
        return self._stream.replay and not self._trust.foreign and self._patience.allows(now)

    def connection_changed(self, out: list[Command]) -> None:
        """Who is there now may have another replay socket. One that was not believed has its chance where all began."""
        if self._stream.tracker.expected is None:
            self._trust.renew(out)
            self._stream.joined = False
        self._trust.own = False

    def new_life(self, reason: RestartReason, out: list[Command]) -> None:
        """Another process of the engine speaks: nothing is known of it, nor of its endpoint."""
        self._stream.new_life(reason, out)
        self._trust.renew(out)

    def recover(self, purpose: Purpose, now: float, out: list[Command]) -> None:
        """Begin a recovery, with the last applied batch where there is one. Who has that is asked first, if need be."""
        tracker = self._stream.tracker
        if purpose is not Purpose.JOIN and tracker.last is not None:
            if self._stream.absence.unexamined:
                purpose = Purpose.IDENTIFY
            elif purpose is Purpose.HEAL:
                purpose = Purpose.VERIFY
        first = 0 if purpose is Purpose.JOIN else tracker.asked_from
        self._recovery = Recovery(purpose, first, now)
        self._waits = False
        if purpose is not Purpose.IDLE:
            self._stream.hold(Phase.ASKING, out)
            self._waits = not self._patience.take_turn(now)
        self._stream.conversation += 1
        if not self._waits:
            self._ask(self._recovery, now, out)

    def _ask(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        self._asked_at = now
        out.append(Ask(self._stream.conversation, recovery.asked, probe=recovery.purpose is Purpose.IDLE))

    def _ask_in_turn(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        """Too many recoveries in a short time: this one has waited for its turn, and messages are held meanwhile."""
        if self._patience.take_turn(now):
            self._waits = False
            self._stream.conversation += 1
            self._ask(recovery, now, out)

    def _probe(self, now: float, out: list[Command]) -> None:
        """An idle engine: is there anything that did not reach us?"""
        expected = self._stream.tracker.expected
        if expected is None:
            self.recover(Purpose.JOIN, now, out)  # an earlier try failed
        elif self._stream.dropped:
            self.recover(Purpose.HEAL, now, out)
        elif now - max(self._silence.heard_at, self._asked_at) >= self._options.probe_interval_s:
            self.recover(Purpose.IDLE, now, out)

    def tick(self, now: float, out: list[Command], *, answers: bool) -> None:
        """Time passed: ask in turn, probe an idle engine, end what takes too long.

        `answers`: the engine's process runs. A frozen one is not asked whether anything got lost.
        """
        recovery = self._recovery
        if recovery is not None and now - recovery.started_at > self._options.replay_overall_s:
            out += [HangUp(), self._ended(recovery, "timeout")]
            self._give_up(now, out)
        elif recovery is not None and self._waits:
            self._ask_in_turn(recovery, now, out)
        elif recovery is None and self._stream.phase is Phase.LIVE:
            if now - self._replayed_at >= self._options.overlap_s:
                self._stream.tracker.trim()
            if answers and self._stream.absence.connected:
                self._ask_idle(now, out)
        elif recovery is not None and recovery.is_useless(now, self._options):
            out.append(HangUp())
            self.ended(self._stream.conversation, ReplayEnd.TIMEOUT, now, out)

    def _ask_idle(self, now: float, out: list[Command]) -> None:
        if self.may_ask(now):
            self._probe(now, out)
        elif self._trust.foreign and self._patience.allows(now) and self._stream.arrived_last is not None:
            self.recover(Purpose.HEAL, now, out)

    # --- answers ---

    def replayed(self, conversation: int, batches: Sequence[RawBatch], now: float, out: list[Command]) -> None:
        """Replies of a conversation, in order of arrival."""
        for batch in batches:
            if self._recovery is None or conversation != self._stream.conversation:
                break
            self._reply(self._recovery, batch, now, out)

    def ended(self, conversation: int, end: ReplayEnd, now: float, out: list[Command]) -> None:
        """A conversation is over; all its replies were given to `replayed` before."""
        recovery = self._recovery
        if recovery is None or conversation != self._stream.conversation:
            return
        match self._outcome(recovery, end, out):
            case Outcome.AGAIN:
                self._ask_again(recovery, now, out)
            case Outcome.OTHER_PROCESS:
                self._other_process(now, out)
            case Outcome.LACKS_LAST:
                self._lacks_last(recovery, now, out)
            case Outcome.GIVE_UP:
                self._give_up(now, out)
            case Outcome.DONE:
                self._answered_in_full(out)
                self._complete(recovery, out)
            case never:
                assert_never(never)

    def _outcome(self, recovery: Recovery, end: ReplayEnd, out: list[Command]) -> Outcome:
        if end is not ReplayEnd.COMPLETE:
            out.append(self._ended(recovery, "timeout" if end is ReplayEnd.TIMEOUT else "failed"))
        else:
            self._joining_answered(recovery)
        outcome = recovery.on_end(end, self._stream.tracker, self._stream.lane.first_sequence)
        if self._trust.foreign and outcome in {Outcome.DONE, Outcome.LACKS_LAST}:
            return Outcome.GIVE_UP  # nothing that it has is known
        return outcome

    def _reply(self, recovery: Recovery, batch: RawBatch, now: float, out: list[Command]) -> None:
        stream = self._stream
        self._silence.broken(out)
        self._joining_answered(recovery)
        expected = stream.tracker.expected
        is_news = expected is None or batch.sequence >= expected
        if recovery.purpose is Purpose.IDLE and is_news and self._on_lost_tail(recovery, now, out):
            return
        if recovery.purpose is not Purpose.IDENTIFY and self._overlaps(recovery, batch, now, out):
            return
        answer = recovery.on_reply(batch.sequence, stamp(batch.payload), stream.tracker, stream.lane.first_sequence)
        if answer is Answer.SKIP:
            recovery.skipped(len(batch.payload), now)
            return
        recovery.useless_bytes = 0
        if isinstance(answer, TakeAfterLoss):
            stream.lose(answer.first, answer.last, out)
            answer = Answer.TAKE
        if answer is Answer.TAKE_UNPROVEN:
            out.append(Doubt("process_unproven"))
            answer = Answer.TAKE
        if answer is Answer.TAKE:
            self._replayed_at = now
            stream.apply_replayed(batch, out)
            stream.unvouched = not self._trust.own
        else:
            self._on_answer(answer, recovery, now, out)
        self._end_where_reached(recovery, out)

    def _on_lost_tail(self, recovery: Recovery, now: float, out: list[Command]) -> bool:
        """An idle engine has more than arrived. True where the endpoint has to prove itself before that is believed."""
        out.append(Count("gaps"))
        if self._trust.untried:
            out.append(HangUp())
            self.recover(Purpose.HEAL, now, out)
            return True
        known = recovery.anchored or self._stream.tracker.last is None
        recovery.purpose = Purpose.HEAL if known else Purpose.VERIFY
        self._stream.hold(Phase.ASKING, out)
        return False

    def _end_where_reached(self, recovery: Recovery, out: list[Command]) -> bool:
        """Stop where the live messages that are held go on.

        Not before the endpoint is known to be the engine's own: its next reply is one that arrived, too. Nor with a
        lane that lost its end: the more is replayed, the less is missing behind it.
        """
        lane = self._stream.lane
        believed = self._recovery is recovery and self._trust.own and not lane.overflowed
        if not (believed and recovery.reached(self._stream.tracker, lane.first_sequence)):
            return False
        out.append(HangUp())
        self._complete(recovery, out)
        return True

    def _overlaps(self, recovery: Recovery, batch: RawBatch, now: float, out: list[Command]) -> bool:
        """Hold a reply against the oldest message that is held. True where that ends it all."""
        same = self._trust.overlap(batch)
        if same is None:
            return False
        if same:
            self._trust.confirm(out)
            return self._end_where_reached(recovery, out)
        out.append(HangUp())
        self._disbelieve(now, out)
        return True

    def _disbelieve(self, now: float, out: list[Command]) -> None:
        """It is another engine's. It is asked again after some rest."""
        self._trust.refute(out)
        self._stream.joined = True
        self._patience.failed(now)
        self.resume(out)

    def _on_answer(
        self,
        answer: Answer,
        recovery: Recovery,
        now: float,
        out: list[Command],
    ) -> None:
        """What follows from a reply that says something of the endpoint. Most of these end the conversation."""
        if answer is Answer.SAME_PROCESS:
            self._stream.absence.examined()
            if self._stream.arrived_last is not None:
                self._trust.confirm(out)
            return
        out.append(HangUp())
        if answer is Answer.OTHER_PROCESS:
            self._other_process(now, out)
        elif answer is Answer.DIFFERS:
            self._differs(now, out)
        elif answer is Answer.NOTHING_OLDER:
            self._complete(recovery, out)
        else:
            if not self._loss_told:
                self._loss_told = True
                out.append(remarks.REPLAY_LOSES)
            self._ask_again(recovery, now, out)

    def _joining_answered(self, recovery: Recovery) -> None:
        if recovery.purpose is Purpose.JOIN:
            self._stream.absence.examined()
            self._stream.lane.drop_marked()  # received before the question: in the answer, or of an older life

    def _other_process(self, now: float, out: list[Command]) -> None:
        self.new_life("probe_differs", out)
        self._stream.absence.examined()
        self._stream.lane.clear()  # received before the question that follows: in its answer, or of the old life
        self.recover(Purpose.JOIN, now, out)

    def _differs(self, now: float, out: list[Command]) -> None:
        """On a connection that seems to stand it has another batch in the place of the last, or none.

        An endpoint that never had what arrived is another engine's. One that had it, or told it itself, is another
        process's by now: then the connection leads to one that is gone, and what it still brings must not be taken for
        the new one's. Another connection is made, and who is there is asked as after any reconnect.
        """
        if self._trust.untried:
            self._disbelieve(now, out)
            return
        self._recovery = None
        self._stream.absence.down(now - self._options.min_engine_restart_s)  # at least: no engine is back faster
        self._stream.end_overlap()
        self._stream.hold(Phase.SETTLING, out)
        out.append(ConnectAnew())

    def _lacks_last(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        """It answered in full, without the last batch. Of one that never had any that says no more than nothing."""
        if not self._trust.untried:
            self._differs(now, out)
        elif recovery.purpose is Purpose.IDLE:
            self._complete(recovery, out)
        else:
            out.append(self._ended(recovery, "partial"))
            self._give_up(now, out)

    def _ask_again(self, recovery: Recovery, now: float, out: list[Command]) -> None:
        if recovery.conversations >= self._options.replay_attempts_max:
            out.append(self._ended(recovery, "partial"))
            self._give_up(now, out)
            return
        recovery.ask_again(self._stream.tracker)
        self._stream.conversation += 1
        out.append(Ask(self._stream.conversation, recovery.asked))

    def _answered_in_full(self, out: list[Command]) -> None:
        """An end marker, and nothing says that replies before it got lost."""
        if self._stream.tracker.expected is None:
            self._stream.tracker.expect_first()
        if not self._stream.lane and not self._stream.dropped_now:
            out.append(Prove())

    def hang_up(self, out: list[Command]) -> None:
        """End the running recovery: its answer is of no use any more."""
        if self._recovery is not None:
            self._recovery = None
            if not self._waits:
                out.append(HangUp())

    def _complete(self, recovery: Recovery, out: list[Command]) -> None:
        if recovery.purpose is not Purpose.IDLE:
            out.append(self._ended(recovery, "partial" if recovery.incomplete else "ok"))
        if self._patience.answered():
            out.append(remarks.REPLAY_ANSWERS)
        self._stream.joined = True
        if self._stream.dropped and not self._stream.dropped_now:
            self._stream.make_good(out)
        self.resume(out)

    def _ended(self, recovery: Recovery, result: ReplayResult) -> Count:
        """Counted, and what people are told of it."""
        expected = self._stream.tracker.expected
        last = expected - 1 if expected else None
        what: CollectorCount = _COUNTED[result]
        return Count(what, replayed=Replayed(result, recovery.first, last, recovery.started_at))

    def _give_up(self, now: float, out: list[Command]) -> None:
        """Go on with what there is; the endpoint gets some rest."""
        self._patience.failed(now)
        out.append(remarks.REPLAY_SILENT)
        self._stream.doubt_the_absent(out)
        self.resume(out)

    def resume(self, out: list[Command]) -> None:
        """A recovery is over, one way or the other: what was held goes first."""
        self._recovery = None
        self._stream.lane.unmark()
        self._stream.asked_before = self._stream.lane.first_sequence or 0
        if self._stream.lane:
            self._stream.phase = Phase.DRAINING
        else:
            self._stream.go_live(out)
