"""Ages, connection and states of followed sources come from their owner's ticks alone."""

from __future__ import annotations

import pytest

from indexer.store.entries import Reasserted, Turned
from indexer.store.layout import source_name
from tests.support.fed_partition import NOW, Fed
from tests.support.owning import POD

NAME = source_name(POD)


def loaded() -> Fed:
    """One source, in generation 7."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1})
    return fed


@pytest.mark.parametrize(
    ("silent_ms", "later_s", "state"),
    [(0, 0.0, "live"), (4_900, 0.0, "live"), (5_100, 0.0, "stale"), (0, 5.0, "stale"), (61_000, 0.0, "down")],
)
def test_silence_of_the_engine_and_of_the_owner_add_up(silent_ms: int, later_s: float, state: str) -> None:
    """Both are time without a sign of life."""
    fed = loaded()
    fed.tick(7, 4, silent_ms=silent_ms)
    fed.now += later_s

    assert state == fed.state()


def test_an_engine_that_never_was_connected() -> None:
    """Its owner says so with a great age."""
    fed = loaded()
    fed.tick(7, 4, silent_ms=1 << 40, connected=False, proof_age_ms=None)

    assert "down" == fed.state()
    assert fed.source().facts.proof_at is None


def test_facts_of_the_moment() -> None:
    """Syncing, and what is suspected for now."""
    fed = loaded()
    fed.tick(7, 4, syncing=True)
    assert "syncing" == fed.state()
    fed.tick(7, 4, suspicions=("dropped",))
    assert ("suspect", "estimate") == (fed.state(), fed.bound())
    fed.tick(7, 4)
    assert ("live", "exact") == (fed.state(), fed.bound())


def test_a_tick_moves_the_proof() -> None:
    """Of what is entered."""
    fed = loaded()
    fed.tick(7, 4, proof_age_ms=500)

    assert (4, NOW - 0.5) == (fed.source().facts.sequence, fed.source().facts.proof_at)


def test_a_tick_that_names_a_batch_that_was_not_told() -> None:
    """Something is missing here, whoever's fault that is: what stands is not live, and all is read anew."""
    fed = loaded()
    fed.tick(7, 4)
    fed.now += 1.0
    fed.tick(7, 9)

    facts = fed.source().facts
    assert (4, NOW, "stale") == (facts.sequence, facts.proof_at, fed.state())
    fed.partition.sources.want_due(fed.now)
    assert fed.followed().reading is None
    fed.partition.sources.want_due(fed.now + 0.25)
    fed.read(7, 9, {2: 1})
    fed.tick(7, 9)
    assert ("live", {2: 1}, 9) == (fed.state(), fed.shown(), fed.source().facts.sequence)


def test_a_tick_from_before_a_copy_was_laid() -> None:
    """It names less than the copy has."""
    fed = loaded()
    fed.tick(7, 3)

    assert ("live", 4) == (fed.state(), fed.source().facts.sequence)


def test_a_tick_of_another_generation_proves_nothing() -> None:
    """But the engine lives."""
    fed = loaded()
    fed.tick(7, 4)
    fed.obey("clear", 8)
    fed.now += 3.0
    fed.tick(7, 9)

    facts = fed.source().facts
    assert (None, None, NOW + 3.0) == (facts.sequence, facts.proof_at, facts.alive_at)


def test_a_tick_does_not_prove_what_is_not_read() -> None:
    """What stands is behind; how far, only the reading will tell."""
    fed = loaded()
    fed.tick(7, 4)
    fed.hear(Reasserted(NAME, 7, 5))
    fed.now += 3.0
    fed.tick(7, 9)

    facts = fed.source().facts
    assert (4, NOW, NOW + 3.0) == (facts.sequence, facts.proof_at, facts.alive_at)
    fed.read(7, 9, {2: 1}, copy=5)
    fed.tick(7, 9)
    assert (9, NOW + 3.0) == (fed.source().facts.sequence, fed.source().facts.proof_at)


def test_a_later_generation_in_a_tick_ends_the_one_that_stands() -> None:
    """Its beginning is about to be told."""
    fed = loaded()
    fed.tick(8, None)
    assert (8, {}) == (fed.source().facts.generation, fed.shown())

    fed.hear(Turned(NAME, 8))
    fed.change(8, 0, {2: 1})
    fed.tick(8, 0)
    assert ("live", {2: 1}) == (fed.state(), fed.shown())


def test_readers_are_told_only_when_something_they_show_changed() -> None:
    """A tick comes four times a second for each source."""
    fed = loaded()
    fed.tick(7, 4)
    before = fed.shelves.changes
    for _ in range(8):
        fed.now += 0.25
        fed.tick(7, 4)
    assert before == fed.shelves.changes

    fed.tick(7, 4, connected=False)
    assert before + 1 == fed.shelves.changes
    fed.now += 7.0
    fed.tick(7, 4, connected=False)
    assert before + 2 == fed.shelves.changes
