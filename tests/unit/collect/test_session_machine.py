"""Any mishaps in any order: the session against a simulated engine, wire and core.

The engine publishes, loses messages, restarts (away for at least min_engine_restart_s, as P6 assumes) and keeps a short
buffer; the wire queues up to a high-water mark and keeps what it queued over a reconnect; replay answers rightly, with
holes, or not at all. The core only writes down what it is told and checks P1, P4 and P6 on it.

Behind a cut the engine may restart while the connection seems to stand: then the new process answers what is asked, and
the old one's end is told at any time later.

Our process may end, too, and begin anew with what of the core was stored some time before: the newest batches applied
may be lost with it, and the engine may restart meanwhile.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indexer.collect.commands import (
    Ask,
    BeginLife,
    Command,
    ConnectAnew,
    Doubt,
    HangUp,
    Prove,
    ReplayEnd,
    ReportGap,
    SetSyncing,
    Suspect,
)
from indexer.collect.lanes import Lane, LaneBudget
from indexer.collect.options import CollectOptions
from indexer.collect.session import Session
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from indexer.ports import Resume
from tests.support.collect_batches import LIFE_S, batch

RCVHWM = 4
OPTIONS = replace(CollectOptions(), rcvhwm_messages=RCVHWM, quantum_messages=2, lane_bytes=2_000)
SETTLE_STEPS_MAX = 400


def life_of(message: RawBatch) -> int:
    """The life of the engine that stamped it."""
    return int(stamp(message.payload) // LIFE_S)


class Core:
    """What the commands amount to."""

    def __init__(self) -> None:
        self.cursor: int | None = None
        self.stamp: float | None = None
        self.lives: set[int] = set()
        self.newest_life = 0
        self.applied: set[int] = set()
        self.lost: set[int] = set()
        self.syncing = False
        self.suspected = False
        """It was said that messages were dropped."""
        self.guessed = False
        """Replay could not examine everything: P6 guesses."""
        self.doubted = False
        """It was said that this life may be two."""
        self.must_doubt = False
        self.was_cut = False
        """A connection seems to stand, or did, to a process that is gone."""

    def perform(self, command: Command) -> None:
        if isinstance(command, RawBatch):
            self.apply(command)
        elif isinstance(command, BeginLife):
            self.begin_life(command)
        elif isinstance(command, Doubt):
            self.doubted = True
        elif isinstance(command, ReportGap):
            assert command.first == (0 if self.cursor is None else self.cursor + 1)
            self.lost |= set(range(command.first, command.last + 1))
            self.cursor = command.last
        elif isinstance(command, Prove):
            self.cursor = -1 if self.cursor is None else self.cursor
        elif isinstance(command, SetSyncing):
            assert command.active != self.syncing
            self.syncing = command.active
        elif isinstance(command, Suspect) and command.reason == "dropped":
            assert command.active != self.suspected
            self.suspected = command.active

    def begin_life(self, command: BeginLife) -> None:
        self.cursor = self.stamp = None
        self.lives, self.applied, self.lost = set(), set(), set()
        self.doubted = False
        was_void = command.reason == "replay_differs"  # told by an endpoint that is not believed any more
        if was_void or (self.was_cut and command.reason == "sequence_went_back"):
            self.newest_life = 0  # the new process's endpoint was asked before the old one's last words came

    def apply(self, message: RawBatch) -> None:
        life = life_of(message)
        self.stamp = stamp(message.payload)
        assert self.cursor is None or message.sequence == self.cursor + 1, "in order, each once, every hole reported"
        assert life >= self.newest_life, "nothing of an old life after the new one began"
        if self.lives and life not in self.lives:
            assert self.guessed or self.doubted or self.lost, "a new life was noticed, or what is known is in doubt"
            assert self.doubted or not self.must_doubt, "or what it may be mixed with is in doubt"
        self.newest_life = life
        self.lives.add(life)
        self.applied.add(message.sequence)
        self.cursor = message.sequence

    def resume(self, away_s: float) -> Resume | None:
        """What a session of the next process is told."""
        if self.cursor is None:
            return None
        return Resume(self.cursor, self.stamp, away_s, suspicions=frozenset({"dropped"} if self.suspected else ()))


class Machine(RuleBasedStateMachine):
    """One source and everything around it."""

    @initialize(replay=st.booleans(), buffer=st.sampled_from([3, 1_000]))
    def begin(self, replay: bool, buffer: int) -> None:
        self.now = 1_000.0
        self.core = Core()
        self.core.guessed = self.core.must_doubt = not replay
        self.stored = deepcopy(self.core)
        self.seen_at = self.stored_at = self.now
        self.lane = Lane(OPTIONS.lane_bytes, LaneBudget(OPTIONS.lanes_total_bytes))
        self.session = Session(OPTIONS, self.lane, self.now, replay=replay)
        self.replay = replay
        self.complete = replay and buffer > 3
        """Everything lost can be had again: nothing may be lost for good."""
        self.life = 0
        self.next_number = 0
        self.kept: deque[RawBatch] = deque(maxlen=buffer)
        self.queue: deque[RawBatch] = deque()
        self.events: deque[tuple[bool, float]] = deque()
        """Whether it stands, and since when."""
        self.linked = False
        self.dead_since: float | None = None
        """The connection seems to stand, and leads to a process that is gone."""
        self.asked: Ask | None = None
        self.answers = False
        """The process that was asked still lives."""
        self.perform(self.session.begin())

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, HangUp):
                self.asked = None
            elif isinstance(command, Ask):
                assert self.replay
                self.asked, self.answers = command, True
            elif isinstance(command, ConnectAnew):
                self.queue.clear()
                self.events.clear()
                self.linked, self.asked, self.dead_since = False, None, None
            else:
                self.core.perform(command)

    # --- the engine ---

    @rule(count=st.integers(1, 6), reaches=st.booleans())
    def publish(self, count: int, reaches: bool) -> None:
        """`reaches` False: kept for replay, but never sent to us."""
        for _ in range(count):
            message = batch(self.next_number, self.life)
            self.next_number += 1
            self.kept.append(message)
            if self.linked and self.dead_since is None and reaches and len(self.queue) < RCVHWM:
                self.queue.append(message)

    @rule()
    def fail_to_encode(self) -> None:
        """A number used up: neither sent nor kept."""
        self.next_number += 1
        self.complete = False

    @precondition(lambda self: not self.linked)
    @rule()
    def connect(self) -> None:
        self.linked = True
        self.events.append((True, self.now))

    @precondition(lambda self: self.linked and self.dead_since is None)
    @rule(away_s=st.sampled_from([0.05, 3.0, 20.0]), missed=st.integers(0, 3))
    def blink(self, away_s: float, missed: int) -> None:
        """The connection is lost and comes back, the process is the same."""
        self.cut()
        self.now += away_s
        self.publish(missed, reaches=False)
        self.connect()

    @precondition(lambda self: self.linked)
    @rule(away_s=st.sampled_from([5.0, 60.0]), missed=st.integers(0, 8))
    def restart(self, away_s: float, missed: int) -> None:
        """A new process, which has published `missed` batches before we are connected again."""
        self.cut()
        self.now += away_s
        self.life += 1
        self.next_number = 0
        self.kept.clear()
        self.answers = False
        self.publish(missed, reaches=False)
        self.connect()

    @precondition(lambda self: self.linked and self.dead_since is None)
    @rule(away_s=st.sampled_from([5.0, 8.0]), missed=st.integers(0, 8), answers=st.booleans())
    def restart_behind_a_cut(self, away_s: float, missed: int, answers: bool) -> None:
        """`answers`: what is being asked had not reached the process before, and reaches the new one."""
        self.dead_since = self.seen_at = self.now
        self.core.was_cut = self.stored.was_cut = True
        self.now += away_s
        self.life += 1
        self.next_number = 0
        self.kept.clear()
        self.answers = self.answers and answers
        self.publish(missed, reaches=False)

    @precondition(lambda self: self.dead_since is not None)
    @rule()
    def find_dead(self) -> None:
        """And connect to whoever is there."""
        self.cut()
        self.connect()

    @precondition(lambda self: self.replay and self.linked and self.dead_since is None)
    @rule(
        speaks=st.booleans(),
        proven=st.booleans(),
        missed=st.integers(0, 12),
        gap=st.booleans(),
    )
    def ask_behind_a_cut(self, speaks: bool, proven: bool, missed: int, gap: bool) -> None:
        """All is well; then another process answers, to what an idle engine is asked, or about a gap."""
        self.publish(3, reaches=speaks)
        for _ in range(SETTLE_STEPS_MAX):
            self.settle_step(wait_s=0.25)
            if self.settled():
                break
        if proven:
            self.tick(5.0)
            self.settle_step(wait_s=0.25)
        if not self.linked:
            return
        if gap:
            self.publish(1, reaches=False)
            self.publish(1, reaches=True)
            self.read(RCVHWM)
        self.restart_behind_a_cut(5.0, missed, answers=True)
        if self.asked is None:
            self.tick(5.0)
        if self.asked is not None:
            self.answer(omitted=set(), marker=True, cut_at=0)

    # --- our process ---

    @rule()
    def store(self) -> None:
        """What is known by now outlives us."""
        self.stored = deepcopy(self.core)
        self.stored_at = self.now if self.session.connected and self.dead_since is None else self.seen_at

    @rule(
        away_s=st.sampled_from([0.1, 3.0, 5.0, 60.0]),
        missed=st.integers(0, 6),
        restarted=st.booleans(),
        connected=st.booleans(),
    )
    def die(self, away_s: float, missed: int, restarted: bool, connected: bool) -> None:
        """We end in the middle of anything. The engine goes on, or starts anew where there was time for that."""
        self.queue.clear()
        self.events.clear()
        self.linked, self.asked, self.dead_since = False, None, None
        self.now += away_s
        if restarted and away_s >= OPTIONS.min_engine_restart_s:
            self.life += 1
            self.next_number = 0
            self.kept.clear()
        self.publish(missed, reaches=False)
        self.core, guessed = deepcopy(self.stored), self.core.guessed
        self.core.guessed, self.core.syncing = guessed, False
        self.lane = Lane(OPTIONS.lane_bytes, LaneBudget(OPTIONS.lanes_total_bytes))
        resume = self.core.resume(self.now - self.stored_at)
        self.core.suspected = self.core.suspected and resume is not None
        self.session = Session(OPTIONS, self.lane, self.now, replay=self.replay, resume=resume)
        self.perform(self.session.begin())
        if connected:
            self.connect()

    def cut(self) -> None:
        self.linked = False
        if self.dead_since is None:
            self.seen_at = self.now
        self.dead_since = None
        self.events.append((False, self.seen_at))
        self.perform_events_sometimes()

    def perform_events_sometimes(self) -> None:
        """A lost connection is noticed when it happens: its time is what P6 counts from."""
        arrived = [self.queue.popleft() for _ in range(min(len(self.queue), 1))]
        self.look(arrived, emptied=False)

    # --- our side ---

    def look(self, arrived: list[RawBatch], *, emptied: bool) -> None:
        """Messages were read first, then the monitor; changes are told before the messages."""
        changes = list(self.events)
        self.events.clear()
        for is_up, at in changes:
            self.perform(self.session.connection_up(self.now, at=at) if is_up else self.session.connection_down(at))
        if arrived:
            self.perform(self.session.messages(arrived, self.now))
        if emptied and not changes:
            self.perform(self.session.socket_empty(self.now))

    @rule(count=st.integers(1, 6))
    def read(self, count: int) -> None:
        arrived = [self.queue.popleft() for _ in range(min(count, len(self.queue)))]
        self.look(arrived, emptied=len(arrived) < count)

    @precondition(lambda self: self.session.drains_lane)
    @rule()
    def drain(self) -> None:
        self.perform(self.session.drain_lane(self.now))

    @rule()
    def backlog(self) -> None:
        """More arrives than is applied, or a large batch is under way."""
        self.perform(self.session.backlogged())

    @rule(seconds=st.sampled_from([0.25, 5.0, 70.0]))
    def tick(self, seconds: float) -> None:
        if self.asked is not None and seconds > OPTIONS.replay_timeout_s:
            return  # its conversation would have ended before
        self.now += seconds
        self.perform(self.session.tick(self.now))

    # --- replay ---

    @precondition(lambda self: self.asked is not None and self.answers)
    @rule(omitted=st.sets(st.integers(0, 12), max_size=2), marker=st.booleans(), cut_at=st.integers(0, 30))
    def answer(self, omitted: set[int], marker: bool, cut_at: int) -> None:
        """Replies, some lost without a word, maybe no end marker, the rest only after other things happened."""
        asked = self.asked
        assert asked is not None
        replies = [each for each in self.kept if each.sequence >= asked.first]
        got = [each for place, each in enumerate(replies) if place not in omitted and (marker or place < cut_at)]
        if self.complete and omitted & set(range(len(replies))):
            # The first replies are never lost: an engine drops only once its socket's queue is full.
            got = replies[:2] + [each for each in got if each not in replies[:2]]
        self.perform(self.session.replayed(asked.conversation, got, self.now))
        if marker:
            self.finish(asked, ReplayEnd.COMPLETE)

    @precondition(lambda self: self.asked is not None)
    @rule()
    def time_out(self) -> None:
        """Silence. What P6 says when replay does not help is a guess."""
        asked = self.asked
        assert asked is not None
        self.now += OPTIONS.replay_timeout_s
        self.complete = False
        self.core.guessed = True
        self.finish(asked, ReplayEnd.TIMEOUT)

    def finish(self, asked: Ask, end: ReplayEnd) -> None:
        self.perform(self.session.replay_ended(asked.conversation, end, self.now))
        if self.asked is asked:
            self.asked = None

    # --- promises ---

    @invariant()
    def lane_is_bounded(self) -> None:
        if hasattr(self, "lane"):
            assert self.lane.used_bytes <= OPTIONS.lane_bytes + 1_000
            assert self.core.suspected or not self.lane.overflowed, "what is dropped is said"

    def teardown(self) -> None:
        """Left alone with a connection and a replay endpoint that answers, the session catches up."""
        if not hasattr(self, "session"):
            return
        if self.dead_since is not None:
            self.find_dead()
        if not self.linked:
            self.connect()
        for _ in range(SETTLE_STEPS_MAX):
            self.settle_step()
            if self.settled():
                break
        assert self.settled(), "it comes to rest"
        self.check_knowledge()

    def settle_step(self, wait_s: float = 70.0) -> None:
        if not self.linked:
            self.connect()
        asked = self.asked
        if asked is not None and self.answers:
            replies = [each for each in self.kept if each.sequence >= asked.first]
            self.perform(self.session.replayed(asked.conversation, replies, self.now))
            self.finish(asked, ReplayEnd.COMPLETE)
        elif asked is not None:
            self.time_out()
        elif self.session.drains_lane:
            self.drain()
        elif self.queue or self.events or self.session.unsettled:
            self.read(RCVHWM + 1)
        else:
            self.tick(wait_s)

    def settled(self) -> bool:
        quiet = self.asked is None and not self.queue and not self.events and not self.session.drains_lane
        if not quiet or self.session.unsettled or self.core.syncing:
            return False
        return not self.replay or (self.caught_up() and not self.core.suspected)

    def caught_up(self) -> bool:
        newest = self.kept[-1].sequence if self.kept else None
        return newest is None or (self.core.cursor is not None and self.core.cursor >= newest)

    def check_knowledge(self) -> None:
        core = self.core
        assert not len(self.lane)
        known = core.applied | core.lost
        if core.cursor is not None and core.cursor >= 0:
            assert set(range(min(known), core.cursor + 1)) == known, "every number is applied or reported lost"
        if self.complete:
            assert not core.lost
            assert set(range(self.next_number)) == core.applied
            assert core.lives <= {self.life}


TestSession = Machine.TestCase
