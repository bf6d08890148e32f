"""Names, models, roles and tenants: whom a question is about, and under which name each answers."""

from __future__ import annotations

from indexer.demands import unmet
from schemas.lookup import LookupQuery
from tests.support.core import Core, fleet, reasons
from tests.support.core_events import prompt, stored

TOKENS = prompt(4)


def test_an_entry_answers_under_the_string_by_which_it_was_asked_for() -> None:
    """Name, address, alias, with scheme or slash: whichever came first."""
    core = Core()
    core.engine("a", aliases=("replica-1",), address="10.0.0.1:8000").say(stored([1], prompt(1)))
    core.engine("b").say()

    for name in ("a", "A", "replica-1", "http://10.0.0.1:8000/"):
        assert {name: 4} == core.ask(prompt(1), pods=(name,)).matched
    assert {"replica-1": 4} == core.ask(prompt(1), pods=("replica-1", "a", "replica-1")).matched
    assert {"http://b": 0} == core.ask(prompt(1), pods=("http://b",)).matched
    assert {"a": 4, "b": 0} == core.ask(prompt(1)).matched


def test_named_pods_that_are_no_candidates_are_listed_with_the_reason() -> None:
    """Unknown, of another model, of another role: each with 0."""
    core = Core()
    for pod, model, role in (("a", "m", "prefill"), ("b", "n", "prefill"), ("c", "m", "decode"), ("d", "m", "both")):
        core.engine(pod, model=model, role=role).say(stored([1], prompt(1)))

    answer = core.ask(prompt(1), model="m", pods=("a", "b", "c", "d", "e"), pod_roles=("prefill",))

    assert {"a": None, "b": "other_model", "c": "filtered", "d": None, "e": "pod_unknown"} == reasons(answer)
    assert {"a": 4, "b": 0, "c": 0, "d": 4, "e": 0} == answer.matched
    assert ("exact", {"a", "d"}) == (answer.state, set(answer.order[:2]))
    unknown = answer["e"]
    assert ("down", "lower", None, "0") == (unknown.state, unknown.bound, unknown.block_size, unknown.generation)
    assert (0, 0, 0.0, None, None) == (
        unknown.dp_rank,
        unknown.reusable_tokens,
        unknown.score,
        unknown.lag_ms,
        unknown.sequence,
    )


def test_named_pods_that_are_no_candidates_say_nothing_of_the_answer() -> None:
    """Whatever is wrong with them."""
    core = Core()
    core.engine("a", model="m").say(stored([1], prompt(1)))
    core.engine("b", model="n").say({"type": "New"})
    core.engine("c", model="n")

    assert "exact" == core.ask(prompt(1), model="m", pods=("a", "b", "c")).state
    assert "no_signal" == core.ask(prompt(1), model="m", pods=("b", "c", "d")).state


def test_without_names_only_candidates_are_listed() -> None:
    """Filters leave the others out."""
    core = Core()
    for pod, model, role in (("a", "m", "prefill"), ("b", "n", "prefill"), ("c", "m", "decode")):
        core.engine(pod, model=model, role=role).say(stored([1], prompt(1)))

    assert {"a": 4} == core.ask(prompt(1), model="m", pod_roles=("prefill",)).matched
    assert {"a": 4, "c": 4} == core.ask(prompt(1), model="m").matched
    assert {"a": 4, "b": 4, "c": 4} == core.ask(prompt(1)).matched


def test_tenants_never_see_each_other() -> None:
    """Neither in lists nor by name; the default tenant is one of them."""
    core = Core()
    core.engine("a", tenant="one").say(stored([1], prompt(1)))
    core.engine("b").say(stored([1], prompt(1)))

    assert [{"a": 4}, {"b": 4}, {}] == [core.ask(prompt(1), tenant=tenant).matched for tenant in ("one", None, "two")]
    assert {"a": "pod_unknown"} == reasons(core.ask(prompt(1), pods=("a",)))
    (open_demand,) = unmet(core.registry, LookupQuery(min_sequence={"a": 99}))
    assert open_demand.source is None


def test_an_unknown_model() -> None:
    """An answer all the same: no signal, and the nearest known name."""
    core = Core()
    core.engine("a", model="llama-8b").say(stored([1], prompt(1)))

    answer = core.ask(prompt(1), model="lama-8b")

    assert ("no_signal", "model_unknown", "llama-8b", []) == (
        answer.state,
        answer.reason,
        answer.nearest_model,
        answer.pods,
    )
    assert {"a": "model_unknown"} == reasons(core.ask(prompt(1), model="lama-8b", pods=("a",)))


def test_a_model_name_may_contain_an_at_sign() -> None:
    """It is a name like any other."""
    core = Core(aliases={"chat": "org/model@v2"})
    core.engine("a", model="org/model@v2").say(stored([1], prompt(1)))

    assert [{"a": 4}, {"a": 4}] == [core.ask(prompt(1), model=model).matched for model in ("org/model@v2", "chat")]


def test_the_last_source_leaves() -> None:
    """200 with nothing in it, not an error."""
    core = fleet(4)
    core.remove("a")

    answer = core.ask(TOKENS, model="m")
    assert ("no_signal", []) == (answer.state, answer.pods)
