"""Names that engines tell: what a question's model means because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.served import LearntNames, Served
from indexer.index.source import SourceIndex
from indexer.model import Descriptor, SourceId
from indexer.source_words import warnings_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fleet:
    """A registry with sources whose engines told what they serve."""

    def __init__(self, **aliases: str) -> None:
        self.registry = Registry(aliases=aliases)
        self.mirror = Mirror()

    def add(self, pod: str, served: Served | None = None, **fields: Any) -> SourceIndex:  # noqa: ANN401  passed on
        """One source."""
        source = SourceIndex(Descriptor(pod=pod, **fields), self.mirror, generation=1, orphans_max=10)
        self.registry.add(source)
        if served is not None:
            self.registry.learn(source, served)
        return source

    def resolve(self, model: str, tenant: str = "default") -> tuple[str | None, str | None, str | None, str]:
        """Model, adapter, how it was resolved, and whom the question is about."""
        found = self.registry.resolve(model, tenant)
        pods = "".join(sorted(source.descriptor.pod for source in found.sources))
        return found.model, found.lora_name, found.resolved_by, pods

    def warning(self, source: SourceIndex, key: str) -> str:
        """Of a source."""
        return warnings_of(source, self.registry).get(key, "")


BASE = Served(("llama", "llama-3", "/models/llama"), ("fr",))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("llama", ("llama", None, "model", "a")),
        ("llama-3", ("llama", None, "alias", "a")),
        ("/models/llama", ("llama", None, "alias", "a")),
        ("fr", ("llama", "fr", "adapter", "a")),
        ("qwen", ("qwen", None, "model", "b")),
        ("seen", ("qwen", "seen", "adapter", "b")),
        ("mine", ("llama", None, "alias", "a")),
        ("nobody's", ("nobody's", None, None, "")),
    ],
)
def test_what_a_name_means(asked: str, meant: tuple[object, ...]) -> None:
    """A source's model, configured or learnt; then an alias, configured or learnt; then an adapter."""
    fleet = Fleet(mine="llama")
    fleet.add("a", BASE)
    fleet.add("b", Served(("q", "qwen")), model="qwen").adapters["seen"] = None
    fleet.add("c")

    assert meant == fleet.resolve(asked)


def test_a_configured_model_stays_and_what_the_engine_says_is_another_name() -> None:
    """An operator's word wins; a difference is remarked on."""
    fleet = Fleet(short="set")
    same = fleet.add("a", Served(("served", "set")), model="set")
    by_alias = fleet.add("b", Served(("short",)), model="set")
    other = fleet.add("c", Served(("strange", "root")), model="set")

    assert ("set", None, "model", "abc") == fleet.resolve("set")
    assert ("set", None, "alias", "abc") == fleet.resolve("served")
    assert ("", "") == (fleet.warning(same, "served_model"), fleet.warning(by_alias, "served_model"))
    assert "its model is set, and its engine serves strange, root" in fleet.warning(other, "served_model")


def test_a_model_that_is_learnt_late() -> None:
    """Before, a source answers while nobody has a model; from then on by its own."""
    fleet = Fleet()
    first, second = fleet.add("a"), fleet.add("b")
    assert ("llama", None, "fleet", "ab") == fleet.resolve("llama")
    fleet.registry.learn(first, BASE)
    assert ("llama", None, "model", "a") == fleet.resolve("llama")
    assert "no model, and others have one" in fleet.warning(second, "model")
    fleet.registry.learn(second, BASE)

    assert ("llama", None, "model", "ab") == fleet.resolve("llama")
    assert "" == fleet.warning(second, "model")


def test_adapters_come_and_go() -> None:
    """Loaded and unloaded at run time: the newest list counts."""
    fleet = Fleet()
    source = fleet.add("a", BASE)
    fleet.registry.learn(source, Served(BASE.names, ("de",)))

    assert (None, "adapter") == (fleet.resolve("fr")[2], fleet.resolve("de")[2])


def test_equal_words_change_nothing() -> None:
    """Candidates stay as they are; other words choose them anew."""
    fleet = Fleet()
    source = fleet.add("a", BASE)
    before = fleet.registry.version
    fleet.registry.learn(source, Served(BASE.names, BASE.adapters))
    assert before == fleet.registry.version
    fleet.registry.learn(source, Served(("other",)))

    assert before < fleet.registry.version
    assert (None, "model") == (fleet.resolve("llama")[2], fleet.resolve("other")[2])


def test_of_a_process_that_is_over_nothing_is_believed() -> None:
    """Another engine may live there now; a clear is no other engine."""
    fleet = Fleet()
    source, other = fleet.add("a", BASE), fleet.add("b", model="other")
    source.begin_generation(fleet.mirror, 2, same_engine=True)
    assert ("llama", None, "model", "a") == fleet.resolve("llama")
    source.begin_generation(fleet.mirror, 3, same_engine=False)
    assert "" == fleet.resolve("llama")[3] == fleet.resolve("fr")[3]
    fleet.registry.learn(source, BASE)
    assert ("llama", "fr", "adapter", "a") == fleet.resolve("fr")

    fleet.registry.remove(SourceId("a", 0))
    assert None is fleet.resolve("llama-3")[2]
    assert ("other", None, "model", "b") == fleet.resolve("other")
    assert "b" == other.descriptor.pod


def test_a_name_that_two_models_have_is_that_of_the_first() -> None:
    """In the order of pods, however they came; a model's own name comes before any other's further one."""
    fleet = Fleet()
    late = fleet.add("b", Served(("two", "shared", "one")))
    early = fleet.add("a", Served(("one", "shared"), ("two",)))

    assert ("one", None, "alias", "a") == fleet.resolve("shared")
    assert ("one", None, "model", "a") == fleet.resolve("one")
    assert "also serves shared (and 1 more), and who asks for that is answered for one" in fleet.warning(
        late, "served_names"
    )
    assert "also serves two, and who asks for that is answered for two" in fleet.warning(early, "served_names")


def test_tenants_have_names_of_their_own() -> None:
    """What one tenant's engines say means nothing to another."""
    fleet = Fleet()
    fleet.add("a", BASE, tenant="x")
    fleet.add("b", Served(("mine", "llama-3")), tenant="y")

    assert ("llama", None, "alias", "a") == fleet.resolve("llama-3", "x")
    assert ("mine", None, "alias", "b") == fleet.resolve("llama-3", "y")
    assert None is fleet.resolve("fr", "y")[2]
    assert "llama-3" == fleet.registry.resolve("llama-4", "y").nearest


_NAMES = st.sampled_from("pqrs")
_CHANGE = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.lists(_NAMES, max_size=3, unique=True)), _NAMES)


@given(st.lists(_CHANGE, max_size=20))
def test_any_history_of_names(changes: Sequence[tuple[int, list[str] | None, str]]) -> None:
    """As a naive model says that keeps all words and looks through them."""
    learnt, model = LearntNames(), dict[SourceId, tuple[str, list[str]]]()
    for number, names, of in changes:
        source = SourceId("abcd"[number], 0)
        if source in model:
            learnt.leave("t", source, model.pop(source)[1])
        if names is not None:
            model[source] = of, names
            learnt.enter("t", source, of, names)

    for name in "pqrs":
        owners = [source for source, (_, names) in sorted(model.items()) if name in names]
        assert (model[owners[0]][0] if owners else None) == learnt.meaning("t", name)
    assert {name for _, names in model.values() for name in names} == set(learnt.known("t", 10))
