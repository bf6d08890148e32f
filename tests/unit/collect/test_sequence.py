"""The sequence tracker: numbers and stamps in, verdicts out."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.collect import sequence
from indexer.collect.sequence import (
    DUPLICATE,
    MEMORY_MAX_BATCHES,
    MEMORY_MIN_BATCHES,
    NEXT,
    RESTART,
    FirstAbove,
    Gap,
    SequenceTracker,
    Verdict,
    after_absence,
)


def tracker_at(*numbers: int) -> SequenceTracker:
    """A tracker that applied these numbers, each with stamp number + 0.5."""
    tracker = SequenceTracker()
    for number in numbers:
        tracker.advance(number, number + 0.5)
    return tracker


def test_zero_is_a_real_batch() -> None:
    """The first batch of a process is number 0, not "no number"."""
    tracker = SequenceTracker()

    assert NEXT == tracker.judge(0, 0.5)
    tracker.advance(0, 0.5)
    assert (1, 0, 0.5) == (tracker.expected, tracker.last, tracker.last_stamp)
    assert DUPLICATE == tracker.judge(0, 0.5)


def test_first_seen_above_zero_says_what_is_missing_before_it() -> None:
    """A late joiner learns that history is missing; from then on numbers go on as usual."""
    tracker = SequenceTracker()

    assert FirstAbove(7) == tracker.judge(7, 7.5)
    tracker.advance(7, 7.5)
    assert NEXT == tracker.judge(8, 8.5)


def test_gap_names_exactly_the_missing_batches() -> None:
    """A jump from 6 to 9 is a gap of 7 and 8, and judging it changes nothing."""
    tracker = tracker_at(5, 6)

    assert [Gap(7, 8)] * 2 == [tracker.judge(9, 9.5) for _ in range(2)]
    assert Gap(7, 7) == tracker.judge(8, 8.5)


def test_same_number_and_stamp_is_a_duplicate_another_stamp_a_restart() -> None:
    """Only the pair tells a message delivered twice from a new process that reached that number."""
    tracker = tracker_at(0, 1, 2)

    assert [DUPLICATE, DUPLICATE, DUPLICATE] == [tracker.judge(n, n + 0.5) for n in (0, 1, 2)]
    assert [RESTART, RESTART, RESTART] == [tracker.judge(n, n + 0.25) for n in (0, 1, 2)]


def test_numbers_before_a_hole_are_not_remembered() -> None:
    """After a jump the memory holds the run behind it; what is older is unknown, so an old number means a restart."""
    tracker = tracker_at(3, 4, 9, 10)

    assert [RESTART, RESTART, DUPLICATE] == [tracker.judge(n, n + 0.5) for n in (4, 8, 9)]
    assert RESTART == tracker.judge(8, 4.5)  # the stamp of another number, where the memory had no hole


def test_trimmed_numbers_count_as_unknown() -> None:
    """Memory is bounded: what was trimmed away can no longer be told from a restart."""
    count = MEMORY_MIN_BATCHES + 5
    tracker = tracker_at(*range(count))

    assert DUPLICATE == tracker.judge(0, 0.5)
    tracker.trim()
    assert [RESTART, DUPLICATE] == [tracker.judge(n, n + 0.5) for n in (4, 5)]
    tracker.trim()
    assert DUPLICATE == tracker.judge(5, 5.5)


def test_memory_never_exceeds_its_maximum() -> None:
    """Without any trim from outside the newest half stays known at least."""
    tracker = tracker_at(*range(MEMORY_MAX_BATCHES + 1))

    newest, oldest_kept = MEMORY_MAX_BATCHES, MEMORY_MAX_BATCHES // 2
    assert [DUPLICATE, DUPLICATE, RESTART] == [
        tracker.judge(n, n + 0.5) for n in (newest, oldest_kept, oldest_kept - 1)
    ]


def test_a_new_life_starts_from_nothing() -> None:
    """After `forget` an old number is first seen, not late."""
    tracker = tracker_at(0, 1, 2)

    tracker.forget()

    assert (None, None) == (tracker.expected, tracker.last)
    assert [NEXT, FirstAbove(2)] == [tracker.judge(n, n + 0.5) for n in (0, 2)]


def test_an_empty_history_makes_a_later_first_batch_a_gap() -> None:
    """Once replay said that nothing was published, a first batch above 0 has lost its predecessors on the way."""
    tracker = SequenceTracker()

    tracker.expect_first()

    assert [NEXT, Gap(0, 3)] == [tracker.judge(n, n + 0.5) for n in (0, 4)]


def test_a_jump_after_a_long_absence_is_a_restart() -> None:
    """P6 without replay: no engine is back within min_engine_restart_s, later ones may be new."""
    gap: Verdict = Gap(7, 8)

    assert gap == after_absence(gap, 4.9, 5.0)
    assert RESTART == after_absence(gap, 5.0, 5.0)
    assert NEXT == after_absence(NEXT, 500.0, 5.0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), max_size=60))
def test_verdicts_agree_with_a_naive_model(messages: list[tuple[int, int]]) -> None:
    """Whatever arrives, the verdict is what a full memory of the current life would say."""
    tracker = SequenceTracker()
    run: dict[int, float] = {}  # the unbroken run applied last
    for number, process in messages:
        stamp = number + process / 2
        verdict = tracker.judge(number, stamp)
        last = max(run, default=None)
        if last is None:
            assert (NEXT if number == 0 else FirstAbove(number)) == verdict
        elif number > last:
            assert (NEXT if number == last + 1 else Gap(last + 1, number - 1)) == verdict
        else:
            assert (DUPLICATE if run.get(number) == stamp else RESTART) == verdict
        if verdict == RESTART:
            tracker.forget()
            run = {}
        if verdict != DUPLICATE:
            tracker.advance(number, stamp)
            run = {number: stamp} if verdict != NEXT else run | {number: stamp}


def test_limits_fit_each_other() -> None:
    """What is kept in steady state is within what is kept at most."""
    assert sequence.MEMORY_MIN_BATCHES < sequence.MEMORY_MAX_BATCHES
