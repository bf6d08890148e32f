"""The last raw batches of an engine that this process only listens to, with the changes of its connection. Pure.

What the owner has made durable is let go (`note`); the rest waits in the order in which it was read, bounded in bytes.
Whoever becomes the owner goes on from it: `rejoin` says where, and then the ring is worked off from its front while
what is read meanwhile is added behind.

Numbers alone name no batch, as an engine that starts anew begins at 0 again: number and stamp do (promise P4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeAlias

from indexer.collect.lanes import BATCH_OVERHEAD_BYTES, LaneBudget, cost_bytes
from indexer.decode.envelope import stamp
from indexer.model import RawBatch

RUN_OVERHEAD_BYTES: Final = 1_000
"""What a run of consecutive numbers costs beside its batches. It bounds how many of them there are."""
CHANGE_OVERHEAD_BYTES: Final = 160
TOLD_WITHIN_S: Final = 1.0
"""As a rule others have heard within that time what an owner has made durable."""
AWAY_MAX: Final = 8
"""Absences that are kept of a connection with nothing but those."""


class Up(NamedTuple):
    """The connection stands since then, on our clock."""

    at: float


class Down(NamedTuple):
    """It is lost since then."""

    since: float


class Settled(NamedTuple):
    """From here on nothing is left of the connection before: the socket was found empty, or its queue was read."""


Change: TypeAlias = Up | Down | Settled

SETTLED: Final = Settled()


class Anchor(NamedTuple):
    """The newest batch that stood before all that is held: applied by an owner."""

    sequence: int
    stamp: float
    arrived: bool = True
    """On this connection, to this process. False: it came by replay, and vouches for nobody."""


@dataclass(frozen=True, slots=True)
class Link:
    """How the connection stands at one place of the stream."""

    connected: bool = False
    since: float | None = None
    """When it came to stand, or was lost. None: it never stood."""
    settled: bool = True

    def after(self, change: Change) -> Link:
        """How it stands behind that change."""
        match change:
            case Up(at):
                return Link(connected=True, since=at, settled=self.since is None)
            case Down(since):
                return Link(connected=False, since=since, settled=self.settled) if self.connected else self
            case _:
                return Link(connected=self.connected, since=self.since)


class Run:
    """Batches with consecutive numbers."""

    __slots__ = ("batches", "first")

    def __init__(self, batch: RawBatch) -> None:
        self.first = batch.sequence
        self.batches = deque([batch])

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + len(self.batches)

    def has(self, sequence: int, its_stamp: float) -> bool:
        """Whether it holds just that batch."""
        place = sequence - self.first
        return 0 <= place < len(self.batches) and stamp(self.batches[place].payload) == its_stamp

    def popleft(self) -> RawBatch:
        """Take the oldest out."""
        self.first += 1
        return self.batches.popleft()

    def cost_bytes(self, batches: int) -> int:
        """Of so many, the oldest of it."""
        return batches * BATCH_OVERHEAD_BYTES + sum(
            len(batch.payload) + len(batch.topic) for batch in islice(self.batches, batches)
        )

    def drop(self, batches: int) -> None:
        """Let so many go, the oldest of it."""
        self.first += batches
        if batches == len(self.batches):
            self.batches.clear()
            return
        for _ in range(batches):
            self.batches.popleft()


class RingBudget(LaneBudget):
    """What all rings of the process may hold together, and how many batches found no room in any."""

    __slots__ = ("dropped",)

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.dropped = 0


class Ring:
    """One source's. Full: its oldest batches go, counted; changes of the connection are folded, never forgotten.

    An empty ring takes one batch of any size, as a lane does. Where the shared budget is spent by others and there is
    nothing to let go, the new batch is lost.
    """

    def __init__(self, limit_bytes: int, budget: RingBudget, rcvhwm_messages: int) -> None:
        """`rcvhwm_messages`: how many messages of a lost connection the socket may still give."""
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._rcvhwm = rcvhwm_messages
        self.entries: deque[Run | Change] = deque()
        self.used_bytes = 0
        self.batches = 0
        self.changes = 0
        self.dropped = 0
        self.tail_lost = False
        """The newest batch that arrived is not here."""
        self.anchor: Anchor | None = None
        self.base = Link()
        """At the anchor, or where all began."""
        self.front = Link()
        """Before the oldest that is held: what was folded lies between."""
        self.end = Link()
        """Behind the newest."""
        self.alive_at: float | None = None
        """Until then, on our clock, the owner saw the engine connected."""
        self._away: list[tuple[float, float]] = []  # absences that were folded, each shorter than the one before it
        self._noted: tuple[int, float] | None = None  # not seen yet
        self._noted_at: float | None = None  # when the owner was heard of last
        self._newest_stamp = -inf  # of what came by this connection
        self.is_strange = False
        """The connection seems to stand and does not bring what the engine says: it leads to a process that is gone."""
        self._leftovers = 0

    def __bool__(self) -> bool:
        return bool(self.entries) or self.front != self.base

    @property
    def tells_of_the_past(self) -> bool:
        """Whether the connection changed since what is held first."""
        return self.changes > 0 or self.front != self.base

    # --- what is read ---

    def push(self, batch: RawBatch) -> None:
        """A batch arrived."""
        noted, its_stamp = self._noted, stamp(batch.payload)
        self._newest_stamp = max(self._newest_stamp, its_stamp)
        self.is_strange = self.is_strange and (noted is None or its_stamp < noted[1])
        if noted is not None and (batch.sequence, its_stamp) == noted:
            self._reached(Anchor(*noted), None)
        elif self._make_room(cost_bytes(batch) + RUN_OVERHEAD_BYTES):
            self._append(batch)
            self.tail_lost = False
        else:
            self._count_drop()
            self.tail_lost = True
        if self._leftovers:
            self._leftovers -= 1
            if not self._leftovers:
                self.change(SETTLED)

    def take_in(self, changes: Iterable[Change], batches: Iterable[RawBatch], *, emptied: bool) -> None:
        """What one look at the sockets found; `emptied`: nothing more, and all of it is of the present connection."""
        for change in changes:
            self.change(change)
        for batch in batches:
            self.push(batch)
        if emptied:
            self.change(SETTLED)

    def change(self, change: Change) -> None:
        """The connection changed, or nothing is left of the one before: then it counts once."""
        if isinstance(change, Settled):
            self._leftovers = 0
            if self.end.settled:
                return
        else:
            self.is_strange = False  # that was said of the connection before
        self.end = self.end.after(change)
        if isinstance(change, Up):
            self._newest_stamp = -inf
            if not self.end.settled:
                self._leftovers = self._rcvhwm
        if self.entries:
            self._make_room(CHANGE_OVERHEAD_BYTES)
        if not self.entries:
            self._fold(change)
        else:
            self.entries.append(change)
            self.changes += 1
            self._account(CHANGE_OVERHEAD_BYTES)

    # --- what the owner says ---

    def note(
        self, cursor: int | None, its_stamp: float | None, alive_at: float | None, now: float | None = None
    ) -> None:
        """The owner has made that batch durable, and until `alive_at` saw the engine connected. Heard `now`.

        It goes, and all before it. Where it has not arrived yet it goes when it does. If it came to be known while the
        connection here stood all along, and is younger than all that this brought, the connection is a strange one.
        """
        before, self._noted_at = self._noted_at, now if now is not None else self._noted_at
        if alive_at is not None and (self.alive_at is None or alive_at > self.alive_at):
            self.alive_at = alive_at
        if cursor is None or its_stamp is None:
            self._noted = None
        elif (cursor, its_stamp) != self._noted and not self.keep_behind(cursor, its_stamp):
            self._noted = (cursor, its_stamp)
            since = self.end.since if self.end.connected else None
            stood = since is not None and before is not None and since + TOLD_WITHIN_S < before
            self.is_strange = stood and its_stamp > self._newest_stamp

    def go_on_from(self, newest_stamp: float, now: float) -> None:
        """Until now this process was the owner itself, and that came by the connection last."""
        self._newest_stamp, self._noted_at, self.is_strange = max(self._newest_stamp, newest_stamp), now, False

    def part(self) -> bool:
        """Whether the connection is a strange one: then it is given up, and never led to who lives now."""
        was_strange, self.is_strange = self.is_strange, False
        if was_strange and self.end.connected and self.end.since is not None:
            self.change(Down(self.end.since))
        return was_strange

    def keep_behind(self, sequence: int, its_stamp: float) -> bool:
        """Let that batch go and all before it; False, and nothing goes, where it was never here."""
        if self.anchor is not None and self.anchor[:2] == (sequence, its_stamp):
            self._noted = None
            return True
        for run in reversed(self.entries):
            if isinstance(run, Run) and run.has(sequence, its_stamp):
                self._reached(Anchor(sequence, its_stamp), run)
                return True
        return False

    # --- working it off ---

    def take(self, messages: int, size_bytes: int) -> list[RawBatch] | Change | None:
        """The oldest change, or so many batches in a row; None when it is empty."""
        self.unfold()
        if not self.entries:
            return None
        oldest = self.entries[0]
        if not isinstance(oldest, Run):
            self._pop_change()
            self.front = self.base = self.front.after(oldest)
            return oldest
        taken: list[RawBatch] = []
        while oldest.batches and len(taken) < messages and size_bytes > 0:
            taken.append(oldest.popleft())
            size_bytes -= len(taken[-1].payload)
        self.batches -= len(taken)
        self._account(-sum(map(cost_bytes, taken)))
        self._pop_where_empty(oldest)
        return taken

    def unfold(self) -> None:
        """Changes that lie before all that is held are told like the others."""
        self._prepend(self._folded())
        self._away = []
        self.front = self.base

    def start(self, link: Link, changes: Sequence[Change] = (), anchor: Anchor | None = None) -> None:
        """What is held follows these changes of a connection that stood like that, at the anchor if there is one."""
        self.anchor, self.base, self.front, self._away, self._noted = anchor, link, link, [], None
        self._prepend(changes)
        for entry in self.entries:
            if not isinstance(entry, Run):
                link = link.after(entry)
        self.end = link
        self._leftovers = 0 if link.settled else self._rcvhwm

    def return_to_front(self, items: Sequence[RawBatch | Change]) -> None:
        """These, in order, were taken out and not applied: they come first again. Then its limits count."""
        self.unfold()
        for batch in reversed(items):
            if not isinstance(batch, RawBatch):
                self._prepend([batch])
                continue
            oldest = self.entries[0] if self.entries else None
            if isinstance(oldest, Run) and oldest.first == batch.sequence + 1:
                oldest.first -= 1
                oldest.batches.appendleft(batch)
            else:
                self.entries.appendleft(Run(batch))
                self._account(RUN_OVERHEAD_BYTES)
            self.batches += 1
            self._account(cost_bytes(batch))
        self._make_room(0)

    def drop_oldest_entry(self) -> None:
        """Let the oldest run or change go: it is of no use any more."""
        oldest = self.entries[0]
        if isinstance(oldest, Run):
            self._drop(oldest, len(oldest.batches))
        else:
            self._pop_change()
            self._fold(oldest)

    def clear(self) -> None:
        """Give all bytes back."""
        self.entries.clear()
        self._account(-self.used_bytes)
        self.batches = self.changes = 0

    # --- inside ---

    def _append(self, batch: RawBatch) -> None:
        newest = self.entries[-1] if self.entries else None
        if isinstance(newest, Run) and newest.end == batch.sequence:
            newest.batches.append(batch)
        else:
            self.entries.append(Run(batch))
            self._account(RUN_OVERHEAD_BYTES)
        self.batches += 1
        self._account(cost_bytes(batch))

    def _make_room(self, cost: int) -> bool:
        """Let the oldest go until that fits; False where all is gone and it does not."""
        budget = self._budget
        while self.entries and (
            self.used_bytes + cost > self._limit_bytes or budget.used_bytes + cost > budget.limit_bytes
        ):
            oldest = self.entries[0]
            if isinstance(oldest, Run):
                self._account(-cost_bytes(oldest.popleft()))
                self.batches -= 1
                self._count_drop()
                self._pop_where_empty(oldest)
            else:
                self.drop_oldest_entry()
        return budget.used_bytes + cost <= budget.limit_bytes

    def _drop(self, run: Run, batches: int) -> None:
        """The oldest of the oldest run."""
        self._account(-run.cost_bytes(batches))
        self.batches -= batches
        run.drop(batches)
        self._pop_where_empty(run)

    def _pop_where_empty(self, run: Run) -> None:
        if not run.batches:
            self.entries.popleft()
            self._account(-RUN_OVERHEAD_BYTES)

    def _pop_change(self) -> None:
        self.entries.popleft()
        self.changes -= 1
        self._account(-CHANGE_OVERHEAD_BYTES)

    def _count_drop(self, batches: int = 1) -> None:
        self.dropped += batches
        self._budget.dropped += batches

    def _reached(self, anchor: Anchor, run: Run | None) -> None:
        """Everything up to that batch goes: it is in this run, or has just arrived."""
        while self.entries and self.entries[0] is not run:
            self.drop_oldest_entry()
        if run is not None:
            self._drop(run, anchor.sequence + 1 - run.first)
        else:
            self.tail_lost = False
        self.anchor, self.base, self._away, self._noted = anchor, self.front, [], None
        self.is_strange = False

    def _fold(self, change: Change) -> None:
        """A change with nothing before it.

        Whoever goes on from some moment has to know the longest absence since then (promise P6). A shorter one before
        a longer is never that; and where there are too many, two count as one long absence.
        """
        before = self.front
        self.front = before.after(change)
        if isinstance(change, Up) and before.since is not None:
            away = self._away
            away.append((change.at if before.connected else before.since, change.at))
            if len(away) > AWAY_MAX:
                away[-2:] = [(away[-2][0], change.at)]
            while len(away) > 1 and _length(away[-2]) <= _length(away[-1]):
                del away[-2]

    def _folded(self) -> list[Change]:
        """The changes that lead from the base to the front."""
        link, front, away = self.base, self.front, self._away
        changes: list[Change] = []
        if link.since is None and front.since is not None:
            changes.append(Up(away[0][0] if away else front.since))
        for since, at in away:
            changes += [Down(since), Up(at)]
        for change in changes:
            link = link.after(change)
        if front.settled and not link.settled:
            changes.append(SETTLED)
        if link.connected and not front.connected and front.since is not None:
            changes.append(Down(front.since))
        return changes

    def _prepend(self, changes: Sequence[Change]) -> None:
        self.entries.extendleft(reversed(changes))
        self.changes += len(changes)
        self._account(CHANGE_OVERHEAD_BYTES * len(changes))

    def _account(self, cost: int) -> None:
        self.used_bytes += cost
        self._budget.used_bytes += cost


def _length(absence: tuple[float, float]) -> float:
    return absence[1] - absence[0]
