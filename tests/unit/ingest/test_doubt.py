"""What the collector cannot vouch for is said of every answer."""

from __future__ import annotations

from tests.support.core import Core
from tests.support.core_events import stored

PROMPT = [1, 2, 3, 4]


def test_a_doubt_of_the_collector_ends_with_the_life_it_is_about() -> None:
    """Exact before, suspect from then on at once, and as good as new with the next life."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    assert ("live", "exact") == (core.ask(PROMPT)["pod"].state, core.ask(PROMPT)["pod"].bound)

    engine.sink.doubt("process_unproven")
    assert ("suspect", "estimate") == (core.ask(PROMPT)["pod"].state, core.ask(PROMPT)["pod"].bound)

    engine.restart()
    engine.say(stored([1], PROMPT))
    assert ("live", "exact") == (core.ask(PROMPT)["pod"].state, core.ask(PROMPT)["pod"].bound)


def test_a_closed_source_takes_no_doubt() -> None:
    """Like all else that is late."""
    core = Core()
    engine = core.engine()
    core.remove("pod")
    engine.sink.doubt("process_unproven")

    assert not engine.source.facts.doubts
