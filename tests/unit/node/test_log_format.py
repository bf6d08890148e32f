"""A line of the log as an object."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from indexer.log_format import MESSAGE_MAX, TEXT_MAX, JsonLines
from indexer.log_lines import Extra, about
from indexer.model import SourceId


def _line(text: str, *arguments: object, extra: Extra | None = None, replica: str | None = None) -> dict[str, object]:
    record = logging.getLogger("kvindexer.x").makeRecord(
        "kvindexer.x", logging.WARNING, "f", 1, text, arguments, None, extra=dict(extra or {})
    )
    record.created = 1_700_000_000.0625
    written = JsonLines(replica).format(record)
    assert "\n" not in written
    said: dict[str, object] = json.loads(written)
    return said


def test_a_line_has_what_applies_and_nothing_else() -> None:
    """Time in UTC to the millisecond, level, event; names where there are any; the sentence."""
    extra = about("source_state", source=SourceId("a", 1), model=None, partition=0, trace_id="ab")

    assert {
        "ts": "2023-11-14T22:13:20.062Z",
        "level": "warning",
        "event": "source_state",
        "source": "a#1",
        "partition": 0,
        "trace_id": "ab",
        "message": "source a: down",
        "logger": "kvindexer.x",
    } == _line("source %s: %s", "a", "down", extra=extra)
    assert list(_line("x")) == ["ts", "level", "event", "message", "logger"]


def test_lines_name_this_replica_where_there_are_several() -> None:
    """Libraries' lines, too."""
    assert ("r1", "library") == (_line("x", replica="r1")["replica"], _line("x", replica="r1")["event"])


def test_a_line_is_one_line_and_bounded() -> None:
    """Whatever a source is called, or a library says."""
    said = _line("%s\n\udcff" + "y" * 2 * MESSAGE_MAX, 'a"\x00b', extra=about("source_state", source="\udcff" * 9_999))

    assert MESSAGE_MAX >= len(str(said["message"])) - len(r"\udcff")
    assert r"\udcff" * TEXT_MAX == said["source"]


def test_where_it_failed_stands_in_the_same_object() -> None:
    """The traceback of an error that a library tells."""
    try:
        int("planted")
    except ValueError:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    said = json.loads(JsonLines().format(record))

    assert ("library", "error", "failed") == (said["event"], said["level"], said["message"])
    assert said["traceback"].endswith("'planted'")


@pytest.mark.parametrize("wrong", [{"line": "nothing of ours"}, {"line": None}, {}])
def test_a_record_of_somebody_else_is_a_librarys(wrong: dict[str, object]) -> None:
    """Also where it carries something under the same name."""
    record = logging.getLogger("x").makeRecord("x", 20, "f", 1, "t", (), None, extra=wrong)

    assert "library" == json.loads(JsonLines().format(record))["event"]
