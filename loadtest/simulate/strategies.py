"""Who gets a request: what recommendations do, and what they are measured against. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from indexer.model import SourceId
from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from indexer.recommend.hot import HotPrefixes
from indexer.recommend.ranking import Columns, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from loadtest.simulate.segments import Path


class Seen(NamedTuple):
    """What a router knows when a request comes, by pod.

    `loads`: requests under way there. `matched`: blocks of the prompt that the engine has announced; `expected`: those
    that it will have once it has done what was sent to it, which may be fewer: what goes for it nobody can know. Empty
    where the strategy does not ask for them.
    """

    at_s: float
    number: int
    session: int
    blocks: int
    path: Path
    loads: Sequence[int]
    matched: Sequence[int]
    expected: Sequence[int]


class Strategy(NamedTuple):
    """`choose` gives the pod. None: no router at all, but one cache for all pods, and the pod that is free first."""

    name: str
    choose: Callable[[Seen], int] | None
    prefix: bool = False
    loads: bool = False


def blended(weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> Strategy:
    """What is recommended where loads are known."""

    def choose(seen: Seen) -> int:
        known = _known(seen, requests=np.array(seen.loads, np.float64))
        return _most(sums(known, weights, floor).total.tolist(), seen, _parting(seen))

    return Strategy("blend", choose, prefix=True, loads=True)


def without_loads(pods: int, weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> Strategy:
    """What is recommended where nothing is known of loads: those with too many requests of a prefix are passed over."""
    hot = HotPrefixes(lambda _limit: None)
    names = [SourceId(str(place), 0) for place in range(pods)]

    def choose(seen: Seen) -> int:
        prefix = _common(seen)
        crowded = hot.crowded(prefix, pods, floor, seen.at_s)
        known = _known(seen, crowded=np.array([name in crowded for name in names], np.bool_) if crowded else None)
        place = _most(sums(known, weights, floor).total.tolist(), seen)
        hot.note(prefix, names[place], seen.at_s)
        return place

    return Strategy("blend, no loads", choose, prefix=True)


def longest_match() -> Strategy:
    """The most of the prompt that is announced; loads count for nothing."""
    return Strategy("prefix", lambda seen: _most(seen.matched, seen), prefix=True)


def least_load() -> Strategy:
    """The fewest requests under way; prefixes count for nothing."""
    return Strategy("load", lambda seen: _most([-load for load in seen.loads], seen), loads=True)


def round_robin(pods: int) -> Strategy:
    """In turns."""
    return Strategy("round robin", lambda seen: seen.number % pods)


def session_hash(pods: int) -> Strategy:
    """Each session where its hash says, for good."""
    return Strategy("session", lambda seen: xxh3_64_intdigest(b"session", seen.session) % pods)


def ideal() -> Strategy:
    """As if what any pod has were in all of them, and who is free first were known."""
    return Strategy("ideal", None)


def _known(
    seen: Seen, *, requests: NDArray[np.float64] | None = None, crowded: NDArray[np.bool_] | None = None
) -> Columns:
    """With the shares of the prompt that each pod has, and that are on their way there beyond that."""
    blocks, matched = max(seen.blocks, 1), np.array(seen.matched, np.float64)
    expected = np.maximum(np.array(seen.expected, np.float64) - matched, 0.0) / blocks
    return Columns(matched / blocks, expected, requests, crowded=crowded)


def _most(values: Sequence[float], seen: Seen, seed: int | None = None) -> int:
    """Equals are ordered by rendezvous of that seed and the pod.

    Without one as lookups order them, by the last block that anybody has. So prompts that have the same blocks in
    common go to the same one of those that have them; others are spread.
    """
    most = max(values)
    places = [place for place, value in enumerate(values) if value == most]
    if len(places) == 1:
        return places[0]
    if seed is None:
        seed = _common(seen)
    return max(places, key=lambda place: xxh3_64_intdigest(place.to_bytes(4, "little"), seed))


def _common(seen: Seen) -> int:
    """Stands for all of the prompt that anybody has."""
    depth = max(seen.matched, default=0)
    return _block(seen.path, depth) if depth else seen.number


def _parting(seen: Seen) -> int:
    """Stands for that and the block behind it, as recommendations order equals where loads count."""
    return _block(seen.path, min(max(seen.matched, default=0) + 1, seen.blocks)) if seen.blocks else seen.number


def _block(path: Path, depth: int) -> int:
    for run, length in path:
        if depth <= length:
            return xxh3_64_intdigest(run.to_bytes(8, "little"), depth)
        depth -= length
    raise AssertionError("more is matched than there is")


NAMES: Final = ("round robin", "session", "load", "prefix", "blend, no loads", "blend", "ideal")


def strategy(name: str, pods: int, weights: BlendWeights = BLEND, floor: float = LOAD_FLOOR) -> Strategy:
    """By its name. Raises KeyError where there is none of it."""
    made: dict[str, Callable[[], Strategy]] = {
        "round robin": partial(round_robin, pods),
        "session": partial(session_hash, pods),
        "load": least_load,
        "prefix": longest_match,
        "blend, no loads": partial(without_loads, pods, weights, floor),
        "blend": partial(blended, weights, floor),
        "ideal": ideal,
    }
    return made[name]()
