"""What the collector cannot vouch for is said of every answer."""

from __future__ import annotations

from tests.support.core import Core
from tests.support.core_events import CLEARED, stored

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


def test_a_clear_from_before_an_absence_ends_no_doubt_about_who_came_back() -> None:
    """Replay was asked who is there and kept silent: then what was held back goes first, and it is of before."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    engine.sink.syncing(True)

    engine.sink.doubt("process_unproven")
    engine.say(CLEARED)
    engine.sink.syncing(False)
    engine.say(stored([1], PROMPT))
    assert ("suspect", "estimate", 4) == trust(core)

    engine.say(CLEARED, stored([1], PROMPT))
    assert ("live", "exact", 4) == trust(core)


def test_a_clear_ends_every_other_doubt() -> None:
    """Also one that was held back: what it leaves is known."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT), {"type": "TierBlocksCleared"})
    engine.sink.syncing(True)
    engine.say(CLEARED, stored([1], PROMPT))
    engine.sink.syncing(False)

    assert ("live", "exact", 4) == trust(core)


def trust(core: Core) -> tuple[str, str, int]:
    """State, bound and matched tokens."""
    entry = core.ask(PROMPT)["pod"]
    return entry.state, entry.bound, entry.matched_tokens
