"""Which sources a follower knows: what the registry and commands say, and what a lost registry does not say."""

from __future__ import annotations

import pytest

from indexer.model import SourceId
from indexer.store.entries import Position, Reasserted, Turned
from indexer.store.layout import source_name
from indexer.store.loading import SourceState
from tests.support.fed_partition import Fed, registration, registry_of
from tests.support.owning import POD
from tests.support.steps import done

OTHER = SourceId("pod-2", 1)
NAME = source_name(POD)


def loaded() -> Fed:
    """One source, in generation 7, that holds two blocks and lives."""
    fed = Fed()
    fed.begin(POD)
    fed.read(7, 4, {1: 1, 2: 3})
    fed.tick(7, 4)
    return fed


def lost_registry() -> Fed:
    """It, after the store was emptied."""
    fed = loaded()
    fed.begin(position=Position(0, 0))
    return fed


def test_a_removed_source_is_gone_at_once() -> None:
    """And what was on its way does not bring it back (P4)."""
    fed = loaded()
    fed.obey("remove", 8)

    assert [POD] == fed.shelves.left
    fed.change(7, 5, {3: 1})
    fed.hear(Reasserted(NAME, 7, 5))
    fed.hear(Turned(NAME, 7))
    fed.tick(7, 5)
    assert {} == fed.registry.sources
    assert {} == fed.partition.sources.by_name


def test_a_source_that_is_registered_again_begins_anew() -> None:
    """Nothing of before is scored."""
    fed = loaded()
    fed.obey("remove", 8)
    fed.obey("put", 9, registration(POD))
    fed.change(7, 5, {3: 1})

    assert (9, {}, "syncing") == (fed.source().facts.generation, fed.shown(), fed.state())
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {3: 1})
    assert {3: 1} == fed.shown()


def test_a_registration_that_differs_is_another_source() -> None:
    """Its model, for one, decides which questions it is an answer to."""
    fed = loaded()
    fed.obey("put", 9, registration(POD, model="n"))

    assert ("n", 9, {}) == (fed.source().descriptor.model, fed.source().facts.generation, fed.shown())
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {3: 1})
    assert {3: 1} == fed.shown()
    assert not fed.partition.sources.refusals


def test_a_clear_is_in_force_before_its_owner_says_so() -> None:
    """What the owner wrote before does not count."""
    fed = loaded()
    fed.obey("clear", 8)

    assert (8, {}, "new") == (fed.source().facts.generation, fed.shown(), fed.state())
    fed.change(7, 5, {3: 1})
    assert {} == fed.shown()
    fed.hear(Turned(NAME, 8))
    fed.change(8, 5, {4: 1})
    fed.tick(8, 5)
    assert ({4: 1}, "live") == (fed.shown(), fed.state())


def test_a_cordon_changes_nothing_but_the_score() -> None:
    """It is set and lifted by an edit."""
    fed = loaded()
    fed.obey("edit", 7, registration(POD, cordoned=True))
    assert fed.source().facts.cordoned
    fed.hear(Reasserted(NAME, 7, 5))
    fed.read(7, 4, {1: 1}, copy=5)
    assert fed.source().facts.cordoned

    fed.obey("edit", 7, registration(POD))
    assert (False, {1: 1}) == (fed.source().facts.cordoned, fed.shown())


def test_commands_from_before_the_registry_was_read_change_nothing() -> None:
    """The stream is followed from a place noted before; the registry says what stands."""
    fed = loaded()
    for verb, generation in (("put", 7), ("clear", 6), ("remove", 5), ("put", 6)):
        fed.obey(verb, generation, registration(POD))  # type: ignore[arg-type]  # of the verbs
        assert ("live", {1: 1, 2: 3}) == (fed.state(), fed.shown())
    assert fed.partition.registry_due
    done(fed.partition.sources.register_all(registry_of(POD), fed.now))
    assert ("live", {1: 1, 2: 3}) == (fed.state(), fed.shown())


def test_a_removal_that_crossed_a_restart() -> None:
    """The owner began a generation before it knew: then the registry says whether the source is gone."""
    fed = loaded()
    fed.hear(Turned(NAME, 9))
    fed.change(9, 0, {5: 1})
    fed.obey("remove", 8)
    assert fed.partition.registry_due
    done(fed.partition.sources.register_all({}, fed.now))

    assert {} == fed.registry.sources


def test_a_removal_that_crossed_a_restart_and_was_taken_back() -> None:
    """It is registered again by the time the registry is read."""
    fed = loaded()
    fed.hear(Turned(NAME, 9))
    fed.obey("remove", 8)
    done(fed.partition.sources.register_all(registry_of(POD), fed.now))
    done(fed.partition.sources.register_all({}, fed.now))

    assert [POD] == list(fed.registry.sources)


@pytest.mark.parametrize("verb", ["remove", "put", "clear"])
def test_a_command_whose_generation_was_read_before_it(verb: str) -> None:
    """The state in the store and the control stream change together, and are read one after the other."""
    fed = loaded()
    fed.hear(Reasserted(NAME, 7, 5))
    fed.has_no_copy(SourceState(generation=8))
    assert (8, {}) == (fed.source().facts.generation, fed.shown())
    fed.obey(verb, 8, registration(POD, model="n"))  # type: ignore[arg-type]  # of the verbs

    assert (verb == "remove") is (POD in fed.shelves.left and not fed.registry.sources)
    if verb == "put":
        assert "n" == fed.source().descriptor.model


def test_a_lost_registry_takes_no_source_away() -> None:
    """It stands and says that it is stale, until it is put back and asserted, or a command takes it out."""
    fed = lost_registry()
    fed.has_no_copy(None)
    fed.tick(7, 4)
    assert ("stale", {1: 1, 2: 3}) == (fed.state(), fed.shown())

    fed.obey("restore", 0, registration(POD))
    fed.has_no_copy(None)
    fed.hear(Reasserted(NAME, 7, 5))
    fed.read(7, 9, {2: 1}, copy=5)
    fed.tick(7, 9)
    assert ("live", {2: 1}) == (fed.state(), fed.shown())
    assert [] == fed.partition.sources.missing()


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_source_that_nobody_puts_back_goes_in_the_end(is_whole: bool) -> None:
    """After the time for which it is retained, counted from when an owner last spoke of it."""
    fed = lost_registry()
    if is_whole:
        fed.read(7, 4, {1: 1})
    else:
        fed.has_no_copy(None)
    fed.now += 50.0
    fed.tick(7, 4)
    fed.partition.sources.forget_lost(fed.now + 59.9, 60.0)
    assert [POD] == list(fed.registry.sources)

    fed.partition.sources.forget_lost(fed.now + 60.0, 60.0)
    assert [] == list(fed.registry.sources)


@pytest.mark.parametrize(
    ("state", "is_removed"),
    [
        (None, False),
        (SourceState(generation=8), True),
        (SourceState(generation=7), True),
        (SourceState(generation=6), False),
        (SourceState(generation=8, complete=True, segments=1), False),
    ],
)
def test_a_removal_that_was_missed_left_its_mark(state: SourceState | None, is_removed: bool) -> None:
    """A later generation without a map. An earlier one is of a store that went back."""
    fed = lost_registry()
    ((name, source),) = fed.partition.sources.missing()
    fed.partition.sources.forget_if_removed(name, source, state)

    assert is_removed is not bool(fed.registry.sources)


def test_a_source_that_was_put_back_meanwhile_is_not_taken_out() -> None:
    """Its state was asked for before."""
    fed = lost_registry()
    ((name, source),) = fed.partition.sources.missing()
    fed.obey("restore", 7, registration(POD))
    fed.partition.sources.forget_if_removed(name, source, SourceState(generation=8))

    assert [POD] == list(fed.registry.sources)


def test_a_registration_that_cannot_be_read_costs_nobody_else_theirs() -> None:
    """It is counted, and the registry is read again when a command is not understood."""
    fed = loaded()
    registry = {**registry_of(OTHER), NAME: b"?", b"pod-9#0": registration(POD)}
    done(fed.partition.sources.register_all(registry, fed.now))

    assert {POD, OTHER} == set(fed.registry.sources)
    assert {"registration": 2} == fed.partition.sources.refusals
    assert [] == fed.partition.sources.missing()
    assert not fed.partition.registry_due
    fed.obey("put", 9, b"?")
    assert fed.partition.registry_due
    assert ("live", {1: 1, 2: 3}) == (fed.state(), fed.shown())


def test_a_source_that_contradicts_another_is_not_entered() -> None:
    """Two partitions may come to name one pod by the same address: the first one stands."""
    fed = loaded()
    twin = SourceId("pod-3", 0)
    fed.obey("put", 9, registration(twin, address="pod-1"), of=twin)

    assert [POD] == list(fed.registry.sources)
    assert {"SourceConflictError": 1} == fed.partition.sources.refusals
    fed.change(9, 0, {1: 1}, of=twin)
    assert {1: 1, 2: 3} == fed.shown()


def test_what_was_owned_here_is_followed_as_it_stands() -> None:
    """It answers as stale until its map is read."""
    fed = loaded()
    fed.partition.leave()
    fed.partition = type(fed.partition)(3, fed.partition.keys, fed.shelves, fed.mirror)
    standing = fed.source()
    standing.facts.lease_until = fed.now
    fed.begin(POD)
    fed.tick(7, 4)

    assert fed.source() is standing
    assert ("stale", {1: 1, 2: 3}) == (fed.state(), fed.shown())
    fed.read(7, 5, {2: 1})
    fed.tick(7, 5)
    assert ("live", {2: 1}) == (fed.state(), fed.shown())
