"""What the next owner's sink is told of what its process has listened to: transcripts, without a socket."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest
import zmq

from indexer.collect.commands import Ask, ReplayEnd
from indexer.collect.lanes import LaneBudget
from indexer.collect.listener import Listener, Standby
from indexer.collect.options import CollectOptions
from indexer.collect.pump import Pump
from indexer.collect.ring import RUN_OVERHEAD_BYTES, RingBudget
from indexer.collect.shared import Shared
from indexer.collect.subscriber import Subscriber
from indexer.decode.envelope import stamp
from indexer.model import Descriptor
from indexer.ports import Resume
from tests.support.collect_batches import batch, batches
from tests.support.recording_sink import RecordingSink
from tests.support.scripted_wire import ScriptedWire

if TYPE_CHECKING:
    import asyncio

    from indexer.model import RawBatch

START = 1_000.0
OPTIONS = CollectOptions(rcvhwm_messages=4)
AWAY_S = 10.0
"""For so long nobody has listened to the engine, as far as the store tells: a lease."""
SYNC, SYNCED = ("syncing", True), ("syncing", False)
UNPROVEN = ("doubt", "process_unproven")


class StandingClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = START

    def now(self) -> float:
        return self.seconds

    def wall_us(self) -> int:
        return round(self.seconds * 1e6)


def stood_at(sequence: int, life: int = 0, away_s: float = AWAY_S) -> Resume:
    """Where the owner before left off."""
    return Resume(sequence, None if sequence < 0 else stamp(batch(sequence, life).payload), away_s)


def applied(*what: RawBatch) -> list[tuple[object, ...]]:
    """As a sink notes it."""
    return [("apply", each.sequence) for each in what]


class HeedingSink(RecordingSink):
    """Notes also what it is told of the connection."""

    def alive(self, connected: bool, silent_s: float = 0.0) -> None:
        super().alive(connected, silent_s)
        self.story.append(("alive", connected))


class Story:
    """A process that listens to an engine, and at some moment becomes the owner."""

    def __init__(self, *, replay: bool = False, options: CollectOptions = OPTIONS) -> None:
        self.clock = StandingClock()
        self.asked: list[int] = []
        self._conversation = 0
        self._shared = Shared(
            context=zmq.Context.instance(),
            options=options,
            clock=self.clock,
            budget=LaneBudget(options.lanes_total_bytes),
            standby=RingBudget(options.standby_total_bytes),
            pump=Pump(self.clock, 1.0),
            ask=self._ask,
        )
        self._descriptor = Descriptor(
            pod="a", endpoint="tcp://engine", replay_endpoint="tcp://replay" if replay else None
        )
        self.wire = ScriptedWire(options)
        self.listener = Listener("", self._shared, Standby(self.wire, self._shared.ring()))  # type: ignore[arg-type]
        self._reader: Listener | Subscriber = self.listener

    def _ask(self, _: Subscriber, ask: Ask) -> asyncio.Task[None] | None:
        self.asked.append(ask.first)
        self._conversation = ask.conversation
        return None

    def _read(self) -> None:
        while self._reader.drain():
            pass

    def up(self, after_s: float = 0.0) -> None:
        """The connection stands, after so long."""
        self.clock.seconds += after_s
        self.wire.connect(self.clock.now())
        self._read()

    def down(self) -> None:
        """It is lost."""
        self.wire.cut(self.clock.now())
        self._read()

    def live(self, first: int, last: int | None = None, life: int = 0) -> None:
        """These arrive."""
        for each in batches(first, first if last is None else last, life):
            assert self.wire.arrive(each)
            self._read()

    def note(self, sequence: int, life: int = 0, *, alive: bool = True) -> None:
        """The owner has made that batch durable, and sees the engine connected."""
        its_stamp = stamp(batch(sequence, life).payload)
        self.listener.ring.note(sequence, its_stamp, self.clock.now() if alive else None)

    def take_over(self, resume: Resume | None, after_s: float = 0.0) -> RecordingSink:
        """The owner is gone, and so long after its last word this process takes its place."""
        self.clock.seconds += after_s
        self.sink = RecordingSink(self._descriptor, resume)
        self.start(self.sink)
        return self.sink

    def start(self, sink: RecordingSink) -> None:
        """This process owns it."""
        self._reader = Subscriber(sink, self._shared, self.listener.hand_over())
        self._read()

    def step_down(self) -> None:
        """And no more."""
        assert isinstance(self._reader, Subscriber)
        self._reader = self.listener = Listener("", self._shared, self._reader.step_down())
        self._read()

    def reply(self, first: int, last: int, life: int = 0, *, end: bool = True) -> None:
        """The replay endpoint answers what it was asked last."""
        assert isinstance(self._reader, Subscriber)
        self._reader._inbox.put(self._conversation, batches(first, last, life))
        if end:
            self._reader._inbox.put(self._conversation, ReplayEnd.COMPLETE)
        self._read()

    @property
    def held_bytes(self) -> int:
        """In rings and lanes."""
        return self._shared.standby.used_bytes + self._shared.budget.used_bytes


# --- one connection all along ---


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("noted", [None, 3, 6])
def test_what_came_behind_the_cursor_is_told(replay: bool, noted: int | None) -> None:
    """Whether the ring still has that batch or had it once: nobody is asked, nothing is in doubt."""
    story = Story(replay=replay)
    story.up()
    story.live(0, 9)
    if noted is not None:
        story.note(noted, alive=False)
    sink = story.take_over(stood_at(6), AWAY_S)
    assert [SYNC, *applied(*batches(7, 9)), SYNCED] == sink.story
    story.live(10)

    assert [*batches(7, 10)] == [batch(number) for number in sink.applied]
    assert [7, 8, 9] == sink.late
    assert ([], 0) == (story.asked, story.held_bytes)


@pytest.mark.parametrize("replay", [False, True])
def test_the_cursor_is_all_there_is(replay: bool) -> None:
    """Idle since: the source is not even syncing."""
    story = Story(replay=replay)
    story.up()
    story.live(0, 9)
    story.note(9, alive=False)
    sink = story.take_over(stood_at(9), AWAY_S)
    assert [] == sink.story
    story.live(10)

    assert (applied(batch(10)), []) == (sink.story, story.asked)


def test_idle_since_before_it_was_listened_to() -> None:
    """The owner saw the engine connected while a connection stood here: the same process, and nothing is missing."""
    story = Story()
    story.up()
    story.note(41)
    sink = story.take_over(stood_at(41), AWAY_S)
    story.live(42)

    assert applied(batch(42)) == [told for told in sink.story if told[0] != "syncing"]


def test_what_the_engine_said_before_it_was_listened_to_is_a_gap() -> None:
    """On an unbroken connection, however long nobody owned it."""
    story = Story()
    story.up()
    story.note(41)
    story.live(45, 46)
    sink = story.take_over(stood_at(41), AWAY_S)

    assert [SYNC, ("gap", 42, 44), *applied(*batches(45, 46)), SYNCED] == sink.story


def test_a_connection_that_is_younger_than_the_owners_last_look_is_a_reconnect() -> None:
    """As without a standby: an engine may have started anew."""
    story = Story()
    story.note(41)
    story.clock.seconds += AWAY_S
    story.up()
    story.live(45)
    sink = story.take_over(stood_at(41))

    assert [SYNC, UNPROVEN, ("restart", "reconnect_jump"), ("apply", 45), SYNCED] == sink.story


def test_where_the_owner_was_in_doubt_who_speaks_its_look_proves_nothing() -> None:
    """It had reconnected itself, and nothing told who was there."""
    story = Story()
    story.up()
    story.note(41)
    story.live(45)
    sink = story.take_over(replace(stood_at(41), unproven=True), AWAY_S)

    assert [SYNC, UNPROVEN, ("restart", "reconnect_jump"), ("apply", 45), SYNCED] == sink.story


def test_an_owner_that_is_ahead_of_this_process() -> None:
    """What comes up to its cursor it has applied: neither told again, nor taken for another engine's."""
    story = Story()
    story.up()
    story.live(3, 5)
    story.note(8)
    sink = story.take_over(stood_at(8))
    story.live(6, 10)

    assert [9, 10] == sink.applied
    assert not {"gap", "restart", "doubt"} & {told[0] for told in sink.story}


def test_another_batch_in_the_cursors_place_is_another_engines() -> None:
    """Whatever was believed of the connection."""
    story = Story()
    story.up()
    story.live(3, 5)
    story.note(8)
    sink = story.take_over(stood_at(8))
    story.live(6, 7)
    story.live(8, life=1)

    assert [("restart", "sequence_went_back"), ("apply", 8)] == sink.story[-2:]


# --- holes ---


def small(**limits: int) -> CollectOptions:
    """A ring for a handful of batches."""
    return replace(OPTIONS, standby_source_bytes=1_500 + 2 * RUN_OVERHEAD_BYTES, **limits)


def test_a_hole_is_a_gap_where_nobody_replays() -> None:
    """The ring was too small; what is left of it counts."""
    story = Story(options=small())
    story.up()
    story.live(0, 39)
    story.note(6)
    first = 40 - story.listener.view.batches
    sink = story.take_over(stood_at(6), AWAY_S)

    assert first > 7
    assert [SYNC, ("gap", 7, first - 1), *applied(*batches(first, 39)), SYNCED] == sink.story


def test_a_hole_is_fetched_where_the_engine_replays() -> None:
    """The engine on this connection; the rest of the ring follows."""
    story = Story(replay=True, options=small())
    story.up()
    story.live(0, 39)
    story.note(6)
    first = 40 - story.listener.view.batches
    sink = story.take_over(stood_at(6), AWAY_S)
    assert [6] == story.asked
    story.live(40)
    story.reply(6, first, end=False)

    assert list(range(7, 41)) == sink.applied
    assert {"syncing", "apply"} == {told[0] for told in sink.story}
    assert 0 == story.held_bytes


def test_the_newest_message_found_no_room() -> None:
    """It is suspected at once; what arrives next shows what it was."""
    story = Story(options=replace(OPTIONS, standby_total_bytes=0))
    story.up()
    story.live(0, 6)
    story.note(6)
    story.live(7, 8)
    sink = story.take_over(stood_at(6))
    story.live(9)

    assert [("suspect", "dropped", True), ("gap", 7, 8), ("apply", 9), ("suspect", "dropped", False)] == [
        told for told in sink.story if told[0] != "syncing"
    ]


# --- engines that start anew ---


def test_an_engine_restarts_while_it_is_listened_to() -> None:
    """What it said before is told first, then that it is another."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    story.live(0, 1, life=1)
    sink = story.take_over(stood_at(6), AWAY_S)

    assert applied(*batches(7, 9)) == sink.story[1:4]
    assert [("restart", "sequence_went_back"), *applied(*batches(0, 1)), SYNCED] == sink.story[-4:]


def test_a_restart_is_asked_about_at_the_engine_that_is_there() -> None:
    """Not before all that happened to the connection is told; its history comes by replay."""
    story = Story(replay=True)
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    story.live(4, 5, life=1)
    sink = story.take_over(stood_at(6), AWAY_S)
    assert [SYNC, *applied(*batches(7, 9))] == sink.story
    assert [9] == story.asked
    story.reply(0, 0, life=1)
    assert [9, 0] == story.asked
    story.reply(0, 5, life=1)

    assert ("restart", "probe_differs") in sink.story
    assert [batch(number, 1).payload for number in range(6)] == sink.payloads
    assert not sink.is_syncing


def test_a_gap_before_a_reconnect_is_not_asked_of_whoever_is_there_now() -> None:
    """But once that one is known to be the same, it is."""
    story = Story(replay=True)
    story.up()
    story.live(0, 6)
    story.live(9, 10)
    story.down()
    story.up(after_s=6.0)
    story.live(11)
    sink = story.take_over(stood_at(6), AWAY_S)
    assert ([6], []) == (story.asked, sink.applied)
    story.reply(6, 11)

    assert list(range(7, 12)) == sink.applied
    assert not {"gap", "restart"} & {told[0] for told in sink.story}


def test_the_owner_knew_of_the_restart() -> None:
    """What is held of the life before goes unseen."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    story.live(0, 3, life=1)
    sink = story.take_over(stood_at(1, life=1))

    assert [SYNC, *applied(*batches(2, 3)), SYNCED] == sink.story


def test_the_owner_knew_of_it_and_its_cursor_never_came_here() -> None:
    """It saw the new engine connected while a connection stood here: that one's messages count, no older ones."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    story.live(4, 5, life=1)
    story.note(2, life=1)
    sink = story.take_over(stood_at(2, life=1), AWAY_S)

    assert [("gap", 3, 3), *applied(*batches(4, 5))] == [told for told in sink.story if told[0] != "syncing"]


def test_a_short_absence_is_none_of_an_engines() -> None:
    """It blinked while it was listened to: what is missing is a gap."""
    story = Story()
    story.up()
    story.live(0, 6)
    story.down()
    story.up(after_s=0.5)
    story.live(9)
    sink = story.take_over(stood_at(6), AWAY_S)

    assert [("gap", 7, 8), ("apply", 9)] == [told for told in sink.story if told[0] != "syncing"]


# --- fresh sources ---


def test_a_source_of_which_nothing_is_known_takes_all_that_came() -> None:
    """Its history is complete."""
    story = Story()
    story.up()
    story.live(0, 4)

    assert [SYNC, *applied(*batches(0, 4)), SYNCED] == story.take_over(None).story


@pytest.mark.parametrize("last", [2, 9])
def test_of_several_lives_the_newest_counts(last: int) -> None:
    """Whether its numbers went back or not."""
    story = Story()
    story.up()
    story.live(0, 4)
    story.down()
    story.up(after_s=6.0)
    story.live(0, last, life=1)
    sink = story.take_over(None)

    assert [batch(number, 1).payload for number in range(last + 1)] == sink.payloads
    assert not {"restart", "gap", "doubt"} & {told[0] for told in sink.story}


def test_a_fresh_source_whose_engine_replays_is_asked_for_all() -> None:
    """What came meanwhile is held until it is known."""
    story = Story(replay=True)
    story.up()
    story.live(3, 4)
    sink = story.take_over(None)
    assert ([0], []) == (story.asked, sink.applied)
    story.reply(0, 4)

    assert list(range(5)) == sink.applied


# --- stepping down ---


@pytest.mark.parametrize("replay", [False, True])
def test_the_same_sink_goes_on(replay: bool) -> None:
    """Nothing is told meanwhile, and then what came, once."""
    story = Story(replay=replay)
    story.up()
    story.live(0, 2)
    sink = story.take_over(stood_at(1))
    story.live(3)
    story.step_down()
    story.live(4, 5)
    assert [2, 3] == sink.applied
    story.start(sink)
    story.live(6)

    assert [2, 3, 4, 5, 6] == sink.applied
    assert ([], 0) == (story.asked, story.held_bytes)


def test_what_a_recovery_held_back_is_kept() -> None:
    """Its replies are not: what they would have brought is asked for again."""
    story = Story(replay=True)
    story.up()
    story.live(0, 2)
    sink = story.take_over(stood_at(2))
    story.live(5, 6)
    assert ([2], True) == (story.asked, sink.is_syncing)
    story.step_down()
    assert not sink.is_syncing
    story.live(7)
    story.start(sink)
    assert [2, 2] == story.asked
    story.reply(2, 7)

    assert [3, 4, 5, 6, 7] == sink.applied
    assert {"syncing", "apply"} == {told[0] for told in sink.story}


def test_a_reconnect_that_was_not_examined_yet_is_none_later() -> None:
    """Stepping down and up again does not make it another connection."""
    story = Story()
    story.up()
    story.live(0, 2)
    sink = story.take_over(stood_at(2))
    story.down()
    story.up(after_s=6.0)
    story.step_down()
    story.start(sink)
    story.live(5)

    assert [UNPROVEN, UNPROVEN, ("restart", "reconnect_jump"), ("apply", 5)] == [
        told for told in sink.story if told[0] != "syncing"
    ]


def test_an_owner_that_comes_back_after_another_had_it() -> None:
    """It goes on behind what that one made durable."""
    story = Story()
    story.up()
    story.live(0, 2)
    story.take_over(stood_at(1))
    story.step_down()
    story.live(3, 9)
    story.note(7)
    sink = story.take_over(stood_at(7), AWAY_S)

    assert [SYNC, *applied(*batches(8, 9)), SYNCED] == sink.story


def test_a_sink_that_was_told_nothing_goes_on_from_nothing() -> None:
    """It stood at an empty history, and still does."""
    story = Story()
    story.up()
    sink = story.take_over(stood_at(-1, away_s=inf))
    story.step_down()
    story.start(sink)
    story.live(0, 1)

    assert [0, 1] == sink.applied


def test_what_was_suspected_is_still_the_collectors_to_take_back() -> None:
    """Messages had been dropped before: the next one that arrives ends that, once."""
    story = Story()
    story.up()
    story.live(0, 6)
    sink = story.take_over(replace(stood_at(6), suspicions=frozenset({"dropped"})))
    story.step_down()
    story.start(sink)
    story.live(7)

    assert [("apply", 7), ("suspect", "dropped", False)] == sink.story


def test_an_endpoint_of_another_engine_is_not_asked_after_stepping_down_either() -> None:
    """What it was seen to be, it is."""
    story = Story(replay=True)
    story.up()
    story.live(0, 6)
    sink = story.take_over(replace(stood_at(6), suspicions=frozenset({"replay_differs"})))
    story.live(7)
    story.step_down()
    story.start(sink)
    story.live(9)

    assert [("apply", 7), ("gap", 8, 8), ("apply", 9)] == sink.story
    assert ([], {"replay_differs"}) == (story.asked, sink.suspicions)


def test_a_reconnect_that_was_lost_again_before_anything_came() -> None:
    """The longest absence counts, whoever had the connection meanwhile."""
    story = Story()
    story.up()
    story.live(0, 2)
    sink = story.take_over(stood_at(2))
    story.down()
    story.up(after_s=6.0)
    story.down()
    story.step_down()
    story.start(sink)
    story.up(after_s=0.5)
    story.live(5)

    assert [("restart", "reconnect_jump"), ("apply", 5)] == sink.story[-2:]


def test_what_may_be_left_of_a_connection_before_is_not_the_new_ones() -> None:
    """The engine came back a moment ago, and nobody knows yet what its queue still holds of the life before."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.clock.seconds += 6.0
    story.wire.connect(story.clock.now())
    story.listener.drain()  # what is left, if anything, has not been read
    story.note(2, life=1)
    sink = story.take_over(stood_at(2, life=1))
    story.live(3, life=1)

    assert [("apply", 3)] == [told for told in sink.story if told[0] != "syncing"]
    assert 1 == sink.counts["reconnects"]


def test_what_was_held_over_a_reconnect_is_still_of_the_engine_before() -> None:
    """Nobody knew yet who is back: stepping down and up again makes it nobody else's."""
    story = Story(replay=True)
    story.up()
    story.live(0)
    sink = story.take_over(None)
    story.down()
    story.up(after_s=6.0)
    story.step_down()
    story.start(sink)
    story.reply(0, 1, life=1)

    assert [batch(number, 1).payload for number in range(2)] == sink.payloads
    assert {"syncing", "apply"} == {told[0] for told in sink.story}


def test_a_connection_is_not_said_to_stand_before_its_loss_was_told() -> None:
    """It would be taken for a sign of life of the engine that spoke before."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    sink = HeedingSink(Descriptor(pod="a", endpoint="tcp://engine"), stood_at(6))
    story.start(sink)

    assert [*applied(*batches(7, 9)), UNPROVEN, ("alive", True)] == [
        told for told in sink.story if told[0] != "syncing"
    ]


def test_what_was_told_before_anything_was_known_is_taken_back_too() -> None:
    """Its history never came, and more was dropped than held: all of that once the engine has answered."""
    story = Story(replay=True, options=replace(OPTIONS, lane_bytes=500))
    story.up()
    sink = story.take_over(None)
    story.live(3, 9)
    assert {"dropped"} == sink.suspicions
    story.step_down()
    story.start(sink)
    story.reply(0, 9)

    assert list(range(10)) == sink.applied
    assert not sink.suspicions


def test_a_connection_of_the_past_is_told_as_of_then() -> None:
    """Where the owner ends before it is at present, whoever goes on begins with that connection, not one before."""
    story = Story()
    story.up()
    story.live(0, 9)
    story.down()
    story.up(after_s=6.0)
    came_up_at = story.clock.seconds
    story.down()
    story.up(after_s=7.0)
    sink = story.take_over(stood_at(6))

    assert [came_up_at, story.clock.seconds] == sink.seen_calls[-2:]


def test_an_owner_that_was_cut_off_steps_down_and_takes_over_what_it_never_heard() -> None:
    """Meanwhile another owner heard the engine's next process: the connection here leads to the one before."""
    story = Story()
    story.up()
    story.live(0, 16)
    sink = story.take_over(None)
    story.clock.seconds += 10.0
    story.step_down()
    after = story.take_over(stood_at(3, life=1))

    assert not [told for told in after.story if told[0] == "apply"]
    assert story.wire.renewals == 1
    assert [("apply", number) for number in range(17)] == [told for told in sink.story if told[0] == "apply"]
