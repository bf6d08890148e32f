"""What `kvindexer explain` shows to a person."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from api.cli.explain import Finding, Row, Shown, print_answer


def _shown(*rows: Row) -> str:
    out = StringIO()
    print_answer(Shown(state="exact", prompt_tokens=16, pods=list(rows)), Console(file=out, width=200))
    return out.getvalue()


def _new(pod: str, dp_rank: int = 0) -> Row:
    beside = [Finding(code="start_differs", why="none begins so", advice="compare the chat template")]
    return Row(pod=pod, dp_rank=dp_rank, code="never_stored", why="not announced", advice="nothing", further=beside)


def test_what_is_so_of_several_is_said_once() -> None:
    """With all their names; with the advice of what is said beside it, where it is another."""
    shown = _shown(_new("a"), _new("b", 1), Row(pod="c", code="complete", why="all is held", advice="route here"))

    assert 1 == shown.count("not announced")
    assert "a#0, b#1: never_stored: not announced\n  to do: nothing\n  also start_differs: none begins so\n" in shown
    assert "    to do: compare the chat template\n" in shown
    assert "c#0: complete: all is held" in shown


def test_a_name_that_nobody_goes_by_has_no_state() -> None:
    """Nor a bound: there is nothing that they would be of."""
    shown = _shown(Row(pod="x", code="pod_unknown", why="nobody", advice="see", state="down", bound="lower"))

    assert "down" not in shown
    assert "lower" not in shown
