"""A session that goes on where a process of ours before it left off. Each test is a transcript."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from indexer.collect import remarks
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
from indexer.collect.lanes import Lane, LaneBudget
from indexer.collect.options import CollectOptions
from indexer.collect.session import Session
from indexer.decode.envelope import stamp
from indexer.ports import Resume
from tests.support.collect_batches import batch, batches

OPTIONS = CollectOptions()
START = 100.0
UNPROVEN = Doubt("process_unproven")
SYNC, SYNCED = SetSyncing(active=True), SetSyncing(active=False)
OK = Count("replays_ok")
RESTARTED = [Count("restarts"), BeginLife("probe_differs")]


def stood_at(sequence: int, away_s: float = 1.0, life: int = 0) -> Resume:
    """The state was loaded behind that batch."""
    return Resume(sequence, None if sequence < 0 else stamp(batch(sequence, life).payload), away_s)


class Story:
    """A resumed session and its clock. One question at a time, as sessions ask."""

    def __init__(self, resume: Resume, *, replay: bool = True) -> None:
        self.now = START
        self.session = Session(
            OPTIONS,
            Lane(OPTIONS.lane_bytes, LaneBudget(OPTIONS.lanes_total_bytes)),
            self.now,
            replay=replay,
            resume=resume,
        )
        self.asked = 0

    def _note(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            if isinstance(command, Ask):
                self.asked = command.conversation
        return commands

    def up(self, later_s: float = 0.0) -> list[Command]:
        self.now += later_s
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

    def end(self, end: ReplayEnd = ReplayEnd.COMPLETE) -> list[Command]:
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


# --- with a replay endpoint ---


@pytest.mark.parametrize("away_s", [0.2, 60.0, inf])
def test_it_asks_who_is_there_and_takes_what_it_missed(away_s: float) -> None:
    """However long nobody listened: the same process answers with the last applied batch, and is believed."""
    story = Story(stood_at(7, away_s))

    assert story.session.begin() == []
    assert story.up() == [SYNC, Ask(1, 7)]
    assert story.live(12) == []
    assert story.reply(7, 10) == batches(8, 10)
    assert story.reply(11, 12) == [batch(11), HangUp(), OK], "the endpoint is believed where it has what arrives"
    assert story.drain() == [batch(12), SYNCED]
    assert story.live(13) == [batch(13)]


def test_nothing_was_missed() -> None:
    """An idle engine has nothing after what was loaded: that is proven."""
    story = Story(stood_at(7, inf))
    story.up()

    assert story.reply(7) == []
    assert story.end() == [Prove(), OK, SYNCED]
    assert story.live(8) == [batch(8)]


def test_what_was_loaded_does_not_vouch_for_the_endpoint() -> None:
    """It may have come from there: before anything else is fetched, the endpoint shows a batch that arrived."""
    story = Story(stood_at(7))
    story.up()
    story.reply(7)
    story.end()

    assert story.live(8) == [batch(8)]
    assert story.live(10) == [Count("gaps"), SYNC, Ask(2, 8)]


@pytest.mark.parametrize("newest", [3, 7, 20])
def test_another_process_answers(newest: int) -> None:
    """Wherever its numbers stand: nothing loaded counts any more, and its own history is fetched."""
    story = Story(stood_at(7, 60.0))
    story.up()
    same_number = story.reply(7, newest, life=1) if newest >= 7 else story.end()

    assert same_number[-4:] == ([HangUp()] if newest >= 7 else []) + [*RESTARTED, Ask(2, 0)]
    assert story.reply(0, newest, life=1) == batches(0, newest, life=1)
    assert story.end() == [Prove(), OK, SYNCED]


def test_an_empty_history_was_known() -> None:
    """Nothing had been published: whatever there is now is fetched from the start, by whomever it was published."""
    story = Story(stood_at(-1, 60.0))

    assert story.up() == [SYNC, Ask(1, 0)]
    assert story.reply(0, 2) == batches(0, 2)
    assert story.end() == [Prove(), OK, SYNCED]


def test_an_endpoint_that_does_not_answer_leaves_the_rules_for_gaps() -> None:
    """Long away: what was loaded is in doubt at once, and a jump is a restart."""
    story = Story(stood_at(7, 60.0))
    story.up()

    assert story.end(ReplayEnd.TIMEOUT) == [Count("replays_timeout"), remarks.REPLAY_SILENT, UNPROVEN, SYNCED]
    assert story.live(12) == [Count("restarts"), BeginLife("reconnect_jump"), batch(12)]


def test_a_short_absence_and_no_answer_is_a_gap() -> None:
    """No engine is back so fast: it is the same, and what it sent meanwhile is lost."""
    story = Story(stood_at(7, 1.0))
    story.up()
    story.end(ReplayEnd.TIMEOUT)

    assert story.live(12) == [Count("gaps"), Count("batches_lost", 4), ReportGap(8, 11), batch(12)]


def test_the_connection_goes_again_before_the_answer() -> None:
    """The first connection may have been another process's: all is asked anew once the socket is empty."""
    story = Story(stood_at(7, 60.0))
    story.up()

    assert story.down() == [HangUp()]
    assert story.up() == [Count("reconnects")]
    assert story.live(9) == []
    assert story.empty() == [Ask(2, 7)]
    assert story.reply(7, 9) == [batch(8), HangUp(), OK]
    assert story.drain() == [batch(9), SYNCED]


def test_its_first_connection_is_no_reconnect_of_this_process() -> None:
    """The absence goes on until there is one: 4 s before this process and 2 s in it are too long for a gap."""
    story = Story(stood_at(7, 4.0), replay=False)

    assert story.session.begin() == [remarks.NO_REPLAY]
    assert story.up(later_s=2.0) == [UNPROVEN]
    assert story.live(9) == [Count("restarts"), BeginLife("reconnect_jump"), batch(9)]


def test_a_batch_without_a_stamp_cannot_be_compared() -> None:
    """What follows is asked for, and what was loaded is in doubt after an absence in which an engine may start."""
    story = Story(Resume(7, None, 60.0))

    assert story.up() == [SYNC, UNPROVEN, Ask(1, 8)]
    assert story.reply(8, 9) == [batch(8), batch(9)]
    assert story.end() == [Prove(), OK, SYNCED]
    assert Story(Resume(7, None, 1.0)).up() == [SYNC, Ask(1, 8)]


def test_the_moment_counts_at_which_the_absence_was_known() -> None:
    """The state was loaded 4 s before the session begins, 2 s after the last word."""
    resume = replace(stood_at(7, 2.0), as_of=START - 4.0)

    assert Story(resume, replay=False).up() == [UNPROVEN]
    assert Story(replace(resume, as_of=START), replay=False).up() == []


# --- without ---


def test_numbers_that_go_on_after_a_short_absence_go_on() -> None:
    """The same process, and nothing was missed."""
    story = Story(stood_at(7, 4.9), replay=False)

    assert story.up() == []
    assert story.live(8, 9) == batches(8, 9)


def test_numbers_that_go_on_after_a_long_absence_are_in_doubt() -> None:
    """Another process may have just that number by now; once it is said it is said."""
    story = Story(stood_at(7, 5.0), replay=False)

    assert story.up() == [UNPROVEN]
    assert story.live(8) == [UNPROVEN, batch(8)]
    assert story.live(9) == [batch(9)]


def test_a_jump_after_a_short_absence_is_a_gap() -> None:
    """No engine is back so fast."""
    story = Story(stood_at(7, 4.9), replay=False)
    story.up()

    assert story.live(10) == [Count("gaps"), Count("batches_lost", 2), ReportGap(8, 9), batch(10)]


@pytest.mark.parametrize("away_s", [5.0, inf])
def test_a_jump_after_a_long_absence_is_a_restart(away_s: float) -> None:
    """An engine may have started anew."""
    story = Story(stood_at(7, away_s), replay=False)
    story.up()

    assert story.live(10) == [Count("restarts"), BeginLife("reconnect_jump"), batch(10)]


@pytest.mark.parametrize("number", [0, 5, 7])
def test_a_number_that_goes_back_is_a_restart(number: int) -> None:
    """Whatever the absence: an old number under another stamp."""
    story = Story(stood_at(7, 0.1), replay=False)
    story.up()

    assert story.live(number, life=1) == [Count("restarts"), BeginLife("sequence_went_back"), batch(number, 1)]


def test_an_empty_history_begins_with_its_first_batch() -> None:
    """Zero has to come; what begins above it leaves a gap, or is another process's after a long absence."""
    for away_s, command in ((1.0, ReportGap(0, 1)), (60.0, BeginLife("reconnect_jump"))):
        story = Story(stood_at(-1, away_s), replay=False)
        story.up()
        assert command in story.live(2)
    story = Story(stood_at(-1, 1.0), replay=False)
    story.up()
    assert story.live(0) == [batch(0)]


# --- what was suspected ---


def test_what_was_dropped_is_made_good() -> None:
    """Messages found no room before the process ended: it is over once they are replayed, or reported."""
    made_good = Suspect("dropped", active=False)
    story = Story(replace(stood_at(7), suspicions=frozenset({"dropped"})))
    story.up()
    story.reply(7, 9)
    assert story.end() == [Prove(), OK, made_good, SYNCED]

    story = Story(replace(stood_at(7), suspicions=frozenset({"dropped"})), replay=False)
    story.up()
    assert story.live(10) == [Count("gaps"), Count("batches_lost", 2), ReportGap(8, 9), batch(10), made_good]


def test_an_endpoint_of_another_engine_is_not_asked_who_is_there() -> None:
    """Its answer would end what was loaded. It is asked again for what arrived, and believed if it has that."""
    story = Story(replace(stood_at(7), suspicions=frozenset({"replay_differs"})))

    assert story.session.begin() == [remarks.REPLAY_FOREIGN]
    assert story.up() == []
    assert story.live(8) == [batch(8)]
    assert story.after(6.0) == [SYNC, Ask(1, 8)]
    assert story.reply(8) == [Suspect("replay_differs", active=False), remarks.REPLAY_OWN]
