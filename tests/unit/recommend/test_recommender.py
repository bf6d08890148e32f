"""Where to send a request: what a core knows, what is known of loads, and who may be asked."""

from __future__ import annotations

from collections import Counter

import pytest

from indexer.errors import SchemeConflictError
from indexer.model import SourceId
from indexer.recommend.recommender import Ways
from schemas.lookup import LookupQuery
from schemas.recommend import LoadsUsed
from tests.support.core import Core, fleet
from tests.support.core_events import prompt, removed, stored, u32
from tests.support.recommending import Asked, pods, totals

TOKENS = [*prompt(4), 7]
SHARE = 4 / 17
"""Of the prompt, a block."""


# -- prefix and load ---------------------------------------------------------------------------------------------------


def test_prefix_order_where_no_loads_are_known() -> None:
    """The lookup's own order, and the answer says that there were none."""
    answer = Asked(fleet(1, 4, 0, 2)).ask(TOKENS, request_id="r")

    assert "b d a c" == pods(answer.picks)
    assert ("r", "exact", LoadsUsed("none", None), None) == (
        answer.request_id,
        answer.state,
        answer.load,
        answer.decode,
    )
    assert pytest.approx({"b": 4 * SHARE, "d": 2 * SHARE, "a": SHARE, "c": 0.0}, abs=1e-6) == totals(answer)


def test_loads_of_the_caller_are_blended_in() -> None:
    """A busy pod that holds a quarter loses to an idle one that holds nothing, one that holds all does not."""
    asked = Asked(fleet(1, 4, 0))
    answer = asked.ask(TOKENS, loads={"a": 8, "b": 8, "c": 0})

    assert "b c a" == pods(answer.picks)
    assert LoadsUsed("request", 0) == answer.load
    assert pytest.approx({"b": 4 * SHARE, "c": 0.3, "a": SHARE}, abs=1e-6) == totals(answer)


def test_loads_of_others_are_loads_of_nobody() -> None:
    """A caller whose names are other ones is not taken to know loads, and the answer says whose were used."""
    asked = Asked(fleet(0, 0))
    asked.loads.tell("metrics", 1.0, a=8, b=0)

    for told in ({"else": 3.0}, {"else": 3.0, "nor": 0.0}):
        answer = asked.ask(TOKENS, loads=told)
        assert ("b a", LoadsUsed("metrics", 1000)) == (pods(answer.picks), answer.load)
    answer = asked.ask(TOKENS, loads={"else": 3.0, "b": 9.0})
    assert ({"a": 0.3, "b": 0.3}, LoadsUsed("request", 0)) == (totals(answer), answer.load)


def test_loads_that_the_service_knows() -> None:
    """Read from engines, with their age; of whom nothing was read stands in the middle."""
    asked = Asked(fleet(0, 0, 0))
    asked.loads.tell("metrics", 1.2504, a=0, b=8)
    answer = asked.ask(TOKENS)

    assert "a c b" == pods(answer.picks)
    assert LoadsUsed("metrics", 1250) == answer.load
    assert {"a": 0.3, "c": 0.15, "b": 0.0} == totals(answer)


def test_who_was_sent_nothing_is_idle() -> None:
    """Where what was sent is all that is known of loads."""
    asked = Asked(fleet(0, 0))
    asked.loads.tell("receipts", 3.0, a=4)

    assert {"b": 0.3, "a": 0.0} == totals(asked.ask(TOKENS))


def test_the_callers_loads_win_over_those_of_the_service() -> None:
    """It says nothing of them then."""
    asked = Asked(fleet(0, 0))
    asked.loads.tell("metrics", 1.0, a=0, b=8)

    assert "b a" == pods(asked.ask(TOKENS, loads={"a": 8, "b": 0}).picks)


def test_a_cold_pod_gets_traffic() -> None:
    """One that never said a word competes with its headroom, and wins where others are busy."""
    core = fleet(1, 1)
    core.engine("new")
    answer = Asked(core).ask(TOKENS, loads={"a": 16, "b": 20, "new": 0})

    assert "new a b" == pods(answer.picks)
    assert "degraded" == answer.state


def test_strategies() -> None:
    """One term alone; what else would count is 0."""
    asked = Asked(fleet(1, 0))
    loads = {"a": 8, "b": 0}

    assert {"a": round(SHARE, 6), "b": 0.0} == totals(asked.ask(TOKENS, loads=loads, how={"strategy": "prefix"}))
    assert {"b": 0.3, "a": 0.0} == totals(asked.ask(TOKENS, loads=loads, how={"strategy": "load"}))
    assert [("prefix", "request"), ("load", "request")] == asked.answered


def test_weights_of_the_question() -> None:
    """Those that it names; the others stay as configured."""
    answer = Asked(fleet(4, 0)).ask(TOKENS, loads={"a": 8, "b": 0}, weights={"prefix": 0.1})

    assert {"b": 0.3, "a": round(0.1 * 4 * SHARE, 6)} == totals(answer)


def test_a_nearly_full_cache_is_a_penalty() -> None:
    """As the caller tells it, without its requests."""
    answer = Asked(fleet(0, 0)).ask(TOKENS, full={"a": 1.0, "b": 0.2})

    assert {"b": 0.0, "a": -0.3} == totals(answer)
    assert 0.3 == pytest.approx(answer.picks[1].terms.penalty)


def test_a_silent_engine_draws_nobody_with_its_last_load() -> None:
    """It is stale: it still counts for what it holds, not for how idle it was."""
    core = fleet(0, 0, 0)
    core.clock.at += 10
    for pod in ("b", "c"):
        core.sinks[SourceId(pod, 0)].alive(connected=True)

    assert {"b": 0.033333, "a": 0.0, "c": 0.0} == totals(Asked(core).ask(TOKENS, loads={"a": 0, "b": 8, "c": 9}))


def test_what_is_expected_counts_less_than_what_is_held() -> None:
    """A term of its own."""
    core = fleet(3, 1, 0)
    core.route(TOKENS, "b")
    answer = Asked(core).ask(TOKENS)

    assert "a b c" == pods(answer.picks)
    assert pytest.approx(0.5 * 3 * SHARE) == answer.picks[1].terms.speculative
    assert pytest.approx(3 * SHARE) == answer.picks[0].total


# -- who may be sent a request -----------------------------------------------------------------------------------------


def test_who_is_not_ready_is_no_pick() -> None:
    """Whatever it holds; and it is one the moment it is ready."""
    core = fleet(4, 2)
    asked = Asked(core)
    core.make_ready("a", ready=False)
    assert "b" == pods(asked.ask(TOKENS).picks)
    core.make_ready("a", ready=True)
    assert "a b" == pods(asked.ask(TOKENS).picks)


def test_who_is_down_or_cordoned_is_no_pick() -> None:
    """Nor are those of other models that the question names."""
    core = fleet(4, 4, model="m")
    core.engine("other", model="n")
    core.engine("quiet", model="m")
    core.cordon("a", cordoned=True)
    core.clock.at += 100
    core.sinks[SourceId("a", 0)].alive(connected=True)
    names = ("a", "b", "other", "quiet")

    assert "quiet" == pods(Asked(core).ask(TOKENS, model="m", pods=names).picks)


def test_who_may_be_sent_a_request_follows_states_and_not_events() -> None:
    """The next question knows who was cordoned or is back; batches in between cost nothing of it."""
    core = fleet(4, 2)
    asked = Asked(core)
    standing = core.lookup.weighed(LookupQuery(tokens=u32(TOKENS))).scene.standing
    assert "a b" == pods(asked.ask(TOKENS).picks)

    core.speaker("b").say(removed(2))
    answer = asked.ask(TOKENS)

    assert pytest.approx({"a": 4 * SHARE, "b": SHARE}, abs=1e-6) == totals(answer)
    assert standing is core.lookup.weighed(LookupQuery(tokens=u32(TOKENS))).scene.standing

    core.cordon("a", cordoned=True)
    assert "b" == pods(asked.ask(TOKENS).picks)
    core.cordon("a", cordoned=False)
    assert "a b" == pods(asked.ask(TOKENS).picks)


def test_names_that_nobody_registered_are_candidates() -> None:
    """They hold nothing, as far as is known, and have the load that the caller tells."""
    asked = Asked(fleet(1))

    assert {"a": round(SHARE, 6), "x": 0.0} == totals(asked.ask(TOKENS, pods=("x", "a")))
    assert "x a" == pods(asked.ask(TOKENS, pods=("x", "a"), loads={"x": 0, "a": 9}).picks)


def test_a_pod_is_named_as_the_caller_names_it() -> None:
    """In picks, loads and exclusions alike, by any of its names."""
    core = Core()
    core.engine("one", address="10.0.0.1:8000", aliases=("http://First/",)).say(stored([1], prompt(1)))
    core.engine("two")
    asked = Asked(core)

    assert "10.0.0.1:8000 two" == pods(asked.ask(TOKENS, pods=("two", "10.0.0.1:8000")).picks)
    assert "two one" == pods(asked.ask(TOKENS, loads={"first": 9, "TWO": 0}).picks)
    assert "two" == pods(asked.ask(TOKENS, how={"exclude": ("10.0.0.1:8000", "nobody")}).picks)


def test_nobody_is_left() -> None:
    """An answer without picks, no error."""
    answer = Asked(fleet(4)).ask(TOKENS, how={"exclude": ("a",)})

    assert [] == answer.picks
    assert "exact" == answer.state


def test_limit_and_groups() -> None:
    """At most so many; of a pod its best rank."""
    core = Core()
    for rank in range(2):
        core.engine("a", dp_rank=rank)
    core.speaker("a", 1).say(stored([1], prompt(1)))
    core.engine("b")
    asked = Asked(core)

    assert [("a", 1), ("b", 0)] == sorted((each.pod, each.dp_rank) for each in asked.ask(TOKENS, group="pod").picks)
    assert [("a", 1)] == [(each.pod, each.dp_rank) for each in asked.ask(TOKENS, limit=1).picks]
    assert 3 == len(asked.ask(TOKENS).picks)


def test_an_unknown_model_of_a_fleet_that_serves_one() -> None:
    """It may be a further name of it: loads decide, and nothing is said of prefixes."""
    asked = Asked(fleet(4, 0, model="m"))
    answer = asked.ask(TOKENS, model="unknown", loads={"a": 8, "b": 0})

    assert ("no_signal", "b a") == (answer.state, pods(answer.picks))
    assert [0.0, 0.0] == [each.terms.prefix for each in answer.picks]


def test_an_unknown_model_of_a_fleet_that_serves_several() -> None:
    """Most would refuse it: nobody is recommended but who is named."""
    core = fleet(4, 0, model="m")
    core.engine("c", model="n")
    asked = Asked(core)

    assert "" == pods(asked.ask(TOKENS, model="unknown").picks)
    assert "b c" == pods(asked.ask(TOKENS, model="unknown", pods=("c", "b"), loads={"b": 0, "c": 1}).picks)


def test_an_unknown_model_where_others_are_followed_elsewhere() -> None:
    """It may be one of theirs, which whoever is known here would refuse: nobody is recommended but who is named."""
    core = fleet(4, 0, model="m")
    core.registry.note_elsewhere("default", "n", 1)
    asked = Asked(core)

    for model in ("n", "unknown"):
        assert ("no_signal", []) == (asked.ask(TOKENS, model=model).state, asked.ask(TOKENS, model=model).picks)
    assert "c" == pods(asked.ask(TOKENS, model="n", pods=("a", "c"), loads={"a": 0}).picks)
    assert 2 == len(asked.ask(TOKENS, model="m").picks)
    core.registry.note_elsewhere("default", "n", -1)
    assert 2 == len(asked.ask(TOKENS, model="unknown").picks)


def test_a_question_of_which_nothing_is_understood() -> None:
    """Load alone decides; the requests spread where none is known."""
    asked = Asked(fleet(4, 0, 0, 0))
    first = Counter(pods(asked.ask(request_id=str(i), how={"blind": True}).picks)[0] for i in range(200))

    assert {"a", "b", "c", "d"} == set(first)
    assert "c" == pods(asked.ask(loads={"a": 5, "b": 5, "c": 0, "d": 5}, how={"blind": True}).picks)[0]


# -- equal ones --------------------------------------------------------------------------------------------------------


def test_equal_ones_stand_as_in_a_lookup() -> None:
    """Where no loads count, held alike or not at all: by the same rendezvous, at every replica."""
    core = fleet(2, 2, 0, 2, 0, 0)
    asked = Asked(core, Ways(strategy="prefix"))
    asked.loads.tell("metrics", 1.0, a=1)
    for start in range(0, 4_000, 100):
        tokens = [*prompt(2), *prompt(2, start)]

        assert [each.pod for each in core.ask(tokens).pods] == [each.pod for each in asked.ask(tokens).picks]


def test_equally_busy_ones_stand_by_where_the_prompt_parts_from_the_others() -> None:
    """Prompts that have all in common that anybody holds prefer different ones; the same prompt the same ones."""
    core = fleet(2, 2, 0, 2)
    asked = Asked(core)
    asked.loads.tell("metrics", 1.0, a=1, b=1, c=1, d=1)
    firsts = [pods(asked.ask([*prompt(2), *prompt(2, start)]).picks)[0] for start in range(0, 4_000, 100)]

    assert {"a", "b", "d"} == set(firsts)
    assert firsts == [pods(asked.ask([*prompt(2), *prompt(2, start)]).picks)[0] for start in range(0, 4_000, 100)]


def test_equal_ones_stand_by_the_session() -> None:
    """The same for all prompts of a session, another for others; what is held counts before it."""
    asked = Asked(fleet(0, 0, 0, 4))
    of = {
        session: {pods(asked.ask(prompt(2, start), how={"session": session}).picks) for start in (5_000, 6_000)}
        for session in ("s-1", "s-2", "s-3", "s-4")
    }

    assert {1} == set(map(len, of.values()))
    assert len(set(map(frozenset, of.values()))) > 1
    assert "d" == pods(asked.ask(TOKENS, how={"session": "s-1"}).picks)[0]


# -- many prompts that begin alike ------------------------------------------------------------------------------------


def test_a_herd_spreads_by_its_load() -> None:
    """All prompts share the first block, which one pod holds: what was sent there speaks against it."""
    asked = Asked(fleet(1, 0, 0, 0))
    sent: Counter[str] = Counter(dict.fromkeys("abcd", 0))
    for number in range(200):
        tokens = [*prompt(1), *prompt(7, 1_000 + 100 * number)]
        sent[asked.ask(tokens, loads=sent).picks[0].pod] += 1

    assert max(sent.values()) - min(sent.values()) <= 4


def test_a_herd_spreads_where_nothing_is_known_of_loads() -> None:
    """Nobody gets more than twice its share of it."""
    asked = Asked(fleet(1, 0, 0, 0))
    sent: Counter[str] = Counter()
    for number in range(200):
        tokens = [*prompt(1), *prompt(7, 1_000 + 100 * number)]
        sent[asked.ask(tokens).picks[0].pod] += 1
        asked.core.clock.at += 0.01
        asked.core.alive()

    assert max(sent.values()) <= 100 + 1
    assert "a" == pods(asked.ask([*prompt(1), 1], how={"strategy": "prefix"}).picks)[0]


def test_a_conversation_stays_where_it_is() -> None:
    """Each turn decides by a longer prefix: it is no herd, however fast it goes."""
    core = Core()
    engines = {name: core.engine(name) for name in "abcd"}
    asked = Asked(core)
    for turn in range(1, 20):
        engines["b"].say(stored([turn], prompt(1, 4 * (turn - 1)), parent=turn - 1 if turn > 1 else None))

        assert "b" == asked.ask([*prompt(turn), 1]).picks[0].pod


# -- prefill and decode ------------------------------------------------------------------------------------------------


def _split(**held: int) -> Asked:
    """Two engines for prefill, two for decode, that hold so many blocks."""
    core = Core()
    for name, role in (("p1", "prefill"), ("p2", "prefill"), ("d1", "decode"), ("d2", "decode")):
        blocks = held.get(name, 0)
        core.engine(name, role=role).say(*([stored(range(1, blocks + 1), prompt(blocks))] if blocks else []))
    return Asked(core, Ways(non_cached_tokens=8))


def test_another_takes_a_prompt_of_which_much_is_to_compute() -> None:
    """Two lists: who takes it, and who makes the answer."""
    answer = _split(p2=3, d1=1).ask(TOKENS)

    assert ("p2 p1", "d1 d2") == (pods(answer.picks), pods(answer.decode or []))


def test_a_decode_engine_takes_what_little_is_left_itself() -> None:
    """Up to `non_cached_tokens` of the best of them."""
    answer = _split(p2=4, d1=3).ask(TOKENS)

    assert ("d1 d2", None) == (pods(answer.picks), answer.decode)
    assert _split(p2=4, d1=2).ask(TOKENS).decode is not None


def test_nobody_is_there_for_one_half() -> None:
    """Without prefill engines decode engines do it all; without any for decode that list is empty."""
    asked = _split(p1=4)
    alone = asked.ask(TOKENS, how={"exclude": ("p1", "p2")})

    assert ({"d1", "d2"}, None) == ({each.pod for each in alone.picks}, alone.decode)
    without = asked.ask(TOKENS, how={"exclude": ("d1", "d2")})
    assert ("p1 p2", []) == (pods(without.picks), without.decode)


def test_a_question_for_some_roles_has_one_list() -> None:
    """The caller splits by itself."""
    answer = _split(p2=3).ask(TOKENS, pod_roles=("prefill",))

    assert ("p2 p1", None) == (pods(answer.picks), answer.decode)


def test_engines_of_both_roles_stand_in_both_lists() -> None:
    """Roles alone split nothing: there must be somebody for prefill alone."""
    core = fleet(0, role="both")
    core.engine("d", role="decode")
    assert Asked(core).ask(TOKENS).decode is None
    core.engine("p", role="prefill")
    answer = Asked(core, Ways(non_cached_tokens=8)).ask(TOKENS)

    assert {"a", "p"} == {each.pod for each in answer.picks}
    assert {"a", "d"} == {each.pod for each in answer.decode or ()}


# -- what follows ------------------------------------------------------------------------------------------------------


def test_what_is_sent_counts_to_the_load() -> None:
    """Of the pod that goes by that name, and of the rank; of whom nobody registered nothing is kept."""
    core = Core()
    for rank in range(2):
        core.engine("a", dp_rank=rank, aliases=("A-1",))
    asked = Asked(core)
    asked.recommender.sent("a-1", 1, "r-1", None)
    asked.recommender.sent("x", 0, "r-2", None)
    asked.recommender.sent("a", 0, "r-3", "another")

    assert [(SourceId("a", 1), "r-1", None)] == asked.loads.sendings


def test_what_a_lookup_refuses_is_refused() -> None:
    """In the same words."""
    asked = Asked(Core(secret=b"s"))

    with pytest.raises(SchemeConflictError):
        asked.ask(TOKENS, scheme="dynamo")
