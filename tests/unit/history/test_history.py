"""The history of a source within one process: bounded, in order, in pages."""

from __future__ import annotations

import pytest

from indexer.happenings import Happening
from indexer.history import KEPT, TOLD_AT_ONCE, History, Mark, Noted, Told, item_of, page
from indexer.model import SourceId
from tests.support.core import WALL_US, ManualClock

A, B = SourceId("a", 0), SourceId("b", 3)
BEGAN_MS = WALL_US // 1000


def lost(first: int) -> Happening:
    """A gap of one batch."""
    return Happening(what="gap", cause="kept", first=first, last=first, lost=1, sequence=first - 1, generation=0x5F3A)


def told(history: History, source: SourceId = A) -> list[tuple[int | None, int]]:
    """First batch and count of what is kept, the newest first."""
    shown, _ = page(history.kept(source), None, 1_000)
    return [(each.entry.happening.first, each.entry.count) for each in shown]


def test_what_happens_is_there_at_once() -> None:
    """Also what is merged still, behind what is not."""
    clock = ManualClock(0.0)
    history = History(clock)
    for first in (1, 3, 5):
        history.note(A, lost(first))
        clock.at += 0.1

    assert [(3, 2), (1, 1)] == told(history)
    clock.at = 1.0
    history.turn()
    assert [(3, 2), (1, 1)] == told(history)
    assert [] == told(history, B)


def test_each_is_handed_on_once_in_order() -> None:
    """For the store. Numbers grow over all sources; the rest comes at the end."""
    clock = ManualClock(0.0)
    history = History(clock)
    posted: list[tuple[SourceId, Noted]] = []
    history.post = lambda source, noted: posted.append((source, noted))
    history.note(A, lost(1))
    history.note(B, lost(1))
    history.note(A, lost(2))
    assert [(A, 1), (B, 2)] == [(source, noted.number) for source, noted in posted]

    history.close()

    assert [(A, 1), (B, 2), (A, 3)] == [(source, noted.number) for source, noted in posted]
    assert [(2, 1), (1, 1)] == told(history)


def test_so_many_are_kept_and_no_more() -> None:
    """The oldest go."""
    clock = ManualClock(0.0)
    history = History(clock)
    for first in range(KEPT + 10):
        history.note(A, lost(first))
        clock.at += 2.0
        history.turn()

    kept = told(history)
    assert KEPT == len(kept)
    assert [(KEPT + 9, 1), (10, 1)] == [kept[0], kept[-1]]


def test_what_happens_to_many_at_once_is_noted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time at which it happened; beyond the limit the oldest go, and are counted."""
    monkeypatch.setattr("indexer.history.LATER_MAX", 3 * TOLD_AT_ONCE)
    clock = ManualClock(0.0)
    history = History(clock)
    sources = [SourceId(f"pod-{n}", 0) for n in range(3 * TOLD_AT_ONCE + 1)]
    history.note_all((source, lost(1)) for source in sources)
    assert 1 == history.dropped
    assert [] == history.kept(sources[1])
    clock.at = 5.0
    history.turn()
    assert [0, 1, 0] == [len(history.kept(sources[n])) for n in (0, TOLD_AT_ONCE, TOLD_AT_ONCE + 1)]
    assert BEGAN_MS == history.kept(sources[1])[0].mark.ms
    assert history.has_more
    history.close()

    assert not history.has_more
    assert all(len(history.kept(source)) == 1 for source in sources[1:])


def test_a_source_that_is_gone_is_forgotten() -> None:
    """Its entries went where they were handed on to."""
    history = History(ManualClock(0.0))
    history.note(A, lost(1))
    history.note(B, lost(1))
    assert [None, None] == list(history.tidy({B}))

    assert ([], [(1, 1)]) == (told(history), told(history, B))


def test_pages_join_without_a_seam() -> None:
    """Ranks between each other; marks of the same moment are told apart by number and rank."""
    history = History(ManualClock(0.0))
    history.note(A, lost(1))
    one = history.kept(A)[0].entry
    all_of = [Told(Mark(ms, number, rank), one) for ms in (1, 2) for number in (0, 1) for rank in (0, 1, 2)]
    seen: list[Mark] = []
    mark: Mark | None = None
    pages = 0
    while pages == 0 or mark is not None:
        shown, mark = page(all_of, mark, 5)
        seen += [each.mark for each in shown]
        pages += 1

    assert 3 == pages
    assert sorted((each.mark for each in all_of), reverse=True) == seen
    assert ([], None) == page(all_of, Mark(1, 0, 0), 5)
    assert "2-1-2" == str(seen[0])


def test_as_a_caller_sees_it() -> None:
    """Time in UTC with milliseconds, generations in hexadecimal, and what says nothing is left out."""
    clock = ManualClock(0.25)
    history = History(clock, replica="r-1")
    history.note(B, lost(4))
    history.note(A, Happening(what="doubt", cause="process_unproven", sequence=-1))
    item, doubt = item_of(history.kept(B)[0]), item_of(history.kept(A)[0])

    assert ("2023-11-14T22:13:20.250+00:00", 3, "gap", "kept", 1, "r-1") == (
        item.at,
        item.dp_rank,
        item.what,
        item.cause,
        item.count,
        item.replica,
    )
    assert (4, 4, 1, 3, "5f3a", None, None) == (
        item.numbers.first,
        item.numbers.last,
        item.numbers.lost,
        item.numbers.sequence,
        item.numbers.generation,
        item.numbers.generation_before,
        item.numbers.epoch,
    )
    assert doubt.numbers.sequence is None
    assert BEGAN_MS + 250 == history.kept(B)[0].mark.ms
