"""What happens often is told seldom: the first at once, what follows within a second as one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.happenings import (
    COUNT_MAX,
    MERGED_S,
    WINDOWS_MAX,
    Entry,
    Gathering,
    Happening,
    merged,
    pack_entry,
    unpack_entry,
)

ALL = 1_000_000


def gap(at_ms: int, first: int, last: int) -> Entry:
    """A loss."""
    lost = Happening(what="gap", cause="kept", first=first, last=last, lost=last - first + 1, sequence=first - 1)
    return Entry(at_ms=at_ms, happening=lost)


def restart(at_ms: int, generation: int) -> Entry:
    """A new life."""
    life = Happening(
        what="restart", cause="probe_differs", generation=generation, generation_before=generation - 1, sequence=9
    )
    return Entry(at_ms=at_ms, happening=life)


def test_the_first_is_told_at_once_and_the_rest_of_its_second_as_one() -> None:
    """First of the first, last of the last, and how many were lost in all."""
    gathering: Gathering[str] = Gathering()
    told = [gathering.take("a", gap(1_000 + n, 10 * n, 10 * n + 3), n / 1_000) for n in range(1_000)]

    assert [gap(1_000, 0, 3), *[None] * 999] == told
    assert [] == gathering.due(MERGED_S - 0.001, ALL)
    whole = Happening(what="gap", cause="kept", first=10, last=9_993, lost=4 * 999, sequence=9)
    assert [("a", Entry(at_ms=1_001, happening=whole, count=999))] == gathering.due(MERGED_S, ALL)


def test_a_flood_is_one_entry_a_second() -> None:
    """However long it lasts, and whenever it is looked."""
    gathering: Gathering[str] = Gathering()
    told = 0
    for n in range(10_000):
        now = n / 1_000
        told += gathering.take("a", gap(n, n, n), now) is not None
        told += len(gathering.due(now, ALL))

    assert 10 == told


def test_after_a_quiet_second_the_next_is_told_at_once() -> None:
    """Nothing waits for a second that nobody shares."""
    gathering: Gathering[str] = Gathering()
    assert gathering.take("a", gap(0, 1, 1), 0.0) is not None
    assert [] == gathering.due(MERGED_S, ALL)
    assert gathering.take("a", gap(0, 2, 2), MERGED_S) is not None


def test_other_kinds_causes_and_sources_are_not_merged() -> None:
    """A gap that was kept and one that was cleared are two things."""
    gathering: Gathering[str] = Gathering()
    cleared = Entry(at_ms=0, happening=Happening(what="gap", cause="cleared", first=1, last=1, lost=1))
    entries = [("a", gap(0, 1, 1)), ("b", gap(0, 1, 1)), ("a", restart(0, 2)), ("a", cleared)]

    assert [entry for _, entry in entries] == [gathering.take(key, entry, 0.0) for key, entry in entries]


def test_generations_span_what_was_merged() -> None:
    """The one before the first, and the one after the last."""
    both = merged(merged(restart(1, 5), restart(2, 6)), restart(3, 7))

    assert (4, 7, 3, 1) == (both.happening.generation_before, both.happening.generation, both.count, both.at_ms)


def test_what_waits_is_seen_and_is_told_at_the_end() -> None:
    """A stop in the middle of a second loses nothing."""
    gathering: Gathering[str] = Gathering()
    for n in range(3):
        gathering.take("a", gap(n, n, n), 0.0)
        gathering.take("b", restart(n, n), 0.0)

    (waits,) = gathering.waiting("a")
    assert (2, 1, 2) == (waits.count, waits.happening.first, waits.happening.last)
    rest = gathering.rest()
    assert ["a", "b"] == [key for key, _ in rest]
    assert waits == rest[0][1]
    assert [] == gathering.rest()
    assert [] == gathering.waiting("a")


def test_so_many_are_told_in_one_turn() -> None:
    """The others at the next: the loop is not held."""
    gathering: Gathering[int] = Gathering()
    for key in range(10):
        gathering.take(key, gap(0, 1, 1), 0.0)
        gathering.take(key, gap(0, 2, 2), 0.0)

    first, second = gathering.due(MERGED_S, 6), gathering.due(MERGED_S, 6)
    assert ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9]) == ([key for key, _ in first], [key for key, _ in second])


def test_beyond_the_limit_nothing_is_merged_and_nothing_is_kept() -> None:
    """Memory has a bound; what is told then has its own."""
    gathering: Gathering[int] = Gathering()
    for key in range(WINDOWS_MAX + 1):
        assert gathering.take(key, gap(0, 1, 1), 0.0) is not None

    assert gathering.take(WINDOWS_MAX, gap(0, 2, 2), 0.0) is not None
    assert gathering.take(0, gap(0, 2, 2), 0.0) is None


def test_sums_stay_encodable() -> None:
    """Engines choose their numbers."""
    huge = Entry(at_ms=0, happening=Happening(what="gap", cause="kept", first=0, last=2**64 - 1, lost=COUNT_MAX))
    twice = merged(huge, huge)

    assert COUNT_MAX == twice.happening.lost
    assert twice == unpack_entry(pack_entry(twice))


_NUMBERS = st.none() | st.integers(0, 2**64 - 1)


@given(
    st.sampled_from(["gap", "restart", "takeover"]),
    st.sampled_from([None, "kept", "lease_expired"]),
    st.lists(_NUMBERS, min_size=7, max_size=7),
)
def test_an_entry_comes_back_as_it_was(what: str, cause: str | None, numbers: list[int | None]) -> None:
    """Whatever is left out."""
    names = ("first", "last", "lost", "sequence", "generation", "generation_before", "epoch")
    happening = Happening(what=what, cause=cause, **dict(zip(names, numbers, strict=True)))  # type: ignore[arg-type]
    entry = Entry(at_ms=1_764_450_000_000, happening=happening, count=3, replica="r-1")

    assert entry == unpack_entry(pack_entry(entry))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xc1", msgspec.msgpack.encode({"at_ms": 1, "happening": {"what": "x"}})]
)
def test_what_is_not_known_is_refused(data: bytes) -> None:
    """Another version's words are not guessed at."""
    with pytest.raises(msgspec.MsgspecError):
        unpack_entry(data)
