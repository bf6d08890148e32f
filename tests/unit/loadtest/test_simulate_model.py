"""Prompts as runs, caches and queues: worked out by hand, and beside caches that know nothing but single blocks."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.simulate.caches import Cache
from loadtest.simulate.fleet import Fleet, replay
from loadtest.simulate.segments import Segments
from loadtest.simulate.strategies import NAMES, Seen, Strategy, strategy
from loadtest.simulate.workload import Asked, Trace, Workload

BLOCK = 10


def asked(at_s: float, ids: list[int], *, output: int = 0, session: int = 0) -> Asked:
    """A prompt of whole blocks and one token more."""
    return Asked(at_s, 0.0, len(ids) * BLOCK + 1, output, session, np.array(ids, np.int64))


def workload(*requests: Asked) -> Workload:
    """As they are."""
    return Trace("made", BLOCK, requests).stretched()


def paths(*prompts: list[int]) -> list[list[int]]:
    """The lengths of each one's runs."""
    segments = Segments()
    added = [segments.add(np.array(ids, np.int64)) for ids in prompts]
    return [[length for _, length in segments.path(each)] for each in added]


def in_turns(pods: int) -> Strategy:
    """Round robin."""
    return strategy("round robin", pods)


def test_a_conversation_is_one_run_however_often_it_goes_on() -> None:
    """Each prompt has a part of it."""
    assert [[2], [3], [5]] == paths([1, 2], [1, 2, 3], [1, 2, 3, 4, 5])


def test_a_run_is_parted_where_prompts_part() -> None:
    """Of the earlier one, too."""
    assert [[2, 2], [2, 1]] == paths([1, 2, 3, 4], [1, 2, 9])


def test_a_run_is_parted_where_a_shorter_prompt_comes_later() -> None:
    """Only the part that it has is used again; what went on before ends where it did."""
    assert [[1, 1], [1, 2], [1], [1, 2]] == paths([1, 2], [1, 2, 3], [1], [1, 2, 3])


def test_scopes_share_nothing() -> None:
    """Whatever their ids."""
    segments = Segments()
    first, second, third = (segments.add(np.array([1, 2]), scope) for scope in ("a", "b", "a"))

    assert segments.path(first) == segments.path(third) != segments.path(second)


def test_a_prompt_without_a_whole_block_has_no_runs() -> None:
    """Before any other, and after one."""
    assert [[], [2], []] == paths([], [1, 2], [])


def test_the_deepest_block_of_what_was_used_longest_ago_goes_first() -> None:
    """So what is held is held from the beginning on."""
    cache = Cache(5)
    cache.use(((0, 3),))
    cache.use(((1, 4),))

    assert [1, 4] == [cache.matched(((0, 3),)), cache.matched(((1, 4),))]
    cache.use(((0, 2),))
    assert [2, 3] == [cache.matched(((0, 3),)), cache.matched(((1, 4),))]


def test_of_a_prompt_longer_than_the_cache_its_beginning_stays() -> None:
    """And nothing else."""
    cache = Cache(3)
    cache.use(((7, 1),))
    cache.use(((0, 2), (1, 4)))

    assert (3, 3, 0) == (cache.used, cache.matched(((0, 2), (1, 4))), cache.matched(((7, 1),)))


def test_prompts_wait_for_those_before_on_their_pod() -> None:
    """At 10 tokens a second: 21 take 2.1 s; then the whole of it is there but for its last token, 0.1 s."""
    figures = replay(workload(asked(0, [1, 2]), asked(1, [1, 2])), Fleet(1, None, 10.0), in_turns(1))

    assert (4, 2, (22,)) == (figures.blocks, figures.hit_blocks, figures.uncached)
    assert (2.1 + (2.1 + 0.1 - 1)) / 2 == pytest.approx(figures.ttft_mean_s)
    assert (1.2, 2.1, 2.1) == pytest.approx((figures.ttft_p50_s, figures.ttft_p90_s, figures.ttft_p99_s))


def test_the_last_token_is_always_computed() -> None:
    """Also of a prompt that ends with a block."""
    whole = Asked(0, 0.0, 2 * BLOCK, 0, 0, np.array([1, 2], np.int64))

    assert (21,) == replay(workload(whole, whole), Fleet(1, None), in_turns(1)).uncached


def test_imbalance_is_the_most_over_the_mean() -> None:
    """One of two pods computes three of four blocks, and a token each."""
    figures = replay(workload(asked(0, [1, 2, 3]), asked(0, [4])), Fleet(2, None), in_turns(2))

    assert (31, 11) == figures.uncached
    assert 31 / 21 == pytest.approx(figures.imbalance)


def watched(*requests: Asked, scrape_s: float = 0.0) -> list[Seen]:
    """What is seen of two pods of 10 tokens a second; the first request goes to one of them, others to the other."""
    seen: list[Seen] = []

    def choose(each: Seen) -> int:
        seen.append(each)
        return min(each.number, 1)

    replay(
        workload(*requests), Fleet(2, None, 10.0, 0.1, scrape_s), Strategy("watched", choose, prefix=True, loads=True)
    )
    return seen


@pytest.mark.parametrize(("scrape_s", "loads"), [(0.0, [0, 1, 0, 0]), (2.0, [0, 1, 1, 0])])
def test_loads_are_requests_under_way_as_far_as_that_is_known(scrape_s: float, loads: list[int]) -> None:
    """1.1 s to compute and 0.4 s for 4 tokens: at 1.6 s it is over, which metrics that are read at 2 s tell later."""
    requests = [asked(at_s, [number], output=4) for number, at_s in enumerate((0.0, 1.0, 1.6, 2.1))]

    assert loads == [seen.loads[0] for seen in watched(*requests, scrape_s=scrape_s)]


def test_blocks_are_announced_when_they_are_computed_and_expected_before() -> None:
    """Two blocks and a token take 2.1 s."""
    seen = watched(*(asked(at_s, [1, 2]) for at_s in (0.0, 1.0, 2.2)))

    assert [0, 0, 2] == [each.matched[0] for each in seen]
    assert [0, 2, 2] == [each.expected[0] for each in seen]


class Blocks:
    """A cache that knows nothing but blocks, each by its prefix: what `Cache` is measured against."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.held: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def use(self, prompt: tuple[int, ...]) -> int:
        """How many are held from the first one on; then all are used, the deepest first."""
        prefixes = [prompt[: end + 1] for end in range(len(prompt))]
        matched = next((place for place, prefix in enumerate(prefixes) if prefix not in self.held), len(prompt))
        for prefix in reversed(prefixes):
            self.held[prefix] = None
            self.held.move_to_end(prefix)
        while self.limit is not None and len(self.held) > self.limit:
            self.held.popitem(last=False)
        return matched


PROMPTS = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=7), st.integers(0, 1)), min_size=1, max_size=30)


@given(prompts=PROMPTS, limit=st.one_of(st.none(), st.integers(0, 12)))
def test_runs_are_as_good_as_blocks(prompts: list[tuple[list[int], int]], limit: int | None) -> None:
    """Whatever is asked of whom: each hits as many blocks, and holds as many, as in a cache of single blocks."""
    segments = Segments()
    added = [segments.add(np.array(ids, np.int64)) for ids, _ in prompts]
    caches, blocks = [Cache(limit), Cache(limit)], [Blocks(limit), Blocks(limit)]
    for prompt, (ids, pod) in zip(added, prompts, strict=True):
        path = segments.path(prompt)
        assert len(ids) == sum(length for _, length in path)
        matched = caches[pod].matched(path)
        caches[pod].use(path)
        assert blocks[pod].use(tuple(ids)) == matched
        assert len(blocks[pod].held) == caches[pod].used


@given(prompts=PROMPTS, limit=st.one_of(st.none(), st.integers(1, 12)), name=st.sampled_from(NAMES))
def test_every_strategy_accounts_for_every_block(
    prompts: list[tuple[list[int], int]], limit: int | None, name: str
) -> None:
    """Each block is a hit or computed, nothing is hit twice over, and nobody waits less than it takes to compute."""
    requests = [asked(float(gap + place), ids) for place, (ids, gap) in enumerate(prompts)]
    figures = replay(workload(*requests), Fleet(3, limit, 10.0), strategy(name, 3))
    blocks = sum(len(ids) for ids, _ in prompts)

    assert blocks == figures.blocks
    assert BLOCK * (blocks - figures.hit_blocks) + len(prompts) == sum(figures.uncached)
    assert 1.0 <= figures.imbalance <= 3.0
    assert figures.ttft_mean_s * len(prompts) >= sum(figures.uncached) / 10.0 - 1e-6
    pooled = Blocks(None)
    assert figures.hit_blocks <= sum(pooled.use(tuple(ids)) for ids, _ in prompts)
