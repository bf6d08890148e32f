"""What the collector suspects is said of every answer until it takes it back, whatever the engine says meanwhile."""

from __future__ import annotations

import pytest

from indexer.ports import SuspectReason
from tests.support.core import Core
from tests.support.core_events import CLEARED, stored

PROMPT = [1, 2, 3, 4]
REASONS: tuple[SuspectReason, ...] = ("dropped", "replay_differs")


def trust(core: Core) -> tuple[str, str]:
    """State and bound."""
    entry = core.ask(PROMPT)["pod"]
    return entry.state, entry.bound


@pytest.mark.parametrize("reason", REASONS)
def test_a_suspicion_outlasts_clears_and_restarts(reason: SuspectReason) -> None:
    """It is about the stream: a message that found no room may be the one that makes what follows false."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    engine.sink.suspect(reason, True)
    assert ("suspect", "estimate") == trust(core)

    engine.say(CLEARED, stored([1], PROMPT))
    assert ("suspect", "estimate") == trust(core)
    engine.restart()
    engine.say(stored([1], PROMPT))
    assert ("suspect", "estimate") == trust(core)

    engine.sink.suspect(reason, False)
    assert ("live", "exact") == trust(core)


def test_each_suspicion_ends_alone() -> None:
    """And one that was not there ends nothing."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    engine.sink.suspect("dropped", True)
    engine.sink.suspect("replay_differs", True)

    engine.sink.suspect("dropped", False)
    engine.sink.suspect("dropped", False)
    assert ("suspect", "estimate") == trust(core)


def test_a_closed_source_takes_no_suspicion() -> None:
    """Like all else that is late."""
    core = Core()
    engine = core.engine()
    core.remove("pod")
    engine.sink.suspect("dropped", True)

    assert not engine.source.facts.suspicions


def test_silence_known_afterwards_counts_from_when_it_began() -> None:
    """Heartbeats are overdue: the engine was silent already while its connection was seen up."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    core.clock.at += 3.0
    engine.sink.alive(connected=True)
    core.clock.at += 0.5
    engine.sink.alive(connected=False, silent_s=3.0)
    core.clock.at += 1.9
    assert "live" == trust(core)[0]

    core.clock.at += 0.125
    assert "stale" == trust(core)[0]


def test_an_older_sign_of_life_is_not_made_younger() -> None:
    """The connection was not seen up for longer than that anyway."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], PROMPT))
    core.clock.at += 4.9
    engine.sink.alive(connected=False, silent_s=3.0)
    core.clock.at += 0.125

    assert "stale" == trust(core)[0]
