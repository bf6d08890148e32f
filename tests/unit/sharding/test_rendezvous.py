"""Sharing partitions out: everybody the same, evenly, and few change hands."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.sharding.rendezvous import STEP, Share, share_out, share_out_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator

NAMES: Final = st.sets(st.text(max_size=12), min_size=1, max_size=9)
PARTITIONS: Final = st.integers(1, 70)


@given(PARTITIONS, NAMES)
def test_every_partition_has_an_owner_and_loads_are_even(partitions: int, names: set[str]) -> None:
    """They differ by one partition at most; replicas beyond the number of partitions own nothing."""
    plan = share_out(partitions, names)

    loads = Counter(dict.fromkeys(names, 0) | Counter(share.owner for share in plan))
    assert partitions == len(plan)
    assert names == set(loads)
    assert max(loads.values()) - min(loads.values()) <= 1


@given(PARTITIONS, NAMES)
def test_the_standby_is_another(partitions: int, names: set[str]) -> None:
    """And there is one as soon as there are two replicas."""
    for share in share_out(partitions, names):
        assert share.standby != share.owner
        assert (share.standby is None) == (len(names) == 1)


@given(PARTITIONS, NAMES)
def test_the_standby_owns_what_its_owner_leaves(partitions: int, names: set[str]) -> None:
    """Whoever dies: each of its partitions is planned for the one that listened along."""
    plan = share_out(partitions, names)

    for gone in names:
        after = share_out(partitions, names - {gone})
        assert [each.standby for each in plan if each.owner == gone] == [
            left.owner for left, each in zip(after, plan, strict=True) if each.owner == gone
        ]


@given(PARTITIONS, st.lists(st.text(max_size=12), max_size=9), st.randoms(use_true_random=False))
def test_only_the_set_matters(partitions: int, names: list[str], order: Random) -> None:
    """Not the order in which replicas came, nor how often one was told."""
    again = names * 2
    order.shuffle(again)

    assert share_out(partitions, names) == share_out(partitions, again)


def test_nobody_owns_anything_where_nobody_is() -> None:
    """A plan for each partition all the same."""
    assert [Share(None, None)] * 3 == share_out(3, [])


def test_one_replica_owns_all() -> None:
    """Nobody stands by."""
    assert [Share("a", None)] * 3 == share_out(3, ["a"])


def test_the_plan_of_a_version_is_that_of_the_next() -> None:
    """During a rolling upgrade both plan side by side: another ranking would move everything, and back."""
    plan = share_out(8, ["replica-0", "replica-1", "replica-2"])

    assert ["0 1", "2 1", "0 1", "2 1", "2 0", "0 1", "1 2", "1 0"] == [
        f"{share.owner} {share.standby}".replace("replica-", "") for share in plan
    ]


@pytest.mark.parametrize(
    ("partitions", "replicas", "mean", "most"),
    [(16, 2, 0, 0), (16, 3, 1, 4), (16, 5, 2, 6), (16, 8, 3, 7), (64, 4, 3, 9), (256, 8, 10, 20)],
)
def test_few_others_change_hands(partitions: int, replicas: int, mean: float, most: int) -> None:
    """When one joins (read from right to left) or leaves, over name sets drawn once and for all."""
    chance = Random(7)
    others: list[int] = []
    for _ in range(20_000 // partitions // replicas):
        names = {f"replica-{chance.randrange(10**9)}" for _ in range(replicas)}
        gone = chance.choice(sorted(names))
        before, after = share_out(partitions, names), share_out(partitions, names - {gone})
        moved = sum(was.owner not in {gone, now.owner} for was, now in zip(before, after, strict=True))
        others.append(moved)

    assert sum(others) <= mean * len(others)
    assert max(others) <= most


def test_many_partitions_and_replicas_are_shared_out_in_steps() -> None:
    """Each looks at a bounded number of replicas, and all together come to the same."""
    names = [f"replica-{number}" for number in range(50)]
    plans: list[list[Share]] = []

    def collected() -> Generator[None, None, None]:
        plans.append((yield from share_out_in_steps(1_000, names)))

    pauses = len(list(collected()))

    assert [share_out(1_000, names)] == plans
    assert pauses > 1_000 * 50 // STEP
