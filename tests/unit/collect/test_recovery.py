"""One recovery: replies and ends in, answers out. The session's transcripts show it at work; here are its corners."""

from __future__ import annotations

from indexer.collect.commands import ReplayEnd
from indexer.collect.recovery import ENGINE_REPLAY_HWM, Answer, Outcome, Purpose, Recovery, TakeAfterLoss
from indexer.collect.sequence import SequenceTracker


def tracker_at(*numbers: int) -> SequenceTracker:
    """A tracker that applied these numbers, each with stamp number + 0.5."""
    tracker = SequenceTracker()
    for number in numbers:
        tracker.advance(number, number + 0.5)
    return tracker


def test_a_server_that_ignores_the_start_is_not_asked_for_ever() -> None:
    """It sends its whole buffer each time, with a hole in the same place: nothing usable came first, so it is gone."""
    tracker = tracker_at(0, 1, 2)
    recovery = Recovery(Purpose.HEAL, 3, 0.0)

    answers = [recovery.on_reply(number, number + 0.5, tracker, None) for number in (0, 1, 2, 5)]

    assert [Answer.SKIP] * 3 + [TakeAfterLoss(3, 4)] == answers
    assert recovery.incomplete


def test_identity_needs_number_and_stamp() -> None:
    """Another stamp, or another number first, is another process."""
    tracker = tracker_at(0, 1, 2)

    def first_answer(number: int, stamp: float) -> object:
        return Recovery(Purpose.IDENTIFY, 2, 0.0).on_reply(number, stamp, tracker, None)

    assert Answer.SAME_PROCESS == first_answer(2, 2.5)
    assert Answer.OTHER_PROCESS == first_answer(2, 2.25)
    assert Answer.OTHER_PROCESS == first_answer(3, 3.5)
    assert Answer.OTHER_PROCESS == first_answer(0, 0.5)


def test_held_messages_are_reached_only_by_who_is_known() -> None:
    """Not before the process is identified, nor while nothing is known of this life."""
    tracker = tracker_at(0, 1, 2)

    assert Recovery(Purpose.HEAL, 3, 0.0).reached(tracker, 3)
    assert not Recovery(Purpose.HEAL, 3, 0.0).reached(tracker, 4)
    assert not Recovery(Purpose.HEAL, 3, 0.0).reached(tracker, None)
    assert not Recovery(Purpose.IDENTIFY, 2, 0.0).reached(tracker, 3)
    assert not Recovery(Purpose.JOIN, 0, 0.0).reached(SequenceTracker(), 0)


def test_ends() -> None:
    """What follows an end depends on what the conversation brought."""
    tracker = tracker_at(0, 1, 2)

    def after(end: ReplayEnd, held_first: int | None = None, **state: object) -> Outcome:
        recovery = Recovery(Purpose.HEAL, 0, 0.0)
        for name, value in state.items():
            setattr(recovery, name, value)
        return recovery.on_end(end, tracker, held_first)

    assert Outcome.DONE == after(ReplayEnd.COMPLETE)
    assert Outcome.DONE == after(ReplayEnd.COMPLETE, anchored=True, taken=3, replies=3)
    assert Outcome.DONE == after(ReplayEnd.COMPLETE, 9)
    assert Outcome.AGAIN == after(ReplayEnd.COMPLETE, 9, anchored=True, taken=3, replies=3)
    assert Outcome.AGAIN == after(ReplayEnd.COMPLETE, 9, anchored=True, replies=1)
    assert Outcome.DONE == after(ReplayEnd.COMPLETE, 9, anchored=True, replies=1, conversations=2)
    assert Outcome.AGAIN == after(ReplayEnd.COMPLETE, anchored=True, taken=1_000, replies=ENGINE_REPLAY_HWM)
    assert Outcome.OTHER_PROCESS == after(ReplayEnd.COMPLETE, purpose=Purpose.IDENTIFY)
    for end in (ReplayEnd.TIMEOUT, ReplayEnd.FAILED):
        assert Outcome.GIVE_UP == after(end)
        assert Outcome.GIVE_UP == after(end, anchored=True, replies=1)
        assert Outcome.AGAIN == after(end, anchored=True, taken=1, replies=1)


def test_a_new_conversation_starts_from_nothing() -> None:
    """Its first reply is again the first."""
    tracker = tracker_at(0)
    recovery = Recovery(Purpose.JOIN, 0, 0.0)
    recovery.on_reply(1, 1.5, tracker, None)
    tracker.advance(1, 1.5)
    assert Answer.HOLE == recovery.on_reply(3, 3.5, tracker, None)

    recovery.ask_again(tracker)

    assert (Purpose.VERIFY, 1, 2) == (recovery.purpose, recovery.asked, recovery.conversations)
    assert Answer.SAME_PROCESS == recovery.on_reply(1, 1.5, tracker, None)
    assert TakeAfterLoss(2, 2) == recovery.on_reply(3, 3.5, tracker, None)


def test_a_new_conversation_of_which_nothing_is_known_begins_at_the_beginning() -> None:
    """Or where a process before this one left off, whose last batch is not known."""
    for began_at in (None, 0, 7):
        tracker = SequenceTracker()
        if began_at is not None:
            tracker.resume(began_at - 1, None)
        recovery = Recovery(Purpose.JOIN, began_at or 0, 0.0)

        recovery.ask_again(tracker)

        assert (Purpose.HEAL, began_at or 0) == (recovery.purpose, recovery.asked)


def test_a_standing_connection_proves_nothing_of_who_answers() -> None:
    """Number and stamp of the last batch do, whatever is asked for."""
    for purpose in (Purpose.VERIFY, Purpose.IDLE):
        tracker = tracker_at(0, 1, 2)

        assert Answer.SAME_PROCESS == Recovery(purpose, 2, 0.0).on_reply(2, 2.5, tracker, None)
        assert Answer.DIFFERS == Recovery(purpose, 2, 0.0).on_reply(2, 2.25, tracker, None)
        assert Outcome.LACKS_LAST == Recovery(purpose, 2, 0.0).on_end(ReplayEnd.COMPLETE, tracker, None)
