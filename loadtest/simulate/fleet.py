"""Pods that compute prompts one after another, and what a router may know of them. Pure: a replay, no clock.

The model of an engine, on purpose no finer: prompts are computed in the order in which they come, `prefill_tokens_s`
tokens a second, of a prompt those that the pod's cache has not; at least one. Time to the first token = waiting for the
prompts before + computing one's own. Tokens that are said take `token_s` each and hinder nobody: they only keep the
request under way, which is what a router counts. A block is in the cache for the next prompt of that pod, and is
announced when its prompt is computed. All pods are alike.

What a router knows: of blocks, what was announced by then, and what it sent where itself. Of loads, what it sent; what
is over it knows at once (`scrape_s` 0: it is told), or from metrics that are read every so many seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from loadtest.simulate.caches import Cache
from loadtest.simulate.figures import summed
from loadtest.simulate.strategies import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.simulate.figures import Figures
    from loadtest.simulate.segments import Path
    from loadtest.simulate.strategies import Strategy
    from loadtest.simulate.workload import Request, Workload


@dataclass(frozen=True, slots=True)
class Fleet:
    """`blocks`: of the trace's size, in each pod's cache; None: all that there are."""

    pods: int
    blocks: int | None
    prefill_tokens_s: float = 8_000.0
    token_s: float = 0.02
    scrape_s: float = 0.0

    @property
    def cache(self) -> str:
        """In words."""
        return "unlimited" if self.blocks is None else f"{self.blocks:,} blocks"


class _Pod:
    """One engine, and what of it is known."""

    __slots__ = ("announced", "cache", "ends", "free_at", "pending", "uncached")

    def __init__(self, cache: Cache, blocks: int | None) -> None:
        self.cache = cache
        self.announced = Cache(blocks)
        self.pending: deque[tuple[float, Path]] = deque()
        """Prompts that are not announced yet, with when they will be."""
        self.free_at = 0.0
        self.ends: list[float] = []
        self.uncached = 0

    def load_at(self, at_s: float) -> int:
        """Requests under way, where ends are known up to then."""
        ends = self.ends
        while ends and ends[0] <= at_s:
            heappop(ends)
        return len(ends)

    def announced_at(self, at_s: float) -> Cache:
        """What is known of its cache."""
        while self.pending and self.pending[0][0] <= at_s:
            self.announced.use(self.pending.popleft()[1])
        return self.announced


def replay(workload: Workload, fleet: Fleet, strategy: Strategy) -> Figures:
    """Every request, once."""
    pods = _pods(fleet, strategy)
    ttfts_s: list[float] = []
    hits = blocks = 0
    for number, request in enumerate(workload.requests):
        pod = pods[_choice(number, request, pods, fleet, strategy)]
        matched = pod.cache.matched(request.path)
        pod.cache.use(request.path)
        uncached = request.tokens - min(matched * workload.block_size, max(request.tokens - 1, 0))
        done = max(pod.free_at, request.at_s) + uncached / fleet.prefill_tokens_s
        pod.free_at, pod.uncached = done, pod.uncached + uncached
        if strategy.prefix:
            pod.pending.append((done, request.path))
        if strategy.loads:
            heappush(pod.ends, done + request.output * fleet.token_s)
        ttfts_s.append(done - request.at_s)
        hits, blocks = hits + matched, blocks + request.blocks
    return summed(blocks, hits, [pod.uncached for pod in pods], ttfts_s)


def _pods(fleet: Fleet, strategy: Strategy) -> Sequence[_Pod]:
    if strategy.choose:
        return [_Pod(Cache(fleet.blocks), fleet.blocks) for _ in range(fleet.pods)]
    pool = Cache(None if fleet.blocks is None else fleet.blocks * fleet.pods)
    return [_Pod(pool, 0) for _ in range(fleet.pods)]


def _choice(number: int, request: Request, pods: Sequence[_Pod], fleet: Fleet, strategy: Strategy) -> int:
    if strategy.choose is None:
        return min(range(len(pods)), key=lambda place: pods[place].free_at)
    now = request.at_s
    loads: Sequence[int] = ()
    matched: Sequence[int] = ()
    expected: Sequence[int] = ()
    if strategy.loads:
        known = now - now % fleet.scrape_s if fleet.scrape_s else now
        loads = [pod.load_at(known) for pod in pods]
    if strategy.prefix:
        matched = [pod.announced_at(now).matched(request.path) for pod in pods]
        expected = [
            pod.cache.matched(request.path) if pod.pending else held for pod, held in zip(pods, matched, strict=True)
        ]
    return strategy.choose(Seen(now, number, request.session, request.blocks, request.path, loads, matched, expected))
