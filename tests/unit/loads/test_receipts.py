"""Requests sent of late: what counts, until when, and what of it an engine's metrics cannot have shown."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from indexer.loads.receipts import ENDED_IN_A_SLICE, KEPT_S, RECEIPTS_LIMIT, Receipts
from indexer.model import SourceId

A, B, GONE = SourceId("a", 0), SourceId("b", 0), SourceId("gone", 0)


def receipts(reached: list[str] | None = None, most: int = 1_000) -> Receipts:
    """A small book."""
    return Receipts(reached.append if reached is not None else lambda _: None, most=most)


def key(request: object) -> tuple[tuple[str, str], ...]:
    """Of the default tenant's request."""
    return (("default", str(request)),)


def test_a_receipt_counts_until_its_end_is_told() -> None:
    """By any of the names that the request goes by; told again, and of what nobody knows, that changes nothing."""
    book = receipts()
    book.note(A, (("t", "r"), ("t", "lookup")), 0.0)
    book.note(A, key("s"), 0.0)
    assert 2 == book.open(A) == book.unseen(A)
    for request in ("lookup", "r", "strange"):
        book.ended(("t", request))
    assert 1 == book.open(A) == book.unseen(A)
    book.ended(("other", "s"))
    assert 1 == book.open(A)


def test_told_again_it_counts_once_and_elsewhere_there() -> None:
    """Who tries another engine has given the first one up."""
    book = receipts()
    for at in (0.0, 1.0):
        book.note(A, key("r"), at)
    assert (1, 0) == (book.open(A), book.open(B))
    book.note(B, key("r"), 2.0)
    assert (0, 1) == (book.open(A), book.open(B))
    book.ended(*key("r"))
    assert (0, 0) == (book.open(A), book.open(B))


def test_a_request_without_a_name_counts_for_its_time() -> None:
    """Nobody can say that it is over, and two of them are two."""
    book = receipts()
    for _ in range(2):
        book.note(A, (), 0.0)
    assert 2 == book.open(A)
    book.tidy(KEPT_S)
    assert 0 == book.open(A) == len(book)


def test_metrics_show_what_came_before_they_were_read() -> None:
    """What came with them or before is seen, also where its end is told afterwards; what came later is not."""
    book = receipts()
    for at in (1.0, 2.0, 3.0):
        book.note(A, key(at), at)
    book.read(A, 2.0)
    assert (3, 1) == (book.open(A), book.unseen(A))
    book.ended(*key(1.0))
    book.ended(*key(3.0))
    assert (1, 0) == (book.open(A), book.unseen(A))
    book.read(A, 1.0)  # an older answer that came late
    book.note(A, key("new"), 4.0)
    assert (2, 1) == (book.open(A), book.unseen(A))


def test_the_oldest_makes_room() -> None:
    """Counted each time."""
    reached: list[str] = []
    book = receipts(reached, most=3)
    for number in range(5):
        book.note(A, key(number), 0.0)
    assert (3, 3) == (len(book), book.open(A))
    assert [RECEIPTS_LIMIT] * 2 == reached


def test_a_burst_ends_in_slices() -> None:
    """None of them takes all of it."""
    book = receipts(most=10_000)
    for number in range(ENDED_IN_A_SLICE + 1):
        book.note(A, key(number), 0.0)
    assert book.tidy(KEPT_S)
    assert 1 == book.open(A)
    assert not book.tidy(KEPT_S)
    assert 0 == book.open(A)


def test_sources_that_are_gone_are_forgotten() -> None:
    """And a receipt of theirs that ends later harms nobody."""
    book = receipts()
    book.note(GONE, key(1), 0.0)
    book.forget_others({A})
    assert 0 == book.open(GONE)
    book.note(GONE, key(2), 1.0)
    book.ended(*key(1))
    assert 1 == book.open(GONE)


class Naive:
    """All receipts in a list, counted anew each time."""

    def __init__(self) -> None:
        self.all: list[tuple[SourceId, str, float]] = []
        self.read_at: dict[SourceId, float] = {}

    def note(self, source: SourceId, request: str, now: float) -> None:
        if (source, request) not in {(each[0], each[1]) for each in self.all}:
            self.ended(request)
            self.all.append((source, request, now))

    def ended(self, request: str) -> None:
        self.all = [each for each in self.all if each[1] != request]

    def tidy(self, now: float) -> None:
        self.all = [each for each in self.all if now - each[2] < KEPT_S]

    def counts(self, source: SourceId) -> tuple[int, int]:
        at = [each[2] for each in self.all if each[0] == source]
        return len(at), sum(each > self.read_at.get(source, -1.0) for each in at)


@pytest.mark.parametrize("seed", range(20))
def test_as_a_naive_list_says(seed: int) -> None:
    """Whatever is told, in whatever order."""
    chance, book, naive, now = random.Random(seed), receipts(most=10_000), Naive(), 0.0
    sources = [SourceId(str(number), 0) for number in range(4)]
    told: Counter[str] = Counter()
    for _ in range(400):
        now += chance.choice((0.0, 0.1, 1.0, chance.random() * 12))
        for each in (book, naive):
            each.tidy(now)
        source, request = chance.choice(sources), str(chance.randrange(60))
        match told_now := chance.choice(("note", "note", "ended", "read")):
            case "note":
                book.note(source, key(request), now)
                naive.note(source, request, now)
            case "ended":
                book.ended(*key(request))
                naive.ended(request)
            case "read":
                at = now - chance.random()
                if book.open(source):  # else there is nothing that it could have seen
                    book.read(source, at)
                    naive.read_at[source] = max(at, naive.read_at.get(source, at))
        told[told_now] += 1
        assert [naive.counts(each) for each in sources] == [(book.open(each), book.unseen(each)) for each in sources]
    assert {"note", "ended", "read"} == set(told)
