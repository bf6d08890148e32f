"""The demo's table in terminals of any width, and around an engine's restart."""

from __future__ import annotations

import io
from importlib.resources import files

import pytest
from rich.console import Console

from api.cli.client import ServiceClient
from api.demo.asked import Alone
from api.demo.facts import LookupFacts, SourceFacts
from api.demo.fleet import TraceFleet
from api.demo.outage import Killable
from api.demo.screen import NARROW, WIDE, draw
from api.demo.show import Show
from api.demo.trace import Trace, read_truth

PACKAGE = files("api.demo")
LOOKUP = LookupFacts(
    prompt_tokens=98_765,
    best_pod="10.0.0.1:8000",
    matched_tokens=87_654,
    score=0.75,
    state="degraded",
    took_us=1_234,
    got=(12_345, 23_456, 34_567),
    expected=(12_345, 23_456, 34_567),
    agrees=True,
)


class Never:
    """A service that nobody kills here."""

    def kill(self) -> None:
        raise AssertionError

    start = kill

    def listens(self) -> bool:
        raise AssertionError


def _show(killable: Killable | None = None) -> Show:
    """Nothing published or asked: the engines are as after a restart."""
    trace = Trace(PACKAGE / "demo.kvt.gz")
    fleet = TraceFleet(trace.header, "tcp://127.0.0.1:0", None)
    asked = Alone(ServiceClient("http://127.0.0.1:1"))
    return Show(trace, read_truth(PACKAGE / "demo.truth.gz"), fleet, asked, lambda: 0.0, killable=killable)


def _drawn(show: Show, width: int, said: list[str] | None = None) -> list[str]:
    console = Console(width=width, height=50, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(draw(show, "http://127.0.0.1:8080", width, said=said))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [60, NARROW - 1, NARROW, WIDE - 1, WIDE, 200])
def test_what_is_shown_is_shown_whole(width: int) -> None:
    """No column is cut; the narrower the terminal the fewer there are."""
    show = _show()
    show.sources = {
        pod: SourceFacts(pod, "suspect", "estimate", sequence=-1, lag_ms=123_456, blocks={"gpu": 1_234_567})
        for pod in show.sent
    }
    show.lookups.append(LOOKUP)
    lines = _drawn(show, width)
    text = "\n".join(lines)

    assert "…" not in text
    assert max(map(len, lines)) <= width - len("^C")
    for always in ("10.0.0.3:8000", "suspect", "1,234,567", "98,765", "87,654", "degraded"):
        assert always in text
    assert (width >= NARROW) == ("estimate" in text) == ("0.75" in text)
    assert (width >= WIDE) == ("12345 23456 34567" in text)


def test_while_the_service_is_away_the_table_stands() -> None:
    """As it was when it was killed; what happened is said below it."""
    show = _show(killable=Never())
    show.sources = {pod: SourceFacts(pod, "live", "exact", sequence=-1, blocks={"gpu": 815}) for pod in show.sent}
    before = _drawn(show, 120, [])
    show.phase = "killed"
    lines = _drawn(show, 120, [f"sentence {number}" for number in range(5)])
    text = "\n".join(lines)

    assert len(before) == len(lines)
    assert (3, 3, 0) == (text.count("no service"), text.count(" 815 "), text.count(" live "))
    assert ["sentence 2", "sentence 3", "sentence 4"] == [line.strip("│ ") for line in lines[-4:-1]]


def test_a_restarted_engine_shows_nothing_of_its_life_before() -> None:
    """It has published nothing yet, and what the service knows is of the process before."""
    show = _show()
    show.sources = {pod: SourceFacts(pod, "live", "exact", sequence=4_711, blocks={"gpu": 815}) for pod in show.sent}
    text = "\n".join(_drawn(show, 120))

    assert 3 == text.count("restarted")
    assert not [number for number in ("-1", "4,711", "815") if number in text]
