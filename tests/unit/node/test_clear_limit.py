"""How many pods may be cleared or removed in a minute, by all replicas together, and the alarm when it is too much."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from indexer.clear_limit import WINDOW_S, ClearLimit
from indexer.errors import LimitReachedError
from indexer.node import Node
from indexer.settings.sections import Settings
from tests.support.core import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 4


@pytest.fixture
def clock() -> ManualClock:
    """Set by hand."""
    return ManualClock()


@pytest.fixture
def node(clock: ManualClock) -> Iterator[Node]:
    """Nobody runs it but for its end."""
    node = Node(Settings(), clock)
    yield node
    stop = asyncio.Event()
    stop.set()
    asyncio.run(node.run(stop))


@pytest.fixture
def limit(node: Node, clock: ManualClock) -> ClearLimit:
    """Of a process."""
    return ClearLimit(MOST, clock, node.telemetry, node.source_log)


def alarms(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """Lines at level error."""
    return (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)


def test_what_others_were_told_counts(limit: ClearLimit, clock: ManualClock) -> None:
    """For as long as what this replica was told."""
    limit.note()
    clock.at += 10.0
    limit.allow(2)
    limit.note()
    with pytest.raises(LimitReachedError) as caught:
        limit.allow(1)
    assert WINDOW_S - 10.0 == pytest.approx(caught.value.retry_s)
    clock.at += WINDOW_S - 10.0
    limit.allow(1)


def test_several_that_are_told_at_once_may_go_beyond_it(limit: ClearLimit, clock: ManualClock) -> None:
    """What is remembered of that is bounded; the wait is for as many as are too many."""
    for _ in range(100):
        limit.note()
    with pytest.raises(LimitReachedError) as caught:
        limit.allow(1)
    assert WINDOW_S == pytest.approx(caught.value.retry_s)
    clock.at += WINDOW_S
    limit.allow(MOST)


def test_the_alarm_comes_once_a_window(
    limit: ClearLimit, clock: ManualClock, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, then with the number of those that were refused since; and not again when nothing is."""
    limit.allow(MOST)
    for _ in range(3):
        with pytest.raises(LimitReachedError):
            limit.allow(2)
    (first,) = alarms(caplog)
    assert "limits.max_clears_per_minute = 4" in first
    assert "not cleared or removed: 2." in first
    clock.at += WINDOW_S / 2
    limit.tell()
    assert [first] == list(alarms(caplog))
    clock.at += WINDOW_S / 2
    limit.tell()
    assert "not cleared or removed: 4." in list(alarms(caplog))[1]
    clock.at += WINDOW_S
    limit.tell()
    assert 2 == len(list(alarms(caplog)))
    assert {"limits.max_clears_per_minute": 3} == node.telemetry.limits_reached


def test_housekeeping_tells_the_rest(clock: ManualClock, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Those that were refused after the first line."""
    node.roster.clears.refuse(3)
    node.roster.clears.refuse(5)
    clock.at += WINDOW_S
    list(node.roster.forget_lost())
    assert ["removed: 3.", "removed: 5."] == [text[text.index("removed: ") :][:11] for text in alarms(caplog)]
