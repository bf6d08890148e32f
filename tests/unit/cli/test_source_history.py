"""The history of a source as a table."""

from __future__ import annotations

import io

from rich.console import Console

from api.cli.source_history import INCOMPLETE, Item, print_history


def _printed(items: list[Item], *, complete: bool = True) -> list[str]:
    console = Console(width=250, file=io.StringIO(), markup=False, highlight=False)
    with console.capture() as capture:
        print_history(items, console, complete=complete)
    return [line.rstrip() for line in capture.get().splitlines()]


AT = "2026-01-02T03:04:05.678+00:00"
GAP = Item(at=AT, dp_rank=0, what="gap", cause="kept", count=3, numbers={"first": 5, "lost": 2}, replica="r-1")
CLEAR = Item(at=AT, dp_rank=0, what="clear", numbers={"generation": "5f3a"})


def test_a_thing_that_happened_is_a_line() -> None:
    """What there is not is a dash."""
    assert [
        ["at", "what", "cause", "times", "numbers", "replica"],
        [AT, "gap", "kept", "3", "first=5", "lost=2", "r-1"],
        [AT, "clear", "operator", "1", "generation=5f3a", "-"],
    ] == [line.split() for line in _printed([GAP, CLEAR])]


def test_ranks_are_shown_where_there_are_several() -> None:
    """Of one they would say nothing."""
    other = Item(at=AT, dp_rank=1, what="gap")

    assert ["at", "rank", "what"] == _printed([GAP, other])[0].split()[:3]
    assert ["1", "gap"] == _printed([GAP, other])[2].split()[1:3]


def test_what_is_incomplete_says_so() -> None:
    """Below the table, in words."""
    assert INCOMPLETE == _printed([GAP], complete=False)[-1]
    assert 1 == len(_printed([]))
