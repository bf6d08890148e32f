"""What the service tells of itself: metrics and events of the log are all explained, and made to happen by a test."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

from indexer.log_lines import EVENTS, Event
from indexer.metric_texts import ADVICE
from indexer.telemetry import METRICS
from tests.repo.metrics_reference import FILE, reference
from tests.support import moved
from tests.support.logged import ASKED_BY, LOGGED_BY

ROOT = Path(__file__).parents[2]


def _source_of(test: str) -> str:
    """Of a test that is there."""
    path, _, name = test.partition("[")[0].partition("::")
    text = (ROOT / path).read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return ast.get_source_segment(text, node) or ""
    raise AssertionError(f"{test}: there is no such test")


def test_the_document_is_up_to_date() -> None:
    """`make metrics` writes it anew."""
    assert reference() == FILE.read_text()


def test_every_metric_is_explained() -> None:
    """With its labels, and what to do (indexer/metric_texts.py)."""
    assert METRICS.keys() == ADVICE.keys()
    assert all(advice.todo for advice in ADVICE.values())


def test_every_metric_is_moved_by_a_test() -> None:
    """Once: a new one belongs into tests/support/moved.py, into a table that a test goes through."""
    assert sorted(METRICS) == sorted(metric for table in moved.MOVED_IN for metric in getattr(moved, table))
    for table, file in moved.MOVED_IN.items():
        uses = [node.id for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.Name)]
        assert table in uses, f"{file} does not go through {table}"


def test_every_event_of_the_log_is_made_to_happen() -> None:
    """Once: a new one belongs into tests/support/logged.py."""
    assert set(get_args(Event)) == EVENTS.keys()
    assert sorted(EVENTS) == sorted([*LOGGED_BY, *ASKED_BY])
    for test in LOGGED_BY.values():
        assert _source_of(test)
    for event, test in ASKED_BY.items():
        assert f'"{event}"' in _source_of(test), f"{test} does not ask for {event}"


def test_no_line_of_the_log_is_without_its_event() -> None:
    """Each call of a logger, and of what bounds their number, says which."""
    without = []
    for path in sorted([*(ROOT / "indexer").rglob("*.py"), *(ROOT / "api").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            logs = isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "_log", "_access_log"}
            if logs and node.func.attr in LEVELS and "extra" not in {word.arg for word in node.keywords}:
                without.append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert [] == without


LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
