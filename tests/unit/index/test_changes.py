"""What a writer has to write is noted: all that changed, and nothing in memory mode."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.index.changes import Changes
from tests.support.core import Core, Speaker
from tests.support.core_events import BLOCK, placeholder, prompt, removed, stored


@pytest.fixture
def engine() -> Speaker:
    """A source whose changes are noted."""
    engine = Core().engine()
    engine.source.changes = Changes()
    return engine


def noted(engine: Speaker, *events: Any) -> tuple[set[int], set[int], int]:  # noqa: ANN401  as on the wire
    """Placed and waiting engine hashes, and how many token hashes, of one batch."""
    engine.source.changes = changes = Changes()
    engine.say(*events)
    assert changes is engine.source.changes
    return changes.placed, changes.waiting, len(changes.tokens)


def test_in_memory_mode_nothing_is_noted() -> None:
    """Nobody would ever take it."""
    engine = Core().engine()
    engine.say(stored([1], prompt(1)), removed(1))

    assert engine.source.changes is None


def test_stores_and_removals_are_noted(engine: Speaker) -> None:
    """A second copy changes the entry and not the presence; a removal of it neither more."""
    assert ({1, 2}, set(), 2) == noted(engine, stored([1, 2], prompt(2)))
    assert ({1}, set(), 0) == noted(engine, stored([1], prompt(1)))
    assert ({1}, set(), 0) == noted(engine, removed(1))
    assert ({1, 2}, set(), 2) == noted(engine, removed(1), removed(2))


def test_waiting_is_noted_and_so_is_its_end(engine: Speaker) -> None:
    """Parked for want of a parent, or without tokens; then placed."""
    assert (set(), {2}, 0) == noted(engine, stored([2], prompt(1, BLOCK), 1))
    assert (set(), {2, 3}, 0) == noted(engine, placeholder([2, 3]))
    assert ({1, 2}, {2}, 2) == noted(engine, stored([1], prompt(1)))


def test_a_removal_of_what_waits_is_noted(engine: Speaker) -> None:
    """It may have been its last copy."""
    engine.say(stored([2], prompt(1, BLOCK), 1))

    assert ({2}, {2}, 0) == noted(engine, removed(2))


def test_a_contradiction_is_noted(engine: Speaker) -> None:
    """The old content goes, the new one comes."""
    engine.say(stored([1], prompt(1)))

    assert ({1}, set(), 2) == noted(engine, stored([1], prompt(1, 40)))


def test_a_kept_gap_is_not_noted(engine: Speaker) -> None:
    """What is written carries its era: a gap costs a number."""
    engine.say(stored([1], prompt(1)))
    engine.source.changes = Changes()
    engine.lose()
    engine.gap()

    assert not engine.source.changes
    assert 1 == engine.source.map.era


def test_a_new_generation_has_notes_of_its_own(engine: Speaker) -> None:
    """Nothing of before is to be written into it."""
    engine.say(stored([1], prompt(1)))
    assert engine.source.changes
    engine.restart()

    assert not engine.source.changes
    assert engine.source.changes is not None
