"""Where one source's stream stands, and what becomes of what arrives: applied, held, lost, dropped. Pure.

Told by the session, which judges live messages, and by its asking, which fetches what they show missing.
"""

from __future__ import annotations

from enum import Enum, auto

from indexer.collect.absence import Absence
from indexer.collect.commands import BeginLife, Command, Count, Doubt, ReportGap, SetSyncing, Suspect
from indexer.collect.lanes import Lane
from indexer.collect.options import CollectOptions
from indexer.collect.rejoin import Footing
from indexer.collect.sequence import SequenceTracker
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


class Stream:
    """One source's. `lane` holds live messages back; `replay` says whether there is an endpoint to ask."""

    def __init__(self, options: CollectOptions, lane: Lane, *, replay: bool) -> None:
        self.lane = lane
        self.replay = replay
        self.tracker = SequenceTracker()
        self.absence = Absence(options)
        self.phase = Phase.LIVE
        self.syncing = False
        self.joined = False
        """This life's history was asked for, with an answer."""
        self.gap_before = 0
        """The batch behind the last counted gap: each is counted once."""
        self.asked_before = 0
        """The batch before which everything was asked for, in vain."""
        self.conversation = 0
        """Number of the newest question: what older ones still bring is ignored."""
        self.held_over = False
        """The lane has messages of before an absence after which another process may speak."""
        self.dropped = False
        """Messages found no room in the lane, and neither a replay nor the rules for gaps have made up for it yet."""
        self.replayed_last: int | None = None
        """Number of the newest batch that came by replay."""
        self.unvouched = False
        """Some came by replay from an endpoint of which it is not known yet that it speaks for this engine."""
        self.overlap: int | None = None
        """Batches up to this number, by this connection, were applied by the owner before: they are no news."""
        self.behind = False
        """Other messages are held in front of what comes: the source is syncing until they are worked off."""
        self._dropped_in = 0  # the newest conversation at that time: what it brings may have left the engine before

    def resume(self, footing: Footing) -> None:
        """Go on where a process of ours stood; this one has followed its engine since, or nobody has.

        How the last batch came may not be known: it may be the replay endpoint's, and then proves nothing of it.
        """
        resume, link = footing.resume, footing.link
        self.tracker.resume(resume.sequence, resume.stamp)
        if link is None:
            self.absence.resume(footing.left_at)
        else:
            self.absence.go_on(connected=link.connected, since=link.since, settled=link.settled)
        if footing.leftovers:
            self.absence.leave_over()
        if footing.overlaps:
            self.overlap = resume.sequence
        self.replayed_last = None if footing.arrived else self.tracker.last

    def repeats(self, batch: RawBatch) -> bool:
        """Whether the owner before has applied it: this connection is to the same process, and it is not above."""
        if self.overlap is None:
            return False
        tracker = self.tracker
        same = tracker.last != batch.sequence or tracker.last_stamp == stamp(batch.payload)
        if batch.sequence > self.overlap or not same:
            self.overlap = None
            return False
        return True

    def end_overlap(self) -> None:
        """Another connection is next: what is held of this one and no news goes now."""
        if self.overlap is not None:
            while self.lane.first_sequence is not None and self.lane.first_sequence <= self.overlap:
                self.lane.pop()
            self.overlap = None

    def lose_tail(self, out: list[Command]) -> None:
        """The newest message that arrived found no room anywhere."""
        if not self.dropped:
            self.dropped = True
            out.append(Suspect("dropped", active=True))

    def apply(self, batch: RawBatch, out: list[Command]) -> None:
        """It is next."""
        self.tracker.advance(batch.sequence, stamp(batch.payload))
        out.append(batch)

    def apply_replayed(self, batch: RawBatch, out: list[Command]) -> None:
        """It is next, and came by replay."""
        self.apply(batch, out)
        self.replayed_last = batch.sequence

    @property
    def arrived_last(self) -> int | None:
        """Number of the newest applied batch, where it arrived live."""
        last = self.tracker.last
        return None if last == self.replayed_last else last

    @staticmethod
    def lose(first: int, last: int, out: list[Command]) -> None:
        """These batches cannot be had any more."""
        out += [Count("batches_lost", last - first + 1), ReportGap(first, last)]

    def keep(self, batch: RawBatch, out: list[Command]) -> None:
        """Hold a live message back; where there is no room it is lost, and that is said."""
        had_room = not self.lane.overflowed
        if self.lane.push(batch):
            return
        self._dropped_in = self.conversation
        if had_room:
            out.append(Count("lane_overflows"))
        if not self.dropped:
            self.dropped = True
            out.append(Suspect("dropped", active=True))

    def make_good(self, out: list[Command]) -> None:
        """What was dropped is replayed, or reported as lost."""
        self.dropped = False
        out.append(Suspect("dropped", active=False))

    def new_life(self, reason: RestartReason, out: list[Command]) -> None:
        """Another process of the engine speaks: nothing is known of it."""
        if reason != "replay_differs":  # that is no restart of the engine: what was believed to be its history is not
            out.append(Count("restarts"))
        out.append(BeginLife(reason))
        self.tracker.forget()
        self.replayed_last = self.overlap = None
        self.unvouched = False
        self.joined = False
        went_back = reason == "sequence_went_back" and self.absence.leftovers_known
        if (self.absence.settled or went_back) and not self.held_over:
            self.absence.unproven = False  # else this may be left of a process between the known and the present one
        self.gap_before = self.asked_before = 0

    def hold(self, phase: Phase, out: list[Command]) -> None:
        """Live messages wait from here on."""
        self.phase = phase
        self._begin_syncing(out)

    def stand_behind(self, out: list[Command]) -> None:
        """What is held elsewhere comes first."""
        self.behind = True
        self._begin_syncing(out)

    def caught_up(self, out: list[Command]) -> None:
        """Nothing is held elsewhere any more."""
        self.behind = False
        if self.phase is Phase.LIVE:
            self._end_syncing(out)

    def _begin_syncing(self, out: list[Command]) -> None:
        if not self.syncing:
            self.syncing = True
            out.append(SetSyncing(active=True))

    def _end_syncing(self, out: list[Command]) -> None:
        if self.syncing and not self.behind:
            self.syncing = False
            out.append(SetSyncing(active=False))

    def go_live(self, out: list[Command]) -> None:
        """Nothing waits any more."""
        self.phase = Phase.LIVE
        self.lane.clear()
        if self.held_over:
            self.held_over = False
            out.append(Doubt("process_unproven"))  # whatever was held, a clear may be
        self._end_syncing(out)

    def doubt_the_absent(self, out: list[Command]) -> None:
        """Nobody can tell whether an engine that was away for long is the one that came back: say so at once.

        It may be idle, and its first message far off.
        """
        if self.absence.unproven and self.tracker.expected is not None:
            out.append(Doubt("process_unproven"))

    def doubt_unproven(self, out: list[Command]) -> None:
        """The number that had to come, perhaps after an absence in which the engine may have started anew.

        Promise P6's rule sees no jump then, and without a replay endpoint nothing tells the two apart. It stays in
        doubt as long as what comes may have been sent before the absence: a clear among that lifts nothing. Where
        nothing was known before, nothing is in doubt.
        """
        if self.absence.unproven and not self.replay and self.tracker.expected is not None:
            out.append(Doubt("process_unproven"))
        if self.absence.settled and not self.held_over:
            self.absence.unproven = False

    @property
    def dropped_now(self) -> bool:
        """Whether a message was dropped since the running question, whose answer may be older, or still would be."""
        return self.dropped and (self.lane.overflowed or self._dropped_in == self.conversation)
