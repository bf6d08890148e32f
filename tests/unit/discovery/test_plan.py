"""From what stands and what is told to the steps between: each transcript is registry, picture, steps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from indexer.discovery.found import REMARKS_MAX, Pending
from indexer.discovery.plan import GONE, PENDING, Plan, Step, Wanted, together
from indexer.discovery.plan import plan as planning
from indexer.index.registry import NameBook
from indexer.model import Descriptor, SourceId
from indexer.store.registered import Registered
from tests.support.pictures import NAMES, anything, standing_after
from tests.support.steps import done
from tests.support.telling import found, picture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.discovery.found import Found

A, B = SourceId("a", 0), SourceId("b", 0)
MANY = 100


def plan(stands: Mapping[SourceId, Registered], told: Wanted, *, sources_max: int) -> Plan:
    """At once."""
    return done(planning(stands, told, sources_max=sources_max))


def standing(*those: Registered) -> dict[SourceId, Registered]:
    """A registry."""
    return {each.descriptor.id: each for each in those}


def of(each: Found, **told: Any) -> Registered:  # noqa: ANN401  of a registration
    """As it is registered."""
    return msgspec.structs.replace(Registered(each.descriptor, ready=each.ready, life=each.life, why=each.why), **told)


def wanted(*those: Found, whole: bool = True) -> Wanted:
    """What is told."""
    return Wanted(picture(*those).found, {}, {}, whole)


def words(steps: list[Step]) -> list[str]:
    """How each changes which."""
    return [f"{step.how} {step.source}" for step in steps]


def carried_out(registry: Mapping[SourceId, Registered], steps: list[Step]) -> dict[SourceId, Registered]:
    """One by one, each on what it is based on; a name never belongs to two pods on the way."""
    now = dict(registry)
    for step in steps:
        assert now.get(step.source) == step.stands
        if step.wanted is None:
            del now[step.source]
        else:
            now[step.source] = step.wanted
        book = NameBook()
        for each in now.values():
            book.check(each.descriptor)
            book.enter(each.descriptor)
    return now


def test_who_is_told_of_is_put_and_told_again_nothing_happens() -> None:
    """Level-triggered."""
    told = wanted(found("a", life="1"), found("b", ready=False, why="starting"))

    first = plan({}, told, sources_max=MANY)
    stands = carried_out({}, first.steps)

    assert ["put b", "put a"] == words(first.steps)
    assert of(found("a", life="1")) == stands[A]
    assert of(found("b", ready=False, why="starting")) == stands[B]
    assert [] == plan(stands, told, sources_max=MANY).steps


def test_who_is_gone_is_not_ready_at_once_and_removed_last() -> None:
    """What comes need not wait for what goes."""
    first = plan(standing(of(found("a"), cordoned=True)), wanted(found("b")), sources_max=MANY)

    assert ["edit a", "put b", "remove a"] == words(first.steps)
    assert of(found("a"), cordoned=True, ready=False, why=GONE) == first.steps[0].wanted
    assert ["remove a"] == words(
        plan(standing(of(found("a"), ready=False, why=GONE)), wanted(), sources_max=MANY).steps
    )


def test_who_comes_back_before_it_is_removed_is_ready_again() -> None:
    """Nothing of it is forgotten, and the cordon and its life stay."""
    stands = of(found("a", life="7"), ready=False, why=GONE, cordoned=True)

    (step,) = plan(standing(stands), wanted(found("a")), sources_max=MANY).steps

    assert ("edit", of(found("a", life="7"), cordoned=True)) == (step.how, step.wanted)


@pytest.mark.parametrize(
    ("pod", "ready", "why"),
    [
        (Pending(ready=True, life="7"), True, ""),
        (Pending(ready=True, life=""), True, ""),
        (Pending(ready=False, life="7"), False, PENDING),
        (Pending(ready=True, life="8"), False, PENDING),
    ],
)
def test_whose_sources_are_not_known_yet_stand(pod: Pending, ready: bool, why: str) -> None:
    """Who begins to watch asks engines anew: they would be removed by each handing over, and all that they hold."""
    told = wanted(found("b"))._replace(pending={"a": pod, "c": pod})
    stands = standing(of(found("a", life="7", dp_rank=1)), of(found("b")))

    after = carried_out(stands, plan(stands, told, sources_max=MANY).steps)

    assert standing(of(found("a", life="7", dp_rank=1), ready=ready, why=why), of(found("b"))) == after
    assert [] == plan(after, told, sources_max=MANY).steps
    (step,) = plan(after, wanted(found("a", life="8", dp_rank=1), found("b")), sources_max=MANY).steps
    assert ("edit", of(found("a", life="8", dp_rank=1))) == (step.how, step.wanted)


@pytest.mark.parametrize(
    "described",
    [
        {"model": "m"},
        {"aliases": ("x",)},
        {"labels": {"k": "v"}},
        {"role": "decode"},
        {"address": "h:1"},
        {"blocks_total": 9},
    ],
)
def test_what_is_part_of_no_hash_is_changed_in_place(described: dict[str, Any]) -> None:
    """A model learnt late forgets nothing."""
    (step,) = plan(standing(of(found("a"))), wanted(found("a", **described)), sources_max=MANY).steps

    assert "edit" == step.how


@pytest.mark.parametrize(
    "described", [{"endpoint": "tcp://h:2"}, {"replay_endpoint": "tcp://h:3"}, {"tenant": "t"}, {"engine": "sglang"}]
)
def test_another_stream_is_another_source(described: dict[str, Any]) -> None:
    """What is held is of the one before."""
    (step,) = plan(standing(of(found("a"))), wanted(found("a", **described)), sources_max=MANY).steps

    assert ("put", True) == (step.how, step.forgets)


@pytest.mark.parametrize("origin", ["flag", "config", "api", "topic"])
def test_other_origins_win_and_are_never_touched(origin: Any) -> None:  # noqa: ANN401  an origin
    """By name, by address, and by a further name."""
    named = Registered(Descriptor(pod="a", address="h:1", aliases=("x",), origin=origin), cordoned=True)

    made = plan(
        standing(named),
        wanted(found("a"), found("h:1"), found("c", address="h:1"), found("d", aliases=("x", "y"))),
        sources_max=MANY,
    )

    assert ["put d"] == words(made.steps)
    assert made.steps[0].wanted is not None
    assert ("y",) == made.steps[0].wanted.descriptor.aliases
    assert {"a", "h:1", "c", "d"} == made.remarks.keys()
    assert f"origin {origin}" in made.remarks["a"]


def test_a_name_of_two_pods_is_neithers() -> None:
    """Whoever calls by it would mean either. Ranks of one pod share it."""
    told = wanted(found("a", aliases=("x",)), found("a", dp_rank=1, aliases=("x",)), found("b", aliases=("X/", "y")))

    made = plan({}, told, sources_max=MANY)

    assert {(), ("y",)} == {step.wanted.descriptor.aliases for step in made.steps if step.wanted is not None}


def test_names_move_in_an_order_without_conflicts() -> None:
    """From one to the next, in a ring of three, and from one that is gone and not removed yet."""
    chain = standing(of(found("a", aliases=("x",))), of(found("b", aliases=("y",))))
    ring = standing(*(of(found(pod, aliases=(alias,))) for pod, alias in (("a", "x"), ("b", "y"), ("c", "z"))))

    for stands, told in (
        (chain, wanted(found("a", aliases=("w",)), found("b", aliases=("x",)), found("c", aliases=("y",)))),
        (ring, wanted(found("a", aliases=("y",)), found("b", aliases=("z",)), found("c", aliases=("x",)))),
        (chain, wanted(found("b", aliases=("x", "y")))),
    ):
        made = plan(stands, told, sources_max=MANY)
        ends = carried_out(stands, made.steps)
        assert told.found == {key: found_as(each) for key, each in ends.items()}
        assert all(step.how == "edit" for step in made.steps if step.source in stands and step.wanted is not None)


def found_as(each: Registered) -> Found:
    """As it would have been told."""
    descriptor = msgspec.structs.asdict(each.descriptor)
    del descriptor["origin"]
    return found(**descriptor, ready=each.ready, life=each.life, why=each.why)


def test_before_all_have_told_nobody_is_removed() -> None:
    """Whoever is in no picture may be in one that is still to come."""
    made = plan(standing(of(found("a"))), wanted(found("b"), whole=False), sources_max=MANY)

    assert ["put b"] == words(made.steps)


def test_who_two_discoverers_tell_of_is_as_the_first_says() -> None:
    """And so it is said."""
    told = together([("one", picture(found("a", model="m"))), ("two", picture(found("a"), found("b")))])

    assert {A: found("a", model="m"), B: found("b")} == told.found
    assert told.whole
    assert "two" in told.remarks["a"]
    assert not together([("one", picture()), ("two", None)]).whole


def test_beyond_the_limit_of_sources_some_are_left_out() -> None:
    """And remarks are not without end."""
    many = [found(f"p{number:04}") for number in range(2 * REMARKS_MAX)]

    made = plan(standing(Registered(Descriptor(pod="flag", origin="flag"))), wanted(*many), sources_max=5)

    assert 4 == len(made.steps)
    assert REMARKS_MAX == len(made.remarks)


def test_who_is_gone_counts_among_the_sources_until_it_is_removed() -> None:
    """A whole rollout at once is never more than `limits.sources`: who comes waits for a place."""
    stands = standing(*(of(found(name)) for name in ("a", "b", "c")))

    made = plan(stands, wanted(*(found(name) for name in ("c", "d", "e", "f"))), sources_max=4)

    assert ["edit a", "edit b", "put d", "remove a", "remove b"] == words(made.steps)
    assert {"e", "f"} == made.remarks.keys()
    carried_out(stands, made.steps)
    left = standing(*(of(found(name)) for name in ("c", "d")))
    assert ["put e", "put f"] == words(plan(left, wanted(*map(found, "cdef")), sources_max=4).steps)


def test_who_stands_keeps_its_place_where_there_are_too_many() -> None:
    """Whatever the order of names: else one that comes would have another forgotten."""
    stands = standing(of(found("x")), of(found("y")))

    made = plan(stands, wanted(found("a"), found("x"), found("y")), sources_max=2)

    assert [] == made.steps
    assert {"a"} == made.remarks.keys()


def test_all_ranks_of_a_pod_become_another_tenants() -> None:
    """One alone could not: for a moment there is none of them."""
    stands = standing(*(of(found("p", dp_rank=rank, aliases=("x",)), cordoned=True) for rank in range(2)))
    told = wanted(*(found("p", dp_rank=rank, aliases=("x",), tenant="t") for rank in range(2)))

    made = plan(stands, told, sources_max=2)

    assert ["remove p", "remove p#1", "put p", "put p#1"] == words(made.steps)
    assert {} == made.remarks
    after = carried_out(stands, made.steps)
    assert {("t", True)} == {(each.descriptor.tenant, each.cordoned) for each in after.values()}
    assert [] == plan(after, told, sources_max=2).steps


def test_a_plan_of_many_sources_lets_others_run() -> None:
    """Lookups are answered by the same loop: no piece is of more than one source."""
    told = wanted(*(found(f"p{number}") for number in range(500)))
    stands = carried_out_at_once(told)

    assert 500 <= sum(1 for _ in planning({}, told, sources_max=1_000))
    assert 500 <= sum(1 for _ in planning(stands, told, sources_max=1_000))


def carried_out_at_once(told: Wanted) -> dict[SourceId, Registered]:
    """What stands once they are registered."""
    return standing(*(of(each) for each in told.found.values()))


@pytest.mark.parametrize("seed", range(300))
def test_any_picture_is_reached_from_any_registry(seed: int) -> None:
    """In one plan, or in two where a name has to be freed first; and then it is so, and others were not touched."""
    chance = random.Random(seed)
    fixed = {SourceId("f", 0): Registered(Descriptor(pod="f", aliases=tuple(chance.sample(NAMES, 1)), origin="flag"))}
    stands = fixed
    for _ in range(4):
        told = Wanted(picture(*(anything(chance) for _ in range(chance.randrange(8)))).found, {}, {}, whole=True)
        before = stands
        for _ in range(2):
            stands = carried_out(stands, plan(stands, told, sources_max=MANY).steps)
        assert [] == plan(stands, told, sources_max=MANY).steps
        assert fixed == {key: each for key, each in stands.items() if each.descriptor.origin == "flag"}
        expected = standing_after(told.found, (each.descriptor for each in fixed.values()))
        ours = {key: each for key, each in stands.items() if key not in fixed}
        assert expected.keys() == ours.keys()
        for key, each in expected.items():
            life = each.life or (before[key].life if key in before else "")
            assert (each.descriptor, each.ready, life) == (ours[key].descriptor, ours[key].ready, ours[key].life)
