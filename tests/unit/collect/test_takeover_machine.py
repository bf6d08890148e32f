"""Any mishaps in any order: owners and standbys against a simulated engine, its connections, a store and the core.

The engine publishes and restarts (away for at least min_engine_restart_s, as promise P6 assumes). Each of two replicas
has a connection of its own, which loses messages and breaks alone or with the other's. One owns: what it applied is
stored now and then, and the other hears of it sooner or later. It dies, or hands over, at any moment; then the other
goes on from what was stored. The core checks P1, P4, P6 and P7 on what it is told.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import zmq
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indexer.collect.commands import Ask, ReplayEnd
from indexer.collect.lanes import LaneBudget
from indexer.collect.listener import Listener, Standby
from indexer.collect.options import CollectOptions
from indexer.collect.pump import Pump
from indexer.collect.ring import RingBudget
from indexer.collect.shared import Shared
from indexer.collect.subscriber import Subscriber
from indexer.decode.envelope import stamp
from indexer.model import Descriptor, RawBatch
from indexer.ports import CollectorCount, DoubtReason, Replayed, RestartReason, Resume, SuspectReason
from tests.support.collect_batches import LIFE_S, batch
from tests.support.scripted_wire import ScriptedWire

RCVHWM = 4
OPTIONS = replace(
    CollectOptions(), rcvhwm_messages=RCVHWM, quantum_messages=2, lane_bytes=4_000, standby_source_bytes=8_000
)
SETTLE_STEPS_MAX = 600
DRAINS = 20
"""Whatever waits is worked off by then, unless a recovery runs."""
STEP_S = 1 / 64
"""Times are binary fractions: differences of them are exact."""


class MachineClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> float:
        return self.seconds

    def wall_us(self) -> int:
        return round(self.seconds * 1e6)


@dataclass
class Known:
    """What a core knows of a source; a copy of it is what a store has."""

    cursor: int | None = None
    stamp: float | None = None
    lives: set[int] = field(default_factory=set)
    newest_life: int = 0
    applied: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    doubted: bool = False
    suspicions: set[SuspectReason] = field(default_factory=set)


class CheckingSink:
    """Implements ports.EventSink: the core of whoever owns now."""

    def __init__(self, descriptor: Descriptor, known: Known, resume: Resume | None, *, guessed: bool) -> None:
        self.descriptor = descriptor
        self.known = known
        self.resume = resume
        self.open = True
        self.busy = False
        self.seen_at = float("-inf")
        self.is_syncing = False
        self.guessed = guessed
        """Replay could not examine everything: P6 guesses."""

    @property
    def cursor(self) -> int | None:
        return self.known.cursor

    def go_on(self) -> bool:
        return False

    def apply(self, message: RawBatch) -> None:
        assert self.open
        known = self.known
        life = int(stamp(message.payload) // LIFE_S)
        known.stamp = stamp(message.payload)
        assert known.cursor is None or message.sequence == known.cursor + 1, "in order, each once, every hole reported"
        assert life >= known.newest_life, "nothing of an old life after the new one began"
        if known.lives and life not in known.lives:
            assert self.guessed, "a new life was noticed"
            assert known.doubted or self.descriptor.replay_endpoint, "or what it may be mixed with is in doubt"
        known.newest_life = life
        known.lives.add(life)
        known.applied.add(message.sequence)
        known.cursor = message.sequence

    def restart(self, reason: RestartReason) -> None:
        assert self.open, reason
        self.known = Known(newest_life=self.known.newest_life, suspicions=self.known.suspicions)

    def gap(self, first: int, last: int) -> None:
        assert self.open
        known = self.known
        assert first == (0 if known.cursor is None else known.cursor + 1)
        known.lost |= set(range(first, last + 1))
        known.cursor, known.stamp = last, None

    def syncing(self, active: bool) -> None:
        assert self.open
        assert active != self.is_syncing
        self.is_syncing = active

    def proved(self) -> None:
        assert self.open
        if self.known.cursor is None:
            self.known.cursor = -1

    def doubt(self, reason: DoubtReason) -> None:
        assert self.open, reason
        self.known.doubted = True

    def suspect(self, reason: SuspectReason, active: bool) -> None:
        assert active != (reason in self.known.suspicions)
        (self.known.suspicions.add if active else self.known.suspicions.remove)(reason)

    def alive(self, connected: bool, silent_s: float = 0.0) -> None:
        """Not looked at here."""

    def seen(self, at: float) -> None:
        self.seen_at = max(self.seen_at, at)

    def count(self, what: CollectorCount, n: int = 1) -> None:
        """Not looked at here."""

    def replayed(self, told: Replayed) -> None:
        """Not looked at here."""

    def warn(self, warning: str | None, *, key: str) -> None:
        """Not looked at here."""


class Machine(RuleBasedStateMachine):
    """One source, its engine, its owner and its standby."""

    @initialize(replay=st.booleans(), buffer=st.sampled_from([3, 1_000]))
    def begin(self, replay: bool, buffer: int) -> None:
        self.clock = MachineClock()
        self.replay = replay
        self.complete = replay and buffer > 3
        """Everything lost can be had again."""
        self.faultless = True
        """Nothing at all was lost on the way to a standby, and no connection broke."""
        self.life = self.next_number = 0
        self.kept: deque[RawBatch] = deque(maxlen=buffer)
        self.asked: Ask | None = None
        self.answers = False
        self.descriptor = Descriptor(
            pod="a", endpoint="tcp://engine", replay_endpoint="tcp://replay" if replay else None
        )
        self.shared = Shared(
            context=zmq.Context.instance(),
            options=OPTIONS,
            clock=self.clock,
            budget=LaneBudget(OPTIONS.lanes_total_bytes),
            standby=RingBudget(OPTIONS.standby_total_bytes),
            pump=Pump(self.clock, 1.0),
            ask=self.ask,
        )
        self.stored, self.stored_at = Known(), self.clock.now()
        self.sink = CheckingSink(self.descriptor, Known(), None, guessed=not replay)
        self.wire = ScriptedWire(OPTIONS)
        self.owner = Subscriber(self.sink, self.shared, Standby(self.wire, self.shared.ring()))  # type: ignore[arg-type]
        self.listen_anew()

    def listen_anew(self) -> None:
        self.beside = ScriptedWire(OPTIONS)
        self.standby = Listener("", self.shared, Standby(self.beside, self.shared.ring()))  # type: ignore[arg-type]

    def ask(self, subscriber: Subscriber, ask: Ask) -> Any:  # noqa: ANN401  in the place of a task
        assert self.replay
        assert subscriber is self.owner or not hasattr(self, "owner")
        self.asked, self.answers = ask, True
        return Conversation(self)

    def later(self, seconds: float = STEP_S) -> None:
        self.clock.seconds += seconds

    # --- the engine ---

    @rule(count=st.integers(1, 5), reaches=st.booleans(), reaches_standby=st.booleans())
    def publish(self, count: int, reaches: bool, reaches_standby: bool) -> None:
        """Where it does not reach a replica, it is lost on the way there."""
        for _ in range(count):
            message = batch(self.next_number, self.life)
            self.next_number += 1
            self.kept.append(message)
            arrived = reaches and self.wire.arrive(message)
            arrived_beside = reaches_standby and self.beside.arrive(message)
            self.faultless &= arrived and arrived_beside

    @rule(count=st.integers(1, 5))
    def publish_to_all(self, count: int) -> None:
        for _ in range(count):
            self.publish(1, reaches=True, reaches_standby=True)
            self.read()
            self.listen()

    @precondition(lambda self: not self.wire.linked or not self.beside.linked)
    @rule()
    def connect(self) -> None:
        self.later()
        for wire in (self.wire, self.beside):
            if not wire.linked:
                wire.connect(self.clock.now())

    @precondition(lambda self: self.wire.linked)
    @rule(away_s=st.sampled_from([0.0625, 3.0, 20.0]), missed=st.integers(0, 3))
    def blink(self, away_s: float, missed: int) -> None:
        """The owner's connection is lost and comes back."""
        self.cut(self.wire)
        self.later(away_s)
        self.publish(missed, reaches=False, reaches_standby=True)
        self.wire.connect(self.clock.now())

    @precondition(lambda self: self.beside.linked)
    @rule(away_s=st.sampled_from([0.0625, 3.0, 20.0]), missed=st.integers(0, 3))
    def blink_beside(self, away_s: float, missed: int) -> None:
        """The standby's connection is lost and comes back."""
        self.cut(self.beside)
        self.later(away_s)
        self.publish(missed, reaches=True, reaches_standby=False)
        self.beside.connect(self.clock.now())

    @rule(
        away_s=st.sampled_from([5.0, 60.0]), missed=st.integers(0, 8), first=st.sampled_from(["both", "own", "beside"])
    )
    def restart(self, away_s: float, missed: int, first: str) -> None:
        """A new process, which has published some before the replicas are connected again."""
        for wire in (self.wire, self.beside):
            if wire.linked:
                self.cut(wire)
        self.faultless = False
        self.later(away_s)
        self.life += 1
        self.next_number = 0
        self.kept.clear()
        self.answers = False
        self.publish(missed, reaches=False, reaches_standby=False)
        for wire, name in ((self.wire, "own"), (self.beside, "beside")):
            if first in {"both", name}:
                wire.connect(self.clock.now())

    def cut(self, wire: ScriptedWire) -> None:
        """A lost connection is noticed when it happens: its time is what P6 counts from."""
        self.faultless = False
        wire.cut(self.clock.now())
        reader: Subscriber | Listener = self.owner if wire is self.wire else self.standby
        for _ in range(DRAINS):
            reader.drain()

    # --- the replicas ---

    @rule()
    def read(self) -> None:
        self.later()
        self.owner.drain()

    @rule()
    def listen(self) -> None:
        self.later()
        self.standby.drain()

    @rule(seconds=st.sampled_from([0.25, 5.0, 70.0]))
    def tick(self, seconds: float) -> None:
        waits = self.asked is not None or self.owner._question is not None
        if waits and seconds > OPTIONS.replay_timeout_s:
            return  # its conversation would have ended before, and what is put off is asked within milliseconds
        self.later(seconds)
        self.tick_now()

    def tick_now(self) -> None:
        self.owner._perform(self.owner.session.tick(self.clock.now(), answers=self.owner._ring is None))

    @rule()
    def store(self) -> None:
        """What is known by now outlives the owner."""
        self.stored = deepcopy(self.sink.known)
        if self.owner._is_at_present:
            self.stored_at = self.clock.now() if self.owner.connected else self.wire.seen_at
        else:
            self.stored_at = max(self.stored_at, self.sink.seen_at)

    @rule()
    def note(self) -> None:
        """The standby hears of what was stored last."""
        self.standby.ring.note(self.stored.cursor, self.stored.stamp, self.stored_at)

    @rule(seconds=st.sampled_from([0.0, 2.0, 12.0]), noted=st.booleans())
    def die(self, seconds: float, noted: bool) -> None:
        """The owner ends in the middle of anything; what was not stored is gone with it."""
        if noted:
            self.note()
        self.sink.open = False
        self.owner.close()
        self.asked = None
        self.later(seconds)
        self.take_over(self.standby.hand_over())
        self.listen_anew()

    @rule(noted=st.booleans())
    def hand_over(self, noted: bool) -> None:
        """The owner stores all it has told, and becomes the standby of the other."""
        self.store()
        if noted:
            self.note()
        sink, before = self.sink, Listener("", self.shared, self.owner.step_down())
        sink.open = False
        self.asked = None
        standing, beside = self.wire, self.beside
        self.take_over(self.standby.hand_over())
        assert self.wire is beside
        self.standby, self.beside = before, standing
        before.ring.note(self.stored.cursor, self.stored.stamp, self.stored_at)

    @rule(seconds=st.sampled_from([0.0, 1.0]))
    def step_down_and_up(self, seconds: float) -> None:
        """Nobody else took it meanwhile: the same sink goes on, with all that came."""
        standby = self.owner.step_down()
        self.asked = None
        listener = Listener("", self.shared, standby)
        self.later(seconds)
        listener.drain()
        self.owner = Subscriber(self.sink, self.shared, listener.hand_over())

    def take_over(self, standby: Standby) -> None:
        known, sink = deepcopy(self.stored), self.sink
        resume = None
        if known.cursor is not None:
            resume = Resume(
                known.cursor,
                known.stamp,
                self.clock.now() - self.stored_at,
                suspicions=frozenset(known.suspicions),
                unproven=known.doubted,
            )
        else:
            known.suspicions = set()
        self.sink = CheckingSink(self.descriptor, known, resume, guessed=sink.guessed)
        self.wire = standby.wire  # type: ignore[assignment]
        del self.owner
        self.owner = Subscriber(self.sink, self.shared, standby)

    # --- replay ---

    @precondition(lambda self: self.asked is not None and self.answers)
    @rule(marker=st.booleans(), cut_at=st.integers(0, 30))
    def answer(self, marker: bool, cut_at: int) -> None:
        """Replies, maybe no end marker, the rest only after other things happened."""
        asked = self.asked
        assert asked is not None
        replies = [each for each in self.kept if each.sequence >= asked.first]
        if marker or cut_at:
            self.owner._inbox.put(asked.conversation, replies if marker else replies[:cut_at])
        if marker:
            self.finish(asked, ReplayEnd.COMPLETE)

    @precondition(lambda self: self.asked is not None)
    @rule()
    def time_out(self) -> None:
        """Silence. What P6 says when replay does not help is a guess."""
        asked = self.asked
        assert asked is not None
        self.later(OPTIONS.replay_timeout_s)
        self.complete = False
        self.sink.guessed = True
        self.finish(asked, ReplayEnd.TIMEOUT)

    def finish(self, asked: Ask, end: ReplayEnd) -> None:
        self.owner._inbox.put(asked.conversation, end)
        if self.asked is asked:
            self.asked = None

    # --- promises ---

    @invariant()
    def what_is_held_is_bounded(self) -> None:
        if hasattr(self, "owner"):
            assert self.shared.standby.used_bytes <= 2 * OPTIONS.standby_source_bytes + 2_000
            assert self.shared.budget.used_bytes <= OPTIONS.lane_bytes + 1_000
            rings = self.standby.ring.used_bytes + (self.owner._ring.used_bytes if self.owner._ring else 0)
            assert self.shared.standby.used_bytes == rings

    def teardown(self) -> None:
        """Left alone with a connection and a replay endpoint that answers, the owner catches up."""
        if not hasattr(self, "owner"):
            return
        if not self.wire.linked:
            self.wire.connect(self.clock.now())
        for _ in range(SETTLE_STEPS_MAX):
            if self.settled():
                break
            self.settle_step()
        assert self.settled(), "it comes to rest"
        self.check_knowledge()

    def settle_step(self) -> None:
        asked, owner = self.asked, self.owner
        if asked is not None and self.answers:
            self.answer(marker=True, cut_at=0)
        elif asked is not None:
            self.time_out()
        elif self.wire.queue or self.wire.events or owner._inbox or owner._ring or owner.session.unsettled:
            owner.drain()
        elif not owner.drain() and self.asked is None:
            self.later(70.0)
            self.tick_now()

    def settled(self) -> bool:
        owner = self.owner
        quiet = self.asked is None and not self.wire.queue and not self.wire.events and not owner._inbox
        if not quiet or owner._ring is not None or owner.session.unsettled or self.sink.is_syncing:
            return False
        return not self.replay or (self.caught_up() and "dropped" not in self.sink.known.suspicions)

    def caught_up(self) -> bool:
        newest = self.kept[-1].sequence if self.kept else None
        return newest is None or (self.sink.cursor is not None and self.sink.cursor >= newest)

    def check_knowledge(self) -> None:
        known = self.sink.known
        numbers = known.applied | known.lost
        if known.cursor is not None and known.cursor >= 0:
            assert set(range(min(numbers), known.cursor + 1)) == numbers, "every number is applied or reported lost"
        if self.complete:
            assert not known.lost
            assert set(range(self.next_number)) == known.applied
            assert known.lives <= {self.life}
        if self.faultless and not self.standby.ring.dropped:
            assert not known.lost, "what a standby received is not lost"
            assert not known.doubted


@dataclass
class Conversation:
    """In the place of its task."""

    machine: Machine

    def cancel(self) -> None:
        self.machine.asked = None


TestTakeover = Machine.TestCase


def test_a_life_that_only_the_owner_heard_is_not_forgotten_for_the_one_before() -> None:
    """The owner ended in the past of its connection: that it was seen up since is told of the moment it was."""
    state = Machine()
    state.begin(replay=False, buffer=3)
    state.connect()
    state.publish_to_all(count=1)
    state.restart(away_s=5.0, first="both", missed=0)
    state.publish(count=1, reaches=True, reaches_standby=False)
    state.restart(away_s=5.0, first="both", missed=0)
    state.step_down_and_up(seconds=0.0)
    state.hand_over(noted=False)
    state.restart(away_s=5.0, first="both", missed=0)
    state.teardown()
