"""Which requests were reported of late."""

from __future__ import annotations

import pytest

from indexer.model import SourceId
from indexer.receipts import repeats
from indexer.receipts.repeats import REPEATED_S, REQUESTS_LIMIT, Repeats

HERE = SourceId("a", 0)


def test_a_request_is_known_for_its_time_by_its_tenant_and_source() -> None:
    """Noted again, its time begins anew."""
    known = Repeats(list[str]().append)
    known.note(("t", "r", HERE), 0.0)

    assert [True, False, False, False] == [
        known.has(("t", "r", HERE), REPEATED_S - 1),
        known.has(("other", "r", HERE), 1.0),
        known.has(("t", "r", SourceId("a", 1)), 1.0),
        known.has(("t", "r", HERE), REPEATED_S),
    ]
    known.note(("t", "r", HERE), REPEATED_S)
    assert known.has(("t", "r", HERE), 2 * REPEATED_S - 1)
    assert 1 == len(known)


def test_what_is_over_goes_a_few_at_a_time() -> None:
    """However many they are."""
    known = Repeats(list[str]().append)
    for number in range(100):
        known.note(("t", str(number), HERE), 0.0)
    known.note(("t", "next", HERE), REPEATED_S)
    assert 100 - repeats.FORGOTTEN_EACH + 1 == len(known)
    known.forget(REPEATED_S, 1_000)
    assert 1 == len(known)
    assert known.has(("t", "next", HERE), REPEATED_S)


def test_beyond_the_limit_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is counted."""
    monkeypatch.setattr(repeats, "REQUESTS_MAX", 2)
    reached: list[str] = []
    known = Repeats(reached.append)
    for number in range(3):
        known.note(("t", str(number), HERE), float(number))

    assert ([REQUESTS_LIMIT], [False, True, True]) == (reached, [known.has(("t", str(n), HERE), 3.0) for n in range(3)])
