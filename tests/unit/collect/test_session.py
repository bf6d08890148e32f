"""The session: what the sockets bring in, commands out. Each test is a transcript."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.collect import remarks
from indexer.collect.commands import (
    Ask,
    BeginLife,
    Command,
    ConnectAnew,
    Count,
    Doubt,
    HangUp,
    Prove,
    ReplayEnd,
    ReportGap,
    SetSyncing,
    Suspect,
)
from indexer.collect.lanes import BATCH_OVERHEAD_BYTES, Lane, LaneBudget
from indexer.collect.options import CollectOptions
from indexer.collect.recovery import ENGINE_REPLAY_HWM
from indexer.collect.session import Session
from tests.support.collect_batches import batch, batches

OPTIONS = CollectOptions()
START = 100.0
UNPROVEN = Doubt("process_unproven")
SYNC, SYNCED = SetSyncing(active=True), SetSyncing(active=False)
COMPLETE, TIMEOUT, FAILED = ReplayEnd.COMPLETE, ReplayEnd.TIMEOUT, ReplayEnd.FAILED
DROPPED, MADE_GOOD = Suspect("dropped", active=True), Suspect("dropped", active=False)
OK, PARTIAL = Count("replays_ok"), Count("replays_partial")


class Story:
    """A session with a clock of its own, and the newest conversation's number at hand."""

    def __init__(self, *, replay: bool = True, options: CollectOptions = OPTIONS) -> None:
        self.now = START
        self.lane = Lane(options.lane_bytes, LaneBudget(options.lanes_total_bytes))
        self.session = Session(options, self.lane, self.now, replay=replay)
        self.asked = 0

    def _note(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            if isinstance(command, Ask):
                self.asked = command.conversation
        return commands

    def up(self) -> list[Command]:
        return self._note(self.session.connection_up(self.now))

    def down(self) -> list[Command]:
        return self._note(self.session.connection_down(self.now))

    def live(self, first: int, last: int | None = None, life: int = 0) -> list[Command]:
        arrived = batches(first, first if last is None else last, life)
        return self._note(self.session.messages(arrived, self.now))

    def empty(self) -> list[Command]:
        return self._note(self.session.socket_empty(self.now))

    def reply(self, first: int, last: int | None = None, life: int = 0) -> list[Command]:
        replies = batches(first, first if last is None else last, life)
        return self._note(self.session.replayed(self.asked, replies, self.now))

    def end(self, end: ReplayEnd = COMPLETE) -> list[Command]:
        return self._note(self.session.replay_ended(self.asked, end, self.now))

    def drain(self) -> list[Command]:
        """All quanta of the lane until there is none."""
        out: list[Command] = []
        while self.session.drains_lane:
            out += self._note(self.session.drain_lane(self.now))
        return out

    def after(self, seconds: float) -> list[Command]:
        self.now += seconds
        return self._note(self.session.tick(self.now))

    def reconnect(self, away_s: float = 0.1) -> list[Command]:
        """Down and up again, and the socket found empty: nothing is left of the old connection."""
        out = self.down()
        self.now += away_s
        return out + self.up() + self.empty()


def joined(first: int = 0, last: int = 4, *, replay: bool = True, options: CollectOptions = OPTIONS) -> Story:
    """Connected, history first..last applied, live."""
    story = Story(replay=replay, options=options)
    story.up()
    if replay:
        story.reply(first, last)
        story.end()
    else:
        story.live(first, last)
    assert not story.session.drains_lane
    return story


# --- join ---


def test_join_replays_history_before_live() -> None:
    """Everything published before the start is applied first; live messages wait and lose their overlap."""
    story = Story()

    assert [] == story.session.begin()
    assert [SYNC, Ask(1, 0)] == story.up()
    assert [] == story.live(3, 5)
    assert batches(0, 1) == story.reply(0, 1)
    assert [batch(2), HangUp(), OK] == story.reply(2, 3)
    assert [*batches(3, 5), SYNCED] == story.drain()
    assert batches(6, 7) == story.live(6, 7)


def test_overlap_of_replay_and_live_is_applied_once() -> None:
    """A reply that overlaps what is held ends the conversation; held messages at or below the cursor are dropped."""
    story = Story()
    story.up()
    story.live(2, 5)

    assert [*batches(0, 1), HangUp(), OK] == story.reply(0, 4)
    assert [*batches(2, 5), SYNCED] == story.drain()

    story = Story()
    story.up()
    story.reply(0, 4)
    story.live(3, 6)
    assert [HangUp(), OK] == story.reply(5)
    assert [*batches(5, 6), SYNCED] == story.drain()


def test_an_empty_history_is_a_proof() -> None:
    """Only the end marker: the engine has published nothing, and a first batch above 0 is then a gap."""
    story = Story()
    story.up()

    assert [Prove(), OK, SYNCED] == story.end()
    assert [Count("gaps"), SYNC, Ask(2, 0)] == story.live(2)
    assert [batch(0)] == story.reply(0)
    assert [batch(1), HangUp(), OK] == story.reply(1, 2)
    assert [batch(2), SYNCED] == story.drain()


def test_number_zero_alone_is_a_history() -> None:
    """A single batch, number 0, is applied and proved; the next is 1."""
    story = Story()
    story.up()

    assert [batch(0)] == story.reply(0)
    assert [Prove(), OK, SYNCED] == story.end()
    assert [batch(1)] == story.live(1)


def test_a_history_truncated_at_join_is_kept() -> None:
    """The engine's buffer starts at 7: applied from there, counted as partial, no gap is reported."""
    story = Story()
    story.up()

    assert batches(7, 9) == story.reply(7, 9)
    assert [Prove(), PARTIAL, SYNCED] == story.end()
    assert [batch(10)] == story.live(10)


def test_a_short_buffer_adds_nothing_to_what_is_held() -> None:
    """The engine keeps less than what arrived live meanwhile: history starts with the oldest held message."""
    story = Story()
    story.up()
    story.live(5, 9)

    assert [HangUp(), PARTIAL] == story.reply(8, 9)
    assert [*batches(5, 9), SYNCED] == story.drain()


def test_without_replay_live_counts_from_its_first_message() -> None:
    """Nothing is held and nothing asked; the operator is told what that costs."""
    story = Story(replay=False)

    assert [remarks.NO_REPLAY] == story.session.begin()
    assert [] == story.up()
    assert batches(7, 9) == story.live(7, 9)


def test_a_silent_replay_endpoint_does_not_hold_live_for_longer_than_its_limit() -> None:
    """Timed out: counted, remarked on, what was held is applied, and live goes on; later it is asked again."""
    story = Story()
    story.up()
    story.live(3, 4)

    assert [Count("replays_timeout"), remarks.REPLAY_SILENT] == story.end(TIMEOUT)
    assert [*batches(3, 4), SYNCED] == story.drain()
    assert [batch(5)] == story.live(5)
    assert [Count("gaps"), Count("batches_lost", 2), ReportGap(6, 7), batch(8)] == story.live(8)
    assert [] == story.after(OPTIONS.replay_backoff_min_s - 0.1)
    assert [Ask(2, 8, probe=True)] == story.after(0.2)
    assert [] == story.reply(8)
    assert [Prove(), remarks.REPLAY_ANSWERS] == story.end()


def test_a_failed_join_is_tried_again_while_nothing_is_known() -> None:
    """Each failure doubles the wait. The first live message after it is held for another try."""
    story = Story()
    story.up()

    assert [Count("replays_failed"), remarks.REPLAY_SILENT, SYNCED] == story.end(FAILED)
    assert [] == story.after(OPTIONS.replay_backoff_min_s - 0.1)
    assert [SYNC, Ask(2, 0)] == story.after(0.2)
    assert [Count("replays_timeout"), remarks.REPLAY_SILENT, SYNCED] == story.end(TIMEOUT)
    assert [] == story.after(2 * OPTIONS.replay_backoff_min_s - 0.1)
    story.now += 0.2
    assert [SYNC, Ask(3, 0)] == story.live(4)
    assert [*batches(0, 3), HangUp(), OK, remarks.REPLAY_ANSWERS] == story.reply(0, 4)
    assert [batch(4), SYNCED] == story.drain()


def test_a_first_message_after_a_failed_join_stands_while_the_endpoint_rests() -> None:
    """Nothing held, endpoint resting: live begins with a truncated history."""
    story = Story()
    story.up()
    story.end(TIMEOUT)

    assert [batch(4)] == story.live(4)


# --- gaps ---


def test_a_gap_is_healed_before_what_follows_it() -> None:
    """What follows the last batch is asked for, and that one; the message behind the gap and later ones wait."""
    story = joined()

    assert [Count("gaps"), SYNC, Ask(2, 4)] == story.live(7)
    assert [] == story.live(8, 9)
    assert [*batches(5, 6), HangUp(), OK] == story.reply(4, 7)
    assert [*batches(7, 9), SYNCED] == story.drain()


def test_messages_read_together_are_cut_at_the_gap() -> None:
    """In one read: before the gap applied, behind it held."""
    story = joined()

    arrived = [batch(5), batch(8), batch(9)]
    commands = story.session.messages(arrived, story.now)

    assert [batch(5), Count("gaps"), SYNC, Ask(2, 5)] == commands
    assert 2 == len(story.lane)


def test_a_gap_that_the_engine_no_longer_keeps_is_reported() -> None:
    """Its buffer starts behind the hole: exactly the lost numbers are named, once."""
    story = joined()
    story.live(9)

    assert [Count("batches_lost", 2), ReportGap(5, 6), batch(7)] == story.reply(7)
    assert [batch(8), HangUp(), PARTIAL] == story.reply(8, 9)
    assert [batch(9), SYNCED] == story.drain()


def test_a_gap_that_no_replay_fills_is_not_asked_for_again() -> None:
    """Numbers used up by an encoding error: neither sent nor kept. The answer starts with the held message."""
    story = joined()
    story.live(7, 8)

    assert [HangUp(), PARTIAL] == story.reply(7, 8)
    assert [Count("batches_lost", 2), ReportGap(5, 6), *batches(7, 8), SYNCED] == story.drain()

    story.live(11)
    story.reply(8)
    assert [Ask(4, 8)] == story.end(COMPLETE)
    story.reply(8)
    assert [PARTIAL] == story.end(COMPLETE)
    assert [Count("batches_lost", 2), ReportGap(9, 10), batch(11), SYNCED] == story.drain()


def test_a_gap_with_a_silent_endpoint_is_reported_after_the_time_limit() -> None:
    """The loss is named when the endpoint did not answer, and counted as one gap."""
    story = joined()

    assert Count("gaps") in story.live(7)
    assert [Count("replays_timeout"), remarks.REPLAY_SILENT] == story.end(TIMEOUT)
    assert [Count("batches_lost", 2), ReportGap(5, 6), batch(7), SYNCED] == story.drain()


def test_without_replay_a_gap_is_reported_at_once() -> None:
    """Then live goes on with the message behind it."""
    story = joined(replay=False)

    assert [Count("gaps"), Count("batches_lost", 2), ReportGap(5, 6), batch(7)] == story.live(7)


def test_a_second_gap_among_the_held_is_healed_too() -> None:
    """What was lost while the first recovery ran (a full lane, a slow socket) starts a second one."""
    story = joined()
    story.live(7)
    story.live(10)
    story.reply(5, 7)

    assert [batch(7), Count("gaps"), Ask(3, 7)] == story.drain()
    assert [*batches(8, 9), HangUp(), OK] == story.reply(7, 10)
    assert [batch(10), SYNCED] == story.drain()


def test_what_a_full_lane_drops_is_healed() -> None:
    """Counted once. The socket is read on and nothing held before the lane is empty; the replay runs to its end."""
    room = 2 * (len(batch(7).payload) + BATCH_OVERHEAD_BYTES)
    story = Story(options=replace(OPTIONS, lane_bytes=room))
    story.up()

    assert [Count("lane_overflows"), DROPPED] == story.live(3, 6)
    assert [] == story.live(7)
    assert batches(0, 7) == story.reply(0, 7)
    assert [OK] == story.end()
    assert [] == story.live(8)
    assert [SYNCED] == story.drain()
    assert [Count("gaps"), SYNC, Ask(2, 7)] == story.live(9)
    assert [batch(8), HangUp(), OK, MADE_GOOD] == story.reply(7, 8)
    assert [batch(9), SYNCED] == story.drain()


def full(*, replay: bool, options: CollectOptions = OPTIONS) -> Story:
    """More came than is applied and than the lane has room for: 5 was held and applied, 6 was dropped, and now idle."""
    story = joined(replay=replay, options=replace(options, lane_bytes=1))
    assert [SYNC] == story.session.backlogged()
    assert [Count("lane_overflows"), DROPPED] == story.live(5, 6)
    assert [batch(5), SYNCED] == story.drain()
    return story


def test_what_a_full_lane_drops_is_asked_for_at_once() -> None:
    """Not at the next message or probe: it is known that something is missing."""
    story = full(replay=True)

    assert [SYNC, Ask(2, 5)] == story.after(0.25)
    assert [batch(6)] == story.reply(5, 6)
    assert [Prove(), OK, MADE_GOOD, SYNCED] == story.end()


def test_what_is_dropped_while_the_engine_answers_may_not_be_in_its_answer() -> None:
    """It is asked once more, and nothing is proved before."""
    story = full(replay=True)
    story.after(0.25)

    assert [Count("lane_overflows")] == story.live(8, 9)
    assert batches(6, 8) == story.reply(5, 8)
    assert [OK] == story.end()
    assert [SYNCED] == story.drain()
    assert [SYNC, Ask(3, 8)] == story.after(0.25)
    assert [batch(9)] == story.reply(8, 9)
    assert [Prove(), OK, MADE_GOOD, SYNCED] == story.end()


def test_what_a_full_lane_drops_without_replay_is_in_doubt_until_it_is_a_gap() -> None:
    """However long nothing follows; a message again tells nothing, the next one does."""
    story = full(replay=False)

    assert [] == story.after(60.0)
    assert [Count("duplicates")] == story.live(5)
    assert [Count("gaps"), Count("batches_lost"), ReportGap(6, 6), batch(7), MADE_GOOD] == story.live(7)


def test_what_is_held_behind_a_drop_tells_of_it_too() -> None:
    """The lane was empty in between: what it holds now came later."""
    story = full(replay=False)
    story.session.backlogged()
    story.live(7)

    lost = [Count("gaps"), Count("batches_lost"), ReportGap(6, 6)]
    assert [*lost, batch(7), MADE_GOOD, SYNCED] == story.drain()


def test_what_a_full_lane_drops_of_a_new_life_is_in_doubt_too() -> None:
    """Its numbers are below those known: they make up for nothing."""
    story = joined(replay=False, options=replace(OPTIONS, lane_bytes=1))
    story.session.backlogged()
    assert [Count("lane_overflows"), DROPPED] == story.live(5, life=0) + story.live(0, 3, life=1)
    assert [batch(5), SYNCED] == story.drain()
    restarted = [Count("restarts"), BeginLife("sequence_went_back"), batch(4, 1), MADE_GOOD]
    assert restarted == story.live(4, life=1)


def test_one_message_too_large_for_its_lane_is_held_all_the_same() -> None:
    """Alone in its lane, whatever its size."""
    story = Story(options=replace(OPTIONS, lane_bytes=1))
    story.up()

    assert [] == story.live(0)
    assert [OK] == story.end()
    assert [batch(0), SYNCED] == story.drain()


# --- broken replays ---


def test_a_hole_in_the_middle_of_a_replay_is_asked_for_again() -> None:
    """Engines up to 0.32 lose replies without a word: resume behind the last that came, and remark on it."""
    story = Story()
    story.up()

    assert [*batches(0, 1), HangUp(), remarks.REPLAY_LOSES, Ask(2, 1)] == story.session.replayed(
        1, [*batches(0, 1), *batches(5, 9)], story.now
    )
    assert [] == story.session.replayed(1, batches(10, 11), story.now)
    story.asked = 2
    assert batches(2, 9) == story.reply(1, 9)
    assert [Prove(), OK, SYNCED] == story.end()


def test_the_remark_on_lost_replies_is_made_once() -> None:
    """Every hole is asked for, the remark stands."""
    story = Story()
    story.up()
    story.session.replayed(1, [batch(0), batch(2)], story.now)

    assert [batch(1), HangUp(), Ask(3, 1)] == story.session.replayed(2, [batch(0), batch(1), batch(5)], story.now)


def test_a_hole_in_the_same_place_again_is_one_in_the_buffer() -> None:
    """What is lost on the way is lost elsewhere each time: a number that was never kept is asked for twice."""
    story = joined()
    story.live(5)
    story.live(8)

    assert [HangUp(), remarks.REPLAY_LOSES, Ask(3, 5)] == story._note(
        story.session.replayed(2, [batch(5), batch(7), batch(8)], story.now)
    )[-3:]
    lost = [Count("batches_lost"), ReportGap(6, 6)]
    assert [*lost, batch(7), HangUp(), PARTIAL] == story._note(
        story.session.replayed(3, [batch(5), batch(7), batch(8)], story.now)
    )
    assert [batch(8), SYNCED] == story.drain()


def test_replies_lost_before_the_end_marker_are_asked_for_again() -> None:
    """The marker came although the held message shows that more existed."""
    story = joined()
    story.live(9)
    story.reply(4, 6)

    assert [Ask(3, 6)] == story.end(COMPLETE)
    assert [*batches(7, 8), HangUp(), OK] == story.reply(6, 9)


def test_an_end_marker_after_many_replies_is_checked() -> None:
    """With more replies than the engine's socket queues, the newest may be lost; only another marker proves the end."""
    story = Story()
    story.up()
    story.reply(0, ENGINE_REPLAY_HWM - 1)

    assert [Ask(2, ENGINE_REPLAY_HWM - 1)] == story.end(COMPLETE)
    assert [] == story.reply(ENGINE_REPLAY_HWM - 1)
    assert [Prove(), OK, SYNCED] == story.end(COMPLETE)


def test_a_replay_that_stops_is_resumed_on_a_fresh_socket() -> None:
    """Timed out in the middle: asked again from the last that came; what came is kept."""
    story = Story()
    story.up()
    story.reply(0, 2)

    assert [Count("replays_timeout"), Ask(2, 2)] == story.end(TIMEOUT)
    assert batches(3, 4) == story.reply(2, 4)
    assert [Prove(), OK, SYNCED] == story.end(COMPLETE)


def test_a_replay_that_stops_for_good_lets_live_go_on() -> None:
    """A resumed conversation that brings nothing ends the recovery: what lies before the held messages is lost."""
    story = Story()
    story.up()
    story.live(9)
    story.reply(0, 2)
    story.end(TIMEOUT)

    assert [Count("replays_timeout"), remarks.REPLAY_SILENT] == story.end(TIMEOUT)
    assert [Count("gaps"), Count("batches_lost", 6), ReportGap(3, 8), batch(9), SYNCED] == story.drain()


def test_conversations_of_one_recovery_are_bounded() -> None:
    """An engine that drips one batch a conversation is given up after the last attempt."""
    story = Story(options=replace(OPTIONS, replay_attempts_max=3))
    story.up()
    for number in range(2):
        story.reply(max(0, number - 1), number)
        assert Ask(number + 2, number) in story.end(TIMEOUT)
    story.reply(1, 2)

    assert [Count("replays_timeout"), PARTIAL, remarks.REPLAY_SILENT, SYNCED] == story.end(TIMEOUT)


def test_a_recovery_is_bounded_in_time() -> None:
    """Even one that goes on bringing batches, or waits for its turn, ends after replay_overall_s."""
    story = Story()
    story.up()
    story.live(9)
    story.reply(0, 2)

    assert [] == story.after(OPTIONS.replay_overall_s)
    assert [HangUp(), Count("replays_timeout"), remarks.REPLAY_SILENT] == story.after(0.1)
    assert [] == story.reply(3)
    assert [] == story.end(COMPLETE)
    assert ReportGap(3, 8) in story.drain()


def test_recoveries_are_bounded_in_number() -> None:
    """Two engines behind one address make every message a restart: beyond the rate one waits for its turn."""
    story = Story(options=replace(OPTIONS, replays_per_minute=2))
    story.up()
    story.reply(0, 4)
    story.end()

    assert Ask(2, 0) in story.live(0, life=1)
    story.reply(0, life=1)
    story.drain()
    assert [Count("restarts"), BeginLife("sequence_went_back"), SYNC] == story.live(0, life=2)
    assert [] == story.after(29.0)
    assert [Ask(4, 0)] == story.after(1.0)


def test_a_gap_beyond_the_rate_is_healed_a_little_later() -> None:
    """Never given up for the rate alone: what follows is held, and one recovery fetches all that is missing."""
    story = Story(options=replace(OPTIONS, replays_per_minute=2))
    story.up()
    story.reply(0, 4)
    story.end()
    story.live(6)
    story.reply(5, 6)
    story.drain()

    assert [Count("gaps"), SYNC] == story.live(8)
    assert [] == story.live(10, 11)
    assert [] == story.after(29.0)
    assert [Ask(4, 6)] == story.after(1.0)
    assert [batch(7), HangUp(), OK] == story.reply(6, 7)
    assert [batch(8), Count("gaps")] == story.drain()
    assert [Ask(6, 8)] == story.after(30.0)
    assert [batch(9), HangUp(), OK] == story.reply(8, 9)
    assert [*batches(10, 11), SYNCED] == story.drain()


def test_a_connection_lost_while_a_recovery_waits_for_its_turn() -> None:
    """Nothing was asked, so nothing is hung up on; what an older conversation still brings is not its answer."""
    story = Story(options=replace(OPTIONS, replays_per_minute=1))
    story.up()
    story.reply(0, 4)
    story.end()

    story.live(7)
    assert [] == story.session.replayed(1, batches(5, 6), story.now)
    assert [] == story.down()
    assert [Count("reconnects")] == story.up()
    assert [] == story.empty()
    assert [Ask(4, 4)] == story.after(60.0)


def test_replies_below_what_was_asked_for_are_ignored() -> None:
    """A server that always sends its whole buffer harms nothing."""
    story = joined()
    story.live(7)

    assert [*batches(5, 6), HangUp(), OK] == story.reply(0, 7)


# --- endpoints of other engines ---

FOREIGN, OWN = Suspect("replay_differs", active=True), Suspect("replay_differs", active=False)
DIFFERS = [HangUp(), Count("replays_foreign"), FOREIGN, remarks.REPLAY_FOREIGN]


def test_a_gap_is_not_filled_by_another_engine() -> None:
    """Its last live batch is asked for, too, and is another there: nothing of the answer is applied."""
    story = joined()
    story.live(5)

    assert [Count("gaps"), SYNC, Ask(2, 5)] == story.live(8)
    assert [*DIFFERS, BeginLife("replay_differs")] == story.reply(5, 9, life=1)
    assert [batch(8), SYNCED] == story.drain()
    assert [batch(9)] == story.live(9)


def test_a_lost_tail_is_not_taken_from_another_engine() -> None:
    """An idle engine is asked for what follows, and for the batch before it, which is another there."""
    story = joined()
    assert [HangUp(), *batches(5, 5)][1:] == story.live(5)

    assert [Ask(2, 5, probe=True)] == story.after(OPTIONS.probe_interval_s)
    assert [*DIFFERS, BeginLife("replay_differs")] == story.reply(5, 9, life=1)


def test_a_lost_tail_of_an_endpoint_that_does_not_keep_the_batch_before_it() -> None:
    """It has to show some batch that arrived before it is believed."""
    story = joined()
    story.live(5)

    assert [Ask(2, 5, probe=True)] == story.after(OPTIONS.probe_interval_s)
    assert [Count("gaps"), HangUp(), SYNC, Ask(3, 5)] == story.reply(7, 9)
    assert [Count("batches_lost"), ReportGap(6, 6), batch(7)] == story.reply(7)


def test_an_endpoint_that_never_had_what_arrived_proves_nothing() -> None:
    """Nor does it harm: it may keep no batches at all, or be an idle engine's."""
    story = joined()
    story.live(5)

    assert [Ask(2, 5, probe=True)] == story.after(OPTIONS.probe_interval_s)
    assert [] == story.end()
    assert [batch(6)] == story.live(6)


def test_a_history_that_overlaps_what_arrives_is_held_against_it() -> None:
    """The history of another engine: all of it is taken back, and what arrived counts from there."""
    story = Story()
    story.up()
    story.live(3, 4)

    assert batches(0, 2, life=1) == story.reply(0, 2, life=1)
    assert [*DIFFERS, BeginLife("replay_differs")] == story.reply(3, life=1)
    assert [*batches(3, 4), SYNCED] == story.drain()


def test_a_history_of_another_engine_is_found_out_by_the_first_message() -> None:
    """Older than what was replayed: a restart by its number, and then the endpoint has another in that place again."""
    story = Story()
    story.up()
    story.reply(0, 8, life=1)
    story.end()

    assert [Count("restarts"), BeginLife("sequence_went_back"), SYNC, Ask(2, 0)] == story.live(2)
    assert [*batches(0, 1, life=1), *DIFFERS, BeginLife("replay_differs")] == story.reply(0, 2, life=1)
    assert [batch(2), SYNCED] == story.drain()


def test_an_endpoint_that_is_the_engines_own_after_all() -> None:
    """It is asked again after some rest, for the last live batch; having that, it is believed, and heals as before."""
    story = joined()
    story.live(5)
    story.live(8)
    story.reply(5, life=1)
    story.drain()

    assert [] == story.live(9)[1:]
    assert [SYNC, Ask(3, 9)] == story.after(OPTIONS.replay_backoff_min_s)
    assert [OWN, remarks.REPLAY_OWN] == story.reply(9)
    assert [Prove(), OK, remarks.REPLAY_ANSWERS, SYNCED] == story.end()
    assert [Count("gaps"), SYNC, Ask(4, 9)] == story.live(11)


def test_an_endpoint_that_is_still_anothers_is_asked_less_and_less_often() -> None:
    """Nothing is ever applied from it, and a gap is one that nothing heals."""
    story = joined()
    story.live(5)
    story.live(8)
    story.reply(5, life=1)
    story.drain()

    assert [SYNC, Ask(3, 8)] == story.after(5.0)
    assert [HangUp(), Count("replays_foreign"), SYNCED] == story.reply(8, life=1)
    assert [] == story.after(9.9)
    assert [Count("gaps"), Count("batches_lost"), ReportGap(9, 9), batch(10)] == story.live(10)
    assert [SYNC, Ask(4, 10)] == story.after(0.1)
    assert [remarks.REPLAY_SILENT, SYNCED] == story.end()


def test_replies_without_end_that_bring_nothing() -> None:
    """The same replies again and again: after replay_timeout_s, or too many bytes, that is no answer."""
    for limits in ({"replay_useless_max_bytes": 100_000}, {"replay_timeout_s": 2.0}):
        story = joined(options=replace(OPTIONS, **limits))  # type: ignore[arg-type]  # each limit is a number
        story.live(5)
        story.live(9)
        story.reply(5, 6)
        story.reply(0, 4)
        seconds = 2.1 if "replay_timeout_s" in limits else 0.1
        if seconds < 1.0:
            story.session.replayed(story.asked, [batch(3, size_bytes=100_000)], story.now)
        assert [HangUp(), Count("replays_timeout"), Ask(3, 6)] == story.after(seconds)


# --- restarts ---


def test_a_number_that_went_back_is_a_restart_and_its_beginning_is_fetched() -> None:
    """The first batches of a restarted engine are usually missed: they are replayed before the message that told."""
    story = joined()

    assert [Count("restarts"), BeginLife("sequence_went_back"), SYNC, Ask(2, 0)] == story.live(2, life=1)
    assert [*batches(0, 1, 1), HangUp(), OK] == story.reply(0, 2, life=1)
    assert [batch(2, 1), SYNCED] == story.drain()


def test_without_replay_a_number_that_went_back_is_a_restart_too() -> None:
    """The new life begins with that message."""
    story = joined(replay=False)

    assert [Count("restarts"), BeginLife("sequence_went_back"), batch(2, 1)] == story.live(2, life=1)
    assert [batch(3, 1)] == story.live(3, life=1)


def test_what_a_replay_brought_may_still_come_live_for_a_while() -> None:
    """Out of queues that were full: known by its stamps, however much it is; forgotten when that time is over."""
    story = joined(last=2_000)
    story.reply(2_000)
    assert [Prove(), OK, SYNCED] == story.end()

    assert [Ask(3, 2_000, probe=True)] == story.after(OPTIONS.overlap_s - 1.0)
    assert [HangUp(), Count("duplicates")] == story.live(3)
    assert [Ask(4, 2_000, probe=True)] == story.after(OPTIONS.probe_interval_s)
    story.reply(2_000)  # which brings nothing: it says nothing of queues
    story.end()
    story.after(0.25)
    assert [Count("restarts"), BeginLife("sequence_went_back"), SYNC, Ask(5, 0)] == story.live(4)


def test_the_same_message_again_is_a_duplicate() -> None:
    """Same number, same stamp: counted and dropped."""
    story = joined(replay=False)

    assert [Count("duplicates"), Count("duplicates")] == story.live(3, 4)
    assert [batch(5)] == story.live(5)


def test_a_restart_during_a_replay() -> None:
    """The engine dies while its history comes in; the held messages show the new life, which is then fetched."""
    story = Story()
    story.up()
    story.reply(0, 3)
    story.live(5)
    story.live(0, 1, life=1)
    story.reply(4, 5)

    assert [batch(5), Count("restarts"), BeginLife("sequence_went_back"), Ask(2, 0)] == story.drain()
    assert [batch(0, 1), HangUp(), OK] == story.reply(0, life=1)
    assert [batch(1, 1), SYNCED] == story.drain()


# --- reconnects ---


def test_after_a_reconnect_the_same_process_goes_on() -> None:
    """The last applied batch is asked for: same number, same stamp. What was missed follows it, then what is held."""
    story = joined()

    assert [] == story.down()
    assert not story.session.connected
    assert [Count("reconnects"), SYNC] == story.up()
    assert [] == story.live(7)
    assert [Ask(2, 4)] == story.empty()
    assert batches(5, 5) == story.reply(4, 5)
    assert [batch(6), HangUp(), OK] == story.reply(6, 7)
    assert [batch(7), SYNCED] == story.drain()


def test_a_restart_that_looks_like_a_small_gap_is_found_by_the_probe() -> None:
    """The new process is already past the old number: the stamp under that number differs."""
    story = joined()

    assert Ask(2, 4) in story.reconnect()
    story.live(8, 9, life=1)
    assert [HangUp(), Count("restarts"), BeginLife("probe_differs"), Ask(3, 0)] == story.reply(4, 8, life=1)
    assert batches(0, 9, 1) == story.reply(0, 9, life=1)
    assert [Prove(), OK, SYNCED] == story.end()
    assert [batch(10, 1)] == story.live(10, life=1)


def test_a_restarted_engine_with_fewer_batches_has_nothing_to_show() -> None:
    """Only the end marker where the last applied batch should be: another process."""
    story = joined()
    story.reconnect()

    assert [Count("restarts"), BeginLife("probe_differs"), Ask(3, 0)] == story.end(COMPLETE)
    assert [batch(0, 1)] == story.reply(0, life=1)
    assert [Prove(), OK, SYNCED] == story.end(COMPLETE)


def test_what_the_old_connection_left_in_the_socket_never_reaches_the_new_life() -> None:
    """Messages read before the question are in its answer or of the old life: dropped with it."""
    story = joined()
    story.down()
    story.up()
    story.live(5, 6)
    story.live(3, life=1)
    story.empty()

    assert BeginLife("probe_differs") in story.reply(4, life=1)
    assert batches(0, 4, 1) == story.reply(0, 4, life=1)
    assert [Prove(), OK, SYNCED] == story.end()


def test_what_the_old_connection_left_is_overlap_in_the_same_life() -> None:
    """Same process: leftovers are applied once, in order."""
    story = joined()
    story.down()
    story.up()
    story.live(5, 6)
    story.live(9)
    story.empty()

    assert [HangUp(), OK] == story.reply(4, 5)
    assert [*batches(5, 6), Count("gaps"), Ask(3, 6)] == story.drain()
    assert [*batches(7, 8), HangUp(), OK] == story.reply(6, 9)
    assert [batch(9), SYNCED] == story.drain()


def test_a_socket_that_never_runs_empty_is_settled_after_its_high_water_mark() -> None:
    """It cannot hold more than rcvhwm messages of the old connection."""
    story = Story(options=replace(OPTIONS, rcvhwm_messages=3))
    story.up()
    story.reply(0, 4)
    story.end()
    story.down()
    story.up()

    assert [] == story.live(5, 6)
    assert [Ask(2, 4)] == story.live(7)


def test_a_reconnect_of_an_engine_with_a_known_empty_history_joins_anew() -> None:
    """Nothing is applied, so there is nothing to identify: its history is asked for."""
    story = Story()
    story.up()
    story.end()

    assert Ask(2, 0) in story.reconnect()
    assert [batch(0), batch(1)] == story.reply(0, 1)
    assert [Prove(), OK, SYNCED] == story.end()


def test_a_reconnect_before_anything_is_applied_drops_what_the_replay_covers() -> None:
    """Held before the question: in the answer, or of a life that is gone."""
    story = Story()
    story.up()
    story.live(40, 41)

    assert [HangUp(), Count("reconnects"), Ask(2, 0)] == story.reconnect()

    assert batches(0, 2, 1) == story.reply(0, 2, life=1)
    assert [Prove(), OK, SYNCED] == story.end()


def test_only_an_end_marker_drops_what_was_held_before_the_question_too() -> None:
    """The new process has published nothing: what is held is of the old one."""
    story = Story()
    story.up()
    story.live(40, 41)
    story.reconnect()

    assert [Prove(), OK, SYNCED] == story.end()
    assert [batch(0, 1)] == story.live(0, life=1)


def test_what_was_held_before_a_reconnect_is_examined_once_somebody_answers() -> None:
    """The endpoint was silent and answers while the lane is drained: what is held is not joined to the answer."""
    story = Story()
    story.up()
    story.live(1)
    story.reconnect(away_s=6.0)
    story.end(TIMEOUT)
    story.now += OPTIONS.replay_backoff_min_s

    assert [Ask(3, 0)] == story.drain()
    assert [batch(0, 1)] == story.reply(0, life=1)
    assert [Prove(), OK, remarks.REPLAY_ANSWERS, SYNCED] == story.end()


def test_a_reconnect_that_no_replay_can_examine_is_judged_by_its_length() -> None:
    """The endpoint is silent after the reconnect: P6's rule, by the time the connection was away."""
    doubt = Doubt("process_unproven")
    for away_s, doubts, judged in [
        (1.0, [], [Count("gaps"), Count("batches_lost", 2), ReportGap(5, 6), batch(7)]),
        (9.0, [doubt], [Count("restarts"), BeginLife("reconnect_jump"), batch(7)]),
    ]:
        story = joined()
        story.reconnect(away_s)
        story.live(7)

        assert [Count("replays_timeout"), remarks.REPLAY_SILENT, *doubts] == story.end(TIMEOUT)
        assert [*judged, SYNCED] == story.drain()


def test_a_reconnect_while_the_endpoint_rests_is_judged_by_its_length() -> None:
    """Nothing is asked while the endpoint is left alone after a failure."""
    story = joined()
    story.live(7)
    story.end(TIMEOUT)
    story.drain()

    assert [Count("reconnects")] == story.reconnect(away_s=3.0)
    assert [Count("gaps"), Count("batches_lost", 1), ReportGap(8, 8), batch(9)] == story.live(9)


def test_an_engine_that_was_away_for_long_is_in_doubt_before_it_speaks() -> None:
    """It may be another process, idle: without replay nothing else would say so for as long as it is."""
    short, long = joined(replay=False), joined(replay=False)

    assert [Count("reconnects")] == short.reconnect(away_s=3.0)
    assert [Count("reconnects"), Doubt("process_unproven")] == long.reconnect(away_s=9.0)


def test_without_replay_a_jump_after_a_short_absence_is_a_gap() -> None:
    """No engine is back within min_engine_restart_s."""
    story = joined(replay=False)

    assert [Count("reconnects")] == story.reconnect(away_s=4.9)
    assert [Count("gaps"), Count("batches_lost", 2), ReportGap(5, 6), batch(7)] == story.live(7)


def test_without_replay_a_jump_after_a_long_absence_is_a_restart() -> None:
    """Longer away than an engine needs to start: what was known may be of a process that is gone."""
    story = joined(replay=False)
    story.reconnect(away_s=5.0)

    assert [Count("restarts"), BeginLife("reconnect_jump"), batch(7)] == story.live(7)
    assert [Count("gaps"), Count("batches_lost", 1), ReportGap(8, 8), batch(9)] == story.live(9)


def test_without_replay_leftovers_do_not_use_up_the_rule() -> None:
    """A message that may be from before the reconnect goes on, the doubt stays; the first from after it is judged."""
    story = joined(replay=False)
    story.down()
    story.now += 6.0
    story.up()

    assert [UNPROVEN, batch(5)] == story.live(5)
    assert [UNPROVEN] == story.empty()
    assert [Count("restarts"), BeginLife("reconnect_jump"), batch(8)] == story.live(8)


def test_without_replay_going_on_after_an_absence_is_no_restart_and_settles_the_matter() -> None:
    """The number that had to come came: of a new process perhaps, as is said once. A later jump is a gap."""
    story = joined(replay=False)
    story.reconnect(away_s=6.0)

    assert [UNPROVEN, *batches(5, 6)] == story.live(5, 6)
    assert [Count("gaps"), Count("batches_lost", 1), ReportGap(7, 7), batch(8)] == story.live(8)


def test_going_on_is_in_doubt_only_where_another_process_could_go_on() -> None:
    """Not after a short absence, nor where there is a replay endpoint to ask."""
    short, asking = joined(replay=False), joined()
    short.reconnect(away_s=4.9)
    asking.reconnect(away_s=500.0)
    asking.end(TIMEOUT)

    for story in (short, asking):
        assert [batch(5)] == story.live(5)


def test_a_number_that_goes_on_behind_a_repeated_one_is_in_doubt() -> None:
    """Wherever it stands among the messages that are read at once."""
    story = joined(replay=False)
    story.reconnect(away_s=6.0)

    assert [Count("duplicates"), UNPROVEN, batch(5)] == story.live(4, 5)


def test_what_was_sent_before_an_absence_settles_nothing() -> None:
    """It may even end the doubt, if it is a clear: the doubt is told again behind it, and once more by what is new."""
    story = joined(replay=False)
    story.down()
    story.now += 6.0

    assert [Count("reconnects"), UNPROVEN] == story.up()
    assert [UNPROVEN, batch(5), UNPROVEN, batch(6)] == story.live(5, 6)
    assert [UNPROVEN] == story.empty()
    assert [] == story.empty()
    assert [UNPROVEN, batch(7)] == story.live(7)
    assert [batch(8)] == story.live(8)


@pytest.mark.parametrize("first", [0, 3])
def test_a_restart_that_shows_itself_leaves_no_doubt(first: int) -> None:
    """By an old number, in the first messages that are read after the absence."""
    story = joined(replay=False)
    story.down()
    story.now += 6.0
    story.up()

    assert UNPROVEN not in story.live(first, first + 2, life=1) + story.empty() + story.live(first + 3, life=1)


def test_after_a_jump_nothing_is_in_doubt() -> None:
    """It was taken for a restart, and the matter is settled."""
    story = joined(replay=False)
    story.reconnect(away_s=6.0)

    assert [Count("restarts"), BeginLife("reconnect_jump"), batch(7), batch(8)] == story.live(7, 8)


def test_the_longest_of_several_absences_counts() -> None:
    """A flapping connection between two messages."""
    story = joined(replay=False)
    story.reconnect(away_s=6.0)
    story.reconnect(away_s=0.1)

    assert BeginLife("reconnect_jump") in story.live(7)


def test_a_reconnect_interrupts_a_recovery() -> None:
    """What answered so far may be gone: settle, then identify by the newest applied batch."""
    story = joined()
    story.live(9)
    story.reply(5, 6)

    assert [HangUp(), Count("reconnects"), Ask(3, 6)] == story.reconnect()
    assert [*batches(7, 8), HangUp(), OK] == story.reply(6, 9)
    assert [batch(9), SYNCED] == story.drain()


def test_nothing_is_asked_while_the_connection_is_lost() -> None:
    """A process that answers then may be another before the reconnect tells: what needs an answer waits for it."""
    story = joined()
    story.down()

    assert [batch(5)] == story.live(5)
    assert [Count("gaps"), SYNC] == story.live(8)
    assert [] == story.empty()
    story.now += 1.0
    assert [Count("reconnects")] == story.up()
    assert [Ask(2, 5)] == story.empty()
    assert [*batches(6, 7), HangUp(), OK] == story.reply(5, 7)
    assert [batch(8), SYNCED] == story.drain()


def test_a_connection_that_comes_back_without_having_been_seen_lost() -> None:
    """A recovery is interrupted by it; the first question is who is there."""
    story = Story()
    story.up()
    story.reply(0, 4)
    story.end()
    story.live(7)

    assert [Count("reconnects"), HangUp()] == story.up()
    assert [Ask(3, 4)] == story.empty()
    assert [*batches(5, 6), HangUp(), OK] == story.reply(4, 7)
    assert [batch(7), SYNCED] == story.drain()


def test_a_reconnect_while_the_lane_is_drained() -> None:
    """What is left in the lane waits for the identification like everything else."""
    story = joined()
    story.live(6, 6 + 3 * OPTIONS.quantum_messages)
    story.reply(5, 6)
    first_turn = story.session.drain_lane(story.now)
    assert 2 * OPTIONS.quantum_messages == len(first_turn)
    last = 5 + 2 * OPTIONS.quantum_messages

    assert [Count("reconnects"), Ask(3, last)] == story.reconnect()
    assert [HangUp(), OK] == story.reply(last)
    assert [*batches(last + 1, 6 + 3 * OPTIONS.quantum_messages), SYNCED] == story.drain()


def test_a_hole_right_behind_the_identified_batch_is_asked_for() -> None:
    """The engine kept it (it has the batch before), so it got lost on the way."""
    story = joined()
    story.reconnect()

    assert [HangUp(), remarks.REPLAY_LOSES, Ask(3, 4)] == story.session.replayed(2, [batch(4), batch(6)], story.now)


# --- idle engines ---


def test_an_idle_engine_is_probed_and_proved() -> None:
    """After probe_interval_s without a message, and again after the next; live is not held meanwhile."""
    story = joined()

    assert [] == story.after(OPTIONS.probe_interval_s - 0.1)
    assert [Ask(2, 4, probe=True)] == story.after(0.1)
    assert [] == story.reply(4)
    assert [Prove()] == story.end()
    assert [Ask(3, 4, probe=True)] == story.after(OPTIONS.probe_interval_s)


def test_a_lost_tail_is_healed_by_the_probe() -> None:
    """The engine's last batches never came and nothing follows them."""
    story = joined()
    story.after(OPTIONS.probe_interval_s)

    assert [Count("gaps"), SYNC, *batches(5, 6)] == story.reply(4, 6)
    assert [Prove(), OK, SYNCED] == story.end()


def test_a_live_message_outruns_the_probe() -> None:
    """It says more than the probe would: in order it is applied at once, behind a gap it starts a recovery."""
    story = joined()
    story.after(OPTIONS.probe_interval_s)
    assert [HangUp(), batch(5)] == story.live(5)
    assert [] == story.reply(5)

    story.after(OPTIONS.probe_interval_s)
    assert [HangUp(), Count("gaps"), SYNC, Ask(4, 5)] == story.live(7)


def test_a_silent_endpoint_is_probed_less_and_less_often() -> None:
    """Counted and remarked on, but the stream itself is not touched."""
    story = joined()
    story.after(OPTIONS.probe_interval_s)

    assert [Count("replays_timeout"), remarks.REPLAY_SILENT] == story.end(TIMEOUT)
    assert [batch(5)] == story.live(5)
    assert [] == story.after(OPTIONS.replay_backoff_min_s - 0.1)
    assert [Ask(3, 5, probe=True)] == story.after(0.2)
    story.end(TIMEOUT)
    assert [] == story.after(2 * OPTIONS.replay_backoff_min_s - 0.1)


def test_a_lost_connection_ends_the_probe() -> None:
    """Whoever answers the rest of it may be another process; nothing is probed while disconnected."""
    story = joined()
    story.after(OPTIONS.probe_interval_s)

    assert [HangUp()] == story.down()
    assert [] == story.after(OPTIONS.probe_interval_s)


# --- a connection that only seems to stand ---


def believed() -> Story:
    """Live, and the endpoint was seen to have what arrived: it is the engine's own."""
    story = joined()
    story.live(5)
    story.after(OPTIONS.probe_interval_s)
    assert [] == story.reply(5)
    assert [Prove()] == story.end()
    return story


RENEWED = [SYNC, ConnectAnew()]


def is_found_out(story: Story, numbers: int) -> None:
    """Once connected anew, as after any reconnect; nothing of either life is lost or mixed."""
    assert not story.session.connected
    assert [] == story.live(6)  # of the old connection, whatever it still gave
    assert [Count("reconnects")] == story.up()
    asked = story.empty()
    assert [Ask(story.asked, 5)] == asked
    found = story.reply(5, numbers - 1, life=1) if numbers > 5 else story.end()
    assert [Count("restarts"), BeginLife("probe_differs"), Ask(story.asked, 0)] == found[-3:]
    assert batches(0, numbers - 1, 1) == story.reply(0, numbers - 1, life=1)
    assert [Prove(), OK, SYNCED] == story.end()
    assert [batch(numbers, 1)] == story.live(numbers, life=1)


@pytest.mark.parametrize("numbers", [1, 5, 6, 7, 20])
def test_an_idle_engines_probe_is_answered_by_its_next_process(numbers: int) -> None:
    """It took the engine's place behind a cut: what it has is no lost tail, and no proof that there is none."""
    story = believed()

    assert [Ask(3, 5, probe=True)] == story.after(OPTIONS.probe_interval_s)
    if numbers > 5:
        assert [HangUp(), *RENEWED] == story.reply(5, numbers - 1, life=1)
    else:
        assert RENEWED == story.end()
    is_found_out(story, numbers)


@pytest.mark.parametrize("numbers", [1, 5, 6, 7, 20])
def test_a_gap_is_asked_for_and_the_next_process_answers(numbers: int) -> None:
    """The message behind the gap came by the connection that is dead by now: it goes with it."""
    story = believed()

    assert [Count("gaps"), SYNC, Ask(3, 5)] == story.live(8)
    if numbers > 5:
        assert [HangUp(), ConnectAnew()] == story.reply(5, numbers - 1, life=1)
    else:
        assert [ConnectAnew()] == story.end()
    is_found_out(story, numbers)


@pytest.mark.parametrize("numbers", [1, 5, 7])
def test_the_rest_of_a_replay_comes_from_the_next_process(numbers: int) -> None:
    """Each conversation begins with the last batch of the one before it."""
    story = Story()
    story.up()
    story.reply(0, 5)

    assert [Count("replays_timeout"), Ask(2, 5)] == story.end(TIMEOUT)
    if numbers > 5:
        assert [HangUp(), ConnectAnew()] == story.reply(5, numbers - 1, life=1)
    else:
        assert [ConnectAnew()] == story.end()
    is_found_out(story, numbers)


def test_a_buffer_that_begins_right_behind_the_last_batch_proves_nothing() -> None:
    """It may be the next process's, which kept no more: what it has is taken, and is in doubt."""
    story = believed()
    story.after(OPTIONS.probe_interval_s)
    assert [Count("gaps"), SYNC, UNPROVEN, *batches(6, 8, 1)] == story.reply(6, 8, life=1)
    assert [Prove(), OK, SYNCED] == story.end()

    story = believed()
    story.live(8)
    assert [UNPROVEN, *batches(6, 7, 1), HangUp(), OK] == story.reply(6, 8, life=1)


def test_a_process_that_could_not_be_asked_who_it_is_is_asked_that_by_the_next_probe() -> None:
    """Its connection is another one: it need not be another engine's endpoint that has another batch."""
    story = joined()
    story.live(5)
    story.reconnect(20.0)
    assert UNPROVEN in story.end(TIMEOUT)

    assert [SYNC, Ask(3, 5)] == story.after(5.1)
    assert [HangUp(), Count("restarts"), BeginLife("probe_differs"), Ask(4, 0)] == story.reply(5, 6, life=1)


def test_an_endpoint_that_was_not_believed_is_asked_again_by_another_connection() -> None:
    """Where nothing is known: the engine may have started anew, and the endpoint be its own all the time."""
    story = joined()
    story.live(5)
    story.after(OPTIONS.probe_interval_s)
    assert [*DIFFERS, BeginLife("replay_differs")] == story.reply(5, 9, life=1)

    story.now += 60.0
    story.down()
    assert [Count("reconnects"), OWN, remarks.REPLAY_OWN, SYNC] == story.up()
    assert [Ask(3, 0)] == story.empty()
    assert batches(0, 9, 1) == story.reply(0, 9, life=1)


def test_what_was_dropped_is_not_made_good_by_who_never_had_what_arrived() -> None:
    """It is asked again after some rest."""
    story = full(replay=True)

    assert [SYNC, Ask(2, 5)] == story.after(0.25)
    assert [PARTIAL, remarks.REPLAY_SILENT, SYNCED] == story.end()
    assert [] == story.after(OPTIONS.replay_backoff_min_s - 0.1)
    assert [SYNC, Ask(3, 5)] == story.after(0.2)
    assert [batch(6)] == story.reply(5, 6)
    assert [Prove(), OK, remarks.REPLAY_ANSWERS, MADE_GOOD, SYNCED] == story.end()


def test_who_cannot_be_asked_once_connected_anew_is_another_process_all_the_same() -> None:
    """That much is known: a number that goes on is in doubt, and one that jumps is a restart."""
    for number in (6, 8):
        story = believed()
        story.after(OPTIONS.probe_interval_s)
        assert RENEWED == story.end()
        story.up()
        story.empty()
        assert UNPROVEN in story.end(TIMEOUT)
        commands = story.live(number, life=1)
        if number == 6:
            assert [batch(6, 1)] == commands
        else:
            assert [Count("restarts"), BeginLife("reconnect_jump")] == commands[:2]


# --- remarks ---


def test_silence_is_remarked_on_and_taken_back() -> None:
    """Once after silent_after_s; whether it ever connected makes the difference; the first message ends it."""
    story = Story(replay=False)
    assert [] == story.after(OPTIONS.silent_after_s - 0.1)
    assert [remarks.NEVER_CONNECTED] == story.after(0.1)
    assert [] == story.after(OPTIONS.silent_after_s)

    story = Story(replay=False)
    story.up()
    assert [remarks.NEVER_DELIVERED] == story.after(OPTIONS.silent_after_s)
    assert [remarks.NOT_SILENT, batch(3)] == story.live(3)


def test_a_reply_ends_silence_too_and_a_proved_empty_history_is_none() -> None:
    """An engine without requests publishes nothing: once its replay endpoint said so, there is nothing to remark on."""
    story = Story()
    assert [remarks.NEVER_CONNECTED] == story.after(OPTIONS.silent_after_s)
    story.up()
    assert [remarks.NOT_SILENT, batch(0)] == story.reply(0)

    story = Story()
    story.up()
    story.end()
    assert remarks.NEVER_DELIVERED not in story.after(OPTIONS.silent_after_s)


# --- what is late ---


def test_results_of_an_ended_conversation_are_ignored() -> None:
    """A conversation that was hung up may still have something under way."""
    story = joined()

    assert [] == story.session.replayed(1, batches(5, 9), story.now)
    assert [] == story.session.replay_ended(1, COMPLETE, story.now)
    story.after(OPTIONS.probe_interval_s)
    assert [] == story.session.replayed(1, batches(5, 9), story.now)
    assert [] == story.session.replay_ended(1, COMPLETE, story.now)


# --- what whoever runs the engine says ---


def test_another_life_begins_the_stream_anew() -> None:
    """Whatever number comes next is a first one: no gap, and no restart a second time."""
    story = joined(replay=False)

    assert [Count("restarts"), BeginLife("life_differs")] == story.session.other_life(story.now)
    assert batches(7, 8, 1) == story.live(7, 8, 1)

    story = joined(replay=False)
    story.session.other_life(story.now)
    assert batches(0, 1, 1) == story.live(0, 1, 1)


def test_another_life_while_the_connection_is_away() -> None:
    """Who is back is known: nothing is in doubt, however long it was away."""
    story = joined(replay=False)
    story.down()
    story.now += 60.0

    assert [Count("restarts"), BeginLife("life_differs")] == story.session.other_life(story.now)
    assert [Count("reconnects")] == story.up()
    story.empty()
    assert batches(5, 6, 1) == story.live(5, 6, 1)


def test_another_life_asks_a_replay_endpoint_for_all() -> None:
    """What the new process published before it was known to be there."""
    story = joined()

    assert [Count("restarts"), BeginLife("life_differs"), SYNC, Ask(2, 0)] == story._note(
        story.session.other_life(story.now)
    )
    assert batches(0, 2, 1) == story.reply(0, 2, 1)
    assert [Prove(), OK, SYNCED] == story.end()


def test_another_life_while_it_is_asked_who_is_back() -> None:
    """The answer is of no use any more; what came by the connection before goes, and what came by this one stays."""
    story = joined()
    story.down()
    story.live(5)
    story.now += 1.0
    story.up()
    story.live(2, 3, 1)
    story.empty()

    told = story._note(story.session.other_life(story.now))

    assert [HangUp(), Count("restarts"), BeginLife("life_differs"), Ask(3, 0)] == told
    assert batches(0, 1, 1) == story.reply(0, 1, 1)
    story.end()
    assert BeginLife("sequence_went_back") not in story.drain()


@pytest.mark.parametrize("heard_s", [-1.0, 1.0, None])
def test_a_jump_after_a_long_absence_of_a_process_that_is_known_to_live(heard_s: float | None) -> None:
    """It is a gap, where that was heard since the connection is back; else a restart, as ever."""
    story = joined(replay=False)
    story.reconnect(60.0)
    if heard_s is not None:
        story.session.vouch(story.now + heard_s)
    story.now += 2.0

    told = story.live(9)

    gap = [Count("gaps"), Count("batches_lost", 4), ReportGap(5, 8), batch(9)]
    restart = [Count("restarts"), BeginLife("reconnect_jump"), batch(9)]
    assert (gap if heard_s == 1.0 else restart) == told


def test_what_was_vouched_for_before_an_absence_says_nothing_of_it() -> None:
    """Another process may have come since."""
    story = joined(replay=False)
    story.session.vouch(story.now)
    story.reconnect(60.0)

    assert BeginLife("reconnect_jump") in story.live(9)


def test_another_life_while_the_connection_is_away_and_something_of_it_is_held() -> None:
    """It is of the process before, whoever is back."""
    story = joined()
    story.live(8)
    story.down()

    assert BeginLife("life_differs") in story.session.other_life(story.now)
    story.up()
    story.empty()
    story.end(TIMEOUT)
    assert [] == story.drain()
