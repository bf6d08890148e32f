"""Names and models: which sources a question is about."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.errors import LimitReachedError, SourceConflictError, SourceUnknownError
from indexer.index.mirror import Mirror
from indexer.index.registry import Registry, normal_name
from indexer.index.source import SourceIndex
from indexer.model import Descriptor, SourceId


class Fleet:
    """A registry with real sources in it."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  passed on as it is
        self.registry = Registry(**options)
        self.mirror = Mirror()

    def add(self, pod: str, **fields: Any) -> SourceIndex:  # noqa: ANN401  passed on as it is
        """Check, then enter."""
        descriptor = Descriptor(pod=pod, **fields)
        self.registry.check(descriptor)
        source = SourceIndex(descriptor, self.mirror, generation=1, orphans_max=10)
        self.registry.add(source)
        return source

    def named(self, name: str, dp_rank: int | None = None) -> list[str]:
        """Ids of the sources that go by that name."""
        return [str(source.descriptor.id) for source in self.registry.named(name, dp_rank)]

    def resolve(
        self, model: str | None, tenant: str = "default"
    ) -> tuple[str | None, str | None, str | None, list[str]]:
        """Model, adapter, how it was resolved, and whom the question is about."""
        found = self.registry.resolve(model, tenant)
        return found.model, found.lora_name, found.resolved_by, [str(source.descriptor.id) for source in found.sources]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "normal"),
    [
        ("node-1:8000", "node-1:8000"),
        ("http://node-1:8000", "node-1:8000"),
        ("https://Node-1:8000/", "node-1:8000"),
        ("HTTP://NODE-1:8000//", "node-1:8000"),
        ("[FD00::1]:8000", "[fd00::1]:8000"),
        ("node/Path/Kept", "node/Path/Kept"),
        ("Replica#A", "replica#a"),
        ("", ""),
    ],
)
def test_one_spelling_for_all(spelt: str, normal: str) -> None:
    """Scheme, trailing slash and the letter case of the host are ignored."""
    assert normal == normal_name(spelt)


def test_a_pod_goes_by_its_name_address_and_aliases() -> None:
    """Every rank of it, in their order; a rank narrows."""
    fleet = Fleet()
    for rank in (1, 0):
        fleet.add("pod-a", dp_rank=rank, address="10.0.0.1:8000", aliases=("replica-7", "[fd00::1]:8000"))

    for name in ("pod-a", "POD-A", "http://10.0.0.1:8000/", "replica-7", "http://[FD00::1]:8000"):
        assert ["pod-a", "pod-a#1"] == fleet.named(name)
        assert ["pod-a#1"] == fleet.named(name, 1)
    with pytest.raises(SourceUnknownError, match="no source is known as 'pod-b'"):
        fleet.named("pod-b")
    with pytest.raises(SourceUnknownError, match="with dp_rank 5"):
        fleet.named("pod-a", 5)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pod": "b", "aliases": ("x",)}, "aliases"),
        ({"pod": "b", "aliases": ("A",)}, "aliases"),
        ({"pod": "b", "address": "http://x"}, "address"),
        ({"pod": "X"}, "pod"),
        ({"pod": "1.1.1.1:1"}, "pod"),
        ({"pod": "a", "dp_rank": 1, "tenant": "other"}, "pod"),
    ],
)
def test_a_name_of_two_pods_is_refused(fields: dict[str, Any], field: str) -> None:
    """Also one of another tenant, for names are unique over all of them; nothing is entered."""
    fleet = Fleet()
    fleet.add("a", aliases=("x",), address="1.1.1.1:1")
    version = fleet.registry.version

    with pytest.raises(SourceConflictError) as refused:
        fleet.add(**fields)

    assert field == refused.value.field
    assert version == fleet.registry.version
    assert ["a"] == fleet.named("x")


def test_names_are_free_when_the_last_rank_leaves() -> None:
    """Then another pod, of another tenant, may have them."""
    fleet = Fleet()
    for rank in (0, 1):
        fleet.add("a", dp_rank=rank, aliases=("x", "http://X/"), tenant="one")
    fleet.registry.remove(SourceId("a", 0))
    with pytest.raises(SourceConflictError):
        fleet.add("b", aliases=("x",))
    with pytest.raises(SourceConflictError):
        fleet.add("a", dp_rank=2, tenant="two")

    assert fleet.registry.remove(SourceId("a", 1)) is not None
    assert fleet.registry.remove(SourceId("a", 1)) is None

    fleet.add("b", aliases=("x",))
    fleet.add("a", tenant="two")
    assert ["b"] == fleet.named("x")


def test_a_source_that_is_registered_again_replaces_itself() -> None:
    """With its new names, and none of the old."""
    fleet = Fleet()
    fleet.add("a", aliases=("x",))
    newer = fleet.add("a", aliases=("y",))

    assert [newer] == fleet.registry.named("y")
    with pytest.raises(SourceUnknownError):
        fleet.named("x")
    assert 1 == len(fleet.registry.sources)


def test_the_limit_on_sources() -> None:
    """Refuses more; one that is there already may come again."""
    fleet = Fleet(sources_max=2)
    fleet.add("a")
    fleet.add("b")

    with pytest.raises(LimitReachedError, match=r"limits\.sources"):
        fleet.add("c")
    fleet.add("b")


# -- a whole exchange --------------------------------------------------------------------------------------------------


def exchange(fleet: Fleet, leaving: list[str], coming: list[Descriptor]) -> None:
    """Check one."""
    fleet.registry.check_all([SourceId(pod, 0) for pod in leaving], coming)


def test_an_exchange_is_judged_as_a_whole() -> None:
    """Names and places of those that leave are free for those that come; two that come may not clash either."""
    fleet = Fleet(sources_max=2)
    fleet.add("a", aliases=("x",))
    fleet.add("b")

    exchange(fleet, ["a"], [Descriptor(pod="c", aliases=("x",))])
    with pytest.raises(SourceConflictError):
        exchange(fleet, ["b"], [Descriptor(pod="c", aliases=("x",))])
    with pytest.raises(SourceConflictError):
        exchange(fleet, ["a", "b"], [Descriptor(pod="c", aliases=("x",)), Descriptor(pod="d", aliases=("x",))])
    with pytest.raises(LimitReachedError):
        exchange(fleet, [], [Descriptor(pod="c")])
    assert ["a"] == fleet.named("x")


# -- models ------------------------------------------------------------------------------------------------------------


def test_a_sources_own_model() -> None:
    """Only sources of that model and tenant; no model asks all of the tenant."""
    fleet = Fleet()
    fleet.add("a", model="m")
    fleet.add("b", model="n")
    fleet.add("c", model="m", tenant="other")
    fleet.add("d")

    assert ("m", None, "model", ["a"]) == fleet.resolve("m")
    assert ("m", None, "model", ["c"]) == fleet.resolve("m", "other")
    assert (None, None, None, ["a", "b", "d"]) == fleet.resolve(None)
    assert fleet.registry.resolve(None, "default").known


def test_a_single_model_fleet_answers_for_every_model() -> None:
    """While no source names one; for none otherwise."""
    fleet = Fleet()
    fleet.add("a")
    assert ("anything", None, "fleet", ["a"]) == fleet.resolve("anything")
    assert ("anything", None, None, []) == fleet.resolve("anything", "other")

    fleet.add("b", model="m")

    assert ("anything", None, None, []) == fleet.resolve("anything")
    assert ("m", None, "model", ["b"]) == fleet.resolve("m")


def test_an_alias_of_anothers_model_is_not_offered() -> None:
    """It would tell that there is one."""
    fleet = Fleet(aliases={"secret-name": "n", "open-name": "m"})
    fleet.add("a", model="m")
    fleet.add("b", model="n", tenant="other")

    assert fleet.registry.resolve("secret-nam", "default").nearest is None
    assert "secret-name" == fleet.registry.resolve("secret-nam", "other").nearest
    assert "open-name" == fleet.registry.resolve("open-nam", "default").nearest


def test_a_configured_alias() -> None:
    """Names a model that is there, or the one of a fleet that names none."""
    fleet = Fleet(aliases={"gpt": "m", "lost": "nowhere"})
    fleet.add("a")
    assert ("m", None, "alias", ["a"]) == fleet.resolve("gpt")

    fleet.add("b", model="m")

    assert ("m", None, "alias", ["b"]) == fleet.resolve("gpt")
    assert (None, None) == fleet.resolve("lost")[1:3]


def test_an_adapter_names_its_base_model() -> None:
    """Seen in events: the base model's sources, whether they have seen it or not."""
    fleet = Fleet(aliases={"short": "ad"})
    fleet.add("a", model="m").adapters["ad"] = None
    fleet.add("b", model="m")
    fleet.add("c", model="n")

    assert ("m", "ad", "adapter", ["a", "b"]) == fleet.resolve("ad")
    assert ("m", "ad", "adapter", ["a", "b"]) == fleet.resolve("short")


def test_an_adapter_of_sources_without_a_model() -> None:
    """All of them while no source names a model; else those that have seen it."""
    fleet = Fleet()
    fleet.add("a").adapters["ad"] = None
    fleet.add("b")
    assert (None, "ad", "adapter", ["a", "b"]) == fleet.resolve("ad")

    fleet.add("c", model="m")

    assert (None, "ad", "adapter", ["a"]) == fleet.resolve("ad")


@pytest.mark.parametrize(
    ("asked", "nearest"), [("lama-8b", "llama-8b"), ("gqt", "gpt"), ("adapter-01", "adapter-1"), ("zzzzzz", None)]
)
def test_an_unknown_model_names_the_nearest_known_one(asked: str, nearest: str | None) -> None:
    """Of models, aliases and adapters; nobody is asked."""
    fleet = Fleet(aliases={"gpt": "llama-8b"})
    fleet.add("a", model="llama-8b").adapters["adapter-1"] = None

    found = fleet.registry.resolve(asked, "default")

    assert (asked, (), nearest, False) == (found.model, found.sources, found.nearest, found.known)


def test_candidates_are_chosen_anew_when_sources_come_or_go() -> None:
    """The version grows then and only then."""
    fleet = Fleet()
    versions = [fleet.registry.version]
    fleet.add("a")
    versions.append(fleet.registry.version)
    fleet.registry.remove(SourceId("a", 0))
    versions.append(fleet.registry.version)
    fleet.registry.remove(SourceId("a", 0))

    assert sorted(set(versions)) == versions
    assert versions[-1] == fleet.registry.version
