"""The list of sources as a table, and what stands below it."""

from __future__ import annotations

import io

from rich.console import Console

from api.cli.sources import NAMED_MAX, WIDE, Load, Row, print_sources


def _printed(rows: list[Row], width: int = 250) -> list[str]:
    console = Console(width=width, file=io.StringIO(), markup=False, highlight=False)
    with console.capture() as capture:
        print_sources(rows, console)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_warning_that_many_have_is_one_line() -> None:
    """With the first of them by name, so that what only one has is not drowned."""
    rows = [Row(pod=f"pod-{n}", warnings=["capacity unknown"]) for n in range(100)]
    rows[7].warnings.append("no replay endpoint")
    below = _printed(rows)[101:]

    assert [
        f"warning: capacity unknown: pod-0 rank 0, pod-1 rank 0, pod-2 rank 0 and {100 - NAMED_MAX} more",
        "warning: no replay endpoint: pod-7 rank 0",
    ] == below


def test_few_are_all_named() -> None:
    """Up to the limit."""
    rows = [Row(pod=f"pod-{n}", warnings=["x"]) for n in range(NAMED_MAX)]

    assert "warning: x: pod-0 rank 0, pod-1 rank 0, pod-2 rank 0" == _printed(rows)[-1]


def test_why_stands_in_the_table_where_there_is_room_and_below_it_where_not() -> None:
    """A state that needs a reason is never shown without."""
    rows = [
        Row(pod="a", state="suspect", bound="estimate", why="messages were lost"),
        Row(pod="b", state="live", bound="exact"),
    ]
    wide, narrow = _printed(rows, WIDE), _printed(rows, WIDE - 1)

    assert wide[0].endswith("why")
    assert wide[1].endswith("messages were lost")
    assert len(wide) == 3
    assert "why: suspect, estimate: messages were lost: a rank 0" == narrow[3]
    assert len(narrow) == 4


def test_requests_stand_in_the_table_where_any_are_known() -> None:
    """Running, waiting, and those that no metrics show yet."""
    rows = [
        Row(pod="a", load=Load(running=3.0, waiting=1.0, unseen=2)),
        Row(pod="b"),
        Row(pod="c", load=Load(unseen=1)),
    ]
    table = [line.split() for line in _printed(rows)]

    assert "requests" in table[0]
    assert ["6", "-", "1"] == [line[-2] for line in table[1:]]
    assert "requests" not in _printed([Row(pod="b")])[0]
