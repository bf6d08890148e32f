"""What is known of loads in one process: readings while they are young, and what was sent since."""

from __future__ import annotations

from indexer.loads.board import LoadBoard
from indexer.loads.engine_metrics import EngineLoad
from indexer.loads.known import KnownLoad, Loads, LoadView
from indexer.loads.receipts import KEPT_S
from indexer.model import SourceId

A, B, C = (SourceId(pod, 0) for pod in "abc")


def board(interval_s: float | None = 1.0) -> LoadBoard:
    """Without a counter of limits."""
    return LoadBoard(lambda _: None, interval_s=interval_s)


def test_nothing_is_known_at_first() -> None:
    """And says so."""
    loads: Loads = board()
    assert LoadView("none", None, {}) == loads.view([A, B], 0.0)


def test_receipts_are_all_that_is_known_without_metrics() -> None:
    """Then who has none is known to have none; those of others are not looked at."""
    loads = board()
    for request in ("1", "2"):
        loads.sent(A, request, None, 0.0)
    loads.sent(C, "3", None, 0.0)
    assert LoadView("receipts", None, {A: 2.0, B: 0.0}) == loads.view([A, B], 1.0)
    loads.ended("1", "default")
    loads.ended("2", None)
    assert LoadView("none", None, {}) == loads.view([A, B], 1.0)
    loads.tidy(KEPT_S)
    assert LoadView("none", None, {}) == loads.view([A, C], KEPT_S)


def test_metrics_count_with_what_came_since() -> None:
    """The age is that of the oldest; a candidate without metrics is not told."""
    loads = board()
    for source, request in ((A, "before"), (C, "elsewhere")):
        loads.sent(source, request, None, 1.0)
    loads.read(A, EngineLoad(3, 1, 0.5), 2.0)
    loads.read(B, EngineLoad(0, 0, None), 3.0)
    loads.sent(A, "after", None, 3.0)
    assert LoadView("metrics", 2.0, {A: 5.0, B: 0.0}, {A: 0.5}) == loads.view([A, B, C], 4.0)
    assert KnownLoad(3, 1, 0.5, age_s=2.0, unseen=1) == loads.known(A, 4.0)
    assert loads.known(C, 4.0) is None


def test_who_tells_nothing_is_as_busy_as_what_was_sent_there() -> None:
    """At least: that counts from where it is more than the others' mean on, else it would look idle for not telling."""
    loads = board()
    loads.read(A, EngineLoad(4, 0, None), 0.0)
    loads.read(B, EngineLoad(0, 0, None), 0.0)
    for number in range(2):
        loads.sent(C, str(number), None, 1.0)
    assert {A: 4.0, B: 0.0} == loads.view([A, B, C], 1.0).requests
    loads.sent(C, "one more", None, 1.0)
    assert {A: 4.0, B: 0.0, C: 3.0} == loads.view([A, B, C], 1.0).requests


def test_old_metrics_do_not_count() -> None:
    """Then it is as if there were none; it is still told what they were."""
    loads = board()
    loads.read(A, EngineLoad(3, 1, None), 0.0)
    loads.read(B, EngineLoad(2, 0, None), 1.0)
    loads.sent(A, "r", None, 2.0)
    assert LoadView("metrics", 4.5, {B: 2.0}) == loads.view([A, B], 5.5)
    assert LoadView("receipts", None, {A: 1.0, B: 0.0}) == loads.view([A, B], 6.5)
    assert KnownLoad(3, 1, None, age_s=6.5, unseen=1) == loads.known(A, 6.5)
    assert ({"unseen": 1.0}, {}) == (loads.numbers(A, 6.5), loads.numbers(B, 6.5))


def test_rare_metrics_count_for_longer() -> None:
    """Three intervals."""
    loads = board(20.0)
    loads.read(A, EngineLoad(3, 1, None), 0.0)
    assert "metrics" == loads.view([A], 60.0).source
    assert "none" == loads.view([A], 60.1).source


def test_what_comes_late_changes_nothing() -> None:
    """An answer that is older than what is known."""
    loads = board()
    loads.read(A, EngineLoad(3, 0, None), 2.0)
    loads.read(A, EngineLoad(9, 0, None), 1.0)
    assert {A: 3.0} == loads.view([A], 2.0).requests
    assert {"running": 3.0, "waiting": 0.0, "unseen": 0.0} == loads.numbers(A, 2.0)


def test_who_is_gone_is_forgotten() -> None:
    """Its readings, and its receipts."""
    loads = board()
    for source in (A, B):
        loads.read(source, EngineLoad(1, 0, None), 0.0)
        loads.sent(source, source.pod, None, 0.0)
    for _ in loads.look({A: None}):
        pass
    assert [A] == list(loads.readings)
    assert {A: 1.0} == {key: float(loads.receipts.open(key)) for key in (A, B) if loads.receipts.open(key)}
    assert [A] == [key for key, _ in loads.young([A, B], 0.0)]
