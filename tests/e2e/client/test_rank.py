"""The order that `rank` gives: by score alone, the caller's where scores are equal; and why it is that, where it is."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kvindexer_client import REST_AFTER, AsyncClient, Client, Ranking
from tests.support.served_fleet import MODEL, PODS, ServedFleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG_S = 20.0
BLOCK = 16
STRANGER = "10.0.0.9:8000"


def _sync(url: str, pods: Any, *asked: Any, **options: Any) -> Ranking:  # noqa: ANN401  as a caller may give them
    with Client(url) as index:
        return index.rank(pods, *asked, timeout_s=LONG_S, **options)


def _async(url: str, pods: Any, *asked: Any, **options: Any) -> Ranking:  # noqa: ANN401  as above
    async def ask() -> Ranking:
        async with AsyncClient(url) as index:
            return await index.rank(pods, *asked, timeout_s=LONG_S, **options)

    return asyncio.run(ask())


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def rank(request: pytest.FixtureRequest) -> Callable[..., Ranking]:
    """Either client."""
    asks: Callable[..., Ranking] = request.param
    return asks


def _sharing(fleet: ServedFleet, count: int) -> Iterator[list[int]]:
    """Prompts that begin as most of the recorded ones do, and go on each in its own way."""
    heads = Counter(tuple(prompt.tokens[: 2 * BLOCK]) for prompt in fleet.truth.prompts)
    ((head, _),) = heads.most_common(1)
    yield from ([*head, *(100_000 + number * 7 + n for n in range(BLOCK))] for number in range(count))


def test_equal_matches_stay_in_the_callers_order(fleet: ServedFleet) -> None:
    """Whichever that is, for every prompt: else all that share a prefix went to the same one, whatever its load."""
    with Client(fleet.url, timeout_s=LONG_S) as index:
        for prompt in _sharing(fleet, 20):
            scores = {entry.pod: entry.score for entry in index.lookup(prompt, model=MODEL).pods}
            assert len(set(scores.values())) < len(PODS), "nothing is equal: this tries nothing"
            assert max(scores.values()) > 0
            scores[STRANGER] = 0.0
            for pods in itertools.permutations((STRANGER, *PODS)):
                ranked = index.rank(pods, prompt, model=MODEL, timeout_s=LONG_S)
                assert (None, sorted(pods, key=lambda pod: -scores[pod])) == (ranked.failure, ranked.pods)


def test_a_longer_match_comes_before_the_callers_order(fleet: ServedFleet) -> None:
    """Whichever that is."""
    unequal = 0
    with Client(fleet.url, timeout_s=LONG_S) as index:
        for tokens, _ in fleet.probed(20):
            scores = {entry.pod: entry.score for entry in index.lookup(tokens, model=MODEL).pods}
            unequal += len(set(scores.values())) > 1
            for pods in (PODS, PODS[::-1]):
                ranked = index.rank(pods, tokens, model=MODEL, group="rank", timeout_s=LONG_S)
                assert sorted(pods, key=lambda pod: -scores[pod]) == ranked.pods
    assert unequal


@pytest.mark.parametrize(
    ("given", "order", "told"),
    [
        ("10.0.0.1:8000", ["10.0.0.1:8000"], "pods: a list of names wanted, got one name"),
        (b"ab", [b"ab"], "pods: a list of names wanted, got one name"),
        (["a", 7], ["a", 7], "pods: names wanted, got int"),
        (["a", ["b"]], ["a", ["b"]], "pods: names wanted, got list"),
        (["a", None], ["a", None], "pods: names wanted, got NoneType"),
        (7, [], "pods: a list of names wanted, got int"),
        (None, [], "pods: a list of names wanted, got NoneType"),
        ([], [], None),
        ("", [""], "pods: a list of names wanted, got one name"),
    ],
    ids=repr,
)
def test_pods_that_are_no_list_of_names(
    fleet: ServedFleet,
    rank: Callable[..., Ranking],
    given: Any,  # noqa: ANN401  anything
    order: list[Any],
    told: str | None,
) -> None:
    """Come back as they are, with what is wrong; a name is not taken apart."""
    assert Ranking(order, None, told) == rank(fleet.url, given, [1, 2, 3])


def test_pods_may_come_in_any_kind_of_list(fleet: ServedFleet, rank: Callable[..., Ranking]) -> None:
    """Also in one that can be read once."""
    for given in (tuple(PODS), iter(PODS), dict.fromkeys(PODS), (pod for pod in PODS)):
        ranked = rank(fleet.url, given, next(_sharing(fleet, 1)), model=MODEL)
        assert (None, set(PODS)) == (ranked.failure, set(ranked.pods))


def test_an_index_that_knows_nothing_of_it_says_so(fleet: ServedFleet, rank: Callable[..., Ranking]) -> None:
    """A mistyped model with the one that may be meant, pods that nobody knows; the order is the caller's."""
    order = [PODS[2], PODS[0]]
    ranked = rank(fleet.url, order, [1, 2, 3], model="tiny-lama")
    assert (order, "no_signal") == (ranked.pods, ranked.state)
    assert f"no_signal: model_unknown, nearest known model: {MODEL}" == ranked.failure
    assert ranked.answer is not None

    ranked = rank(fleet.url, [STRANGER], [1, 2, 3], model=MODEL)
    assert ([STRANGER], "no_signal: pod_unknown") == (ranked.pods, ranked.failure)


def test_a_prompt_that_nobody_holds_is_no_failure(fleet: ServedFleet, rank: Callable[..., Ranking]) -> None:
    """That is an answer."""
    ranked = rank(fleet.url, PODS[::-1], list(range(100)), model=MODEL)

    assert (PODS[::-1], "exact", None) == (ranked.pods, ranked.state, ranked.failure)


def test_while_the_index_rests_its_last_failure_is_told(fleet: ServedFleet) -> None:
    """A wrong path in the URL answers, and must not be told as if nobody did."""
    url = f"{fleet.url}/v0"

    async def ask() -> list[str | None]:
        async with AsyncClient(url) as index:
            return [(await index.rank(PODS, [1], timeout_s=LONG_S)).failure for _ in range(REST_AFTER + 2)]

    with Client(url) as index:
        told = [index.rank(PODS, [1], timeout_s=LONG_S).failure for _ in range(REST_AFTER + 2)]
    for failures in (told, asyncio.run(ask())):
        why = failures[0]
        assert why is not None
        assert "404" in why
        assert [why] * REST_AFTER == failures[:REST_AFTER]
        assert [f"the index is left alone for a while, after: {why}"] * 2 == failures[REST_AFTER:]


def test_with_loads_the_order_is_the_recommended_one(fleet: ServedFleet, rank: Callable[..., Ranking]) -> None:
    """Who is busiest comes behind the idle where nobody holds anything; who holds a prompt whole stays first."""
    busy = {pod: {"running": 10 * number} for number, pod in enumerate(reversed(PODS))}
    unknown = rank(fleet.url, PODS, [7] * 64, model=MODEL, loads=busy)
    tokens, cached = next((tokens, cached) for tokens, cached in fleet.probed(20) if any(cached.values()))
    held = rank(fleet.url, PODS, tokens, model=MODEL, loads={pod: {"waiting": 1} for pod in PODS})

    assert (None, list(reversed(PODS))) == (unknown.failure, unknown.pods)
    assert unknown.recommendation is not None
    assert "request" == unknown.recommendation.loads
    assert cached[held.pods[0]] == max(cached.values())
