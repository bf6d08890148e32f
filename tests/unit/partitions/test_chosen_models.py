"""A follower of chosen models: what it keeps of the others, and what becomes of a source that changes its model."""

from __future__ import annotations

import pytest

from indexer.candidates import gather
from indexer.index.registry import Registry
from indexer.model import Descriptor, SourceId
from indexer.settings import Models, followed_models
from indexer.store.entries import Position, Turned
from indexer.store.layout import source_name
from indexer.store.rebuild import Survey
from indexer.store.registered import Registered, pack_registered
from schemas.lookup import LookupQuery
from tests.support.fed_partition import FIRST, Fed, registration
from tests.support.hand_owner import descriptor_of
from tests.support.owning import POD
from tests.support.steps import done

OTHER = SourceId("pod-2", 1)
NAME = source_name(POD)


def fed(*models: str) -> Fed:
    """POD of model m and OTHER of model n are registered; these models are followed."""
    made = Fed(frozenset(models))
    registry = {NAME: registration(POD), source_name(OTHER): registration(OTHER, model="n")}
    done(made.partition.begin(Survey(FIRST, b"0-0", registry), made.now))
    return made


def reason(registry: Registry, model: str, pods: tuple[str, ...] | None = None) -> str:
    """Why nobody holds anything of a prompt of that model."""
    candidates = gather(registry, LookupQuery(model=model, pods=pods))
    unknown = {"pod_unknown"} if candidates.unknown_names else set()
    return candidates.common_reason({*(listed.excluded for listed in candidates.listed), *unknown})


def test_sources_of_other_models_are_neither_loaded_nor_kept() -> None:
    """Only their models are known; what the journal says of them is passed over."""
    follower = fed("m")

    assert [POD] == [source.id for source, _ in follower.partition.sources.take_wanted()]
    assert [POD] == list(follower.registry.sources)
    follower.change(7, 1, {1: 1}, of=OTHER)
    follower.hear(Turned(source_name(OTHER), 8))
    follower.tick(8, 1, of=OTHER)
    assert [] == follower.partition.sources.take_wanted()
    progress = follower.partition.progress(follower.now)
    assert (1, 1) == (progress.sources, progress.passed_over)
    assert ("other_model", "model_unknown") == (reason(follower.registry, "n"), reason(follower.registry, "x"))
    assert ("m", False) == (
        follower.registry.resolve("m", "default").model,
        fed("m").registry.resolve("m", "default").elsewhere,
    )


def test_a_source_without_a_model_is_passed_over() -> None:
    """Whether it answers for a model depends on all other sources, which are not known here."""
    follower = Fed(frozenset({"m"}))
    bare = Descriptor(pod=POD.pod, dp_rank=POD.dp_rank, endpoint="tcp://127.0.0.1:5557")
    follower.begin(position=FIRST)
    follower.obey("put", 9, pack_registered(Registered(bare)))

    assert ({}, 1) == (follower.registry.sources, len(follower.partition.sources.passed_over))
    follower.obey("put", 10, registration(POD))
    assert ([POD], 0) == (list(follower.registry.sources), len(follower.partition.sources.passed_over))


def test_a_source_that_changes_its_model_goes_and_comes_anew() -> None:
    """Nothing of it from before is scored when it comes back, though the store has its map still (P4)."""
    follower = fed("m")
    follower.read(7, 4, {1: 1})
    assert {1: 1} == follower.shown()

    follower.obey("put", 8, registration(POD, model="n"))
    assert {} == follower.registry.sources
    assert "other_model" == reason(follower.registry, "n")
    follower.change(7, 5, {3: 1})
    follower.obey("edit", 0, registration(POD))
    assert (7, {}, "syncing") == (follower.source().facts.generation, follower.shown(), follower.state())
    follower.hear(Turned(NAME, 8))
    follower.change(8, 0, {5: 1})
    assert {5: 1} == follower.shown()


@pytest.mark.parametrize("how", ["command", "registry"])
def test_a_model_that_nobody_has_any_more_is_unknown(how: str) -> None:
    """Removed by a command, or gone from a registry that is read again."""
    follower = fed("m")
    if how == "command":
        follower.obey("remove", 9, of=OTHER)
    else:
        registry = {NAME: registration(POD)}
        done(follower.partition.begin(Survey(Position(6, 0), b"0-0", registry), follower.now))

    assert "model_unknown" == reason(follower.registry, "n")
    assert 0 == len(follower.partition.sources.passed_over)


def test_nothing_of_a_partition_that_is_left_is_remembered() -> None:
    """Whoever follows it from then on says what there is."""
    follower = fed("m")
    follower.partition.leave()

    assert "model_unknown" == reason(follower.registry, "n")


def test_pods_of_which_a_part_is_passed_over_are_known() -> None:
    """A command about such a pod would reach a part of it."""
    follower = fed("m")

    assert [False, True] == [follower.partition.sources.passed_over.has_pod(pod) for pod in (POD.pod, OTHER.pod)]


def test_an_alias_of_a_model_that_is_not_followed_is_no_other_model() -> None:
    """Nor is a model's own name one, where another model has it as its alias: as at a replica that follows all."""
    registry = Registry(aliases={"short": "n", "n2": "m"})
    registry.note_elsewhere("default", "n", 2)
    registry.note_elsewhere("default", "n2", 1)
    registry.note_elsewhere("default", "n", -1)
    whole = Registry()

    assert [True, True, True, False] == [
        registry.resolve(name, "default").elsewhere for name in ("n", "short", "n2", "m")
    ]
    assert not registry.resolve("n", "another tenant").elsewhere
    assert "other_model" == reason(registry, "short")
    assert "model_unknown" == reason(whole, "n")


def test_a_named_pod_serves_another_model_than_the_one_followed_elsewhere() -> None:
    """`other_model` of its entry, as at a replica that follows all."""
    follower = fed("m")

    assert "other_model" == reason(follower.registry, "n", (POD.pod,))
    assert "other_model" == reason(follower.registry, "n", (OTHER.pod,))
    assert descriptor_of(POD).model == follower.registry.sources[POD].descriptor.model


def test_an_alias_that_is_to_be_followed_stands_for_its_model() -> None:
    """Empty means all."""
    assert frozenset({"m", "n"}) == followed_models(Models(aliases={"short": "m"}, follow=("short", "n")))
    assert followed_models(Models()) is None
