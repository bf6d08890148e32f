"""The same events, the same questions, the same answers: to the last number of the JSON.

Engines here have one hash for one content, as with equal `PYTHONHASHSEED`: where they have not, Dynamo loses blocks
(test_differences.py).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from indexer.hashing.chain import local_hashes
from tests.dynamo.indexers import BLOCK
from tests.support.core_events import CLEARED, removed, stored, u32
from tests.support.core_traces import recording

if TYPE_CHECKING:
    from api.demo.trace import Probe
    from tests.dynamo.conftest import Pair
    from tests.dynamo.indexers import Worker
    from tests.support.core_traces import Recording

PROBES = 60
"""Of a recording that are asked."""


def prompt(blocks: int, start: int = 0) -> list[int]:
    """Token ids, each different."""
    return list(range(start * BLOCK, (start + blocks) * BLOCK))


def chain(first: int, end: int, *, seed: int = 0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  as `stored` has them
    """Blocks `first` to `end`, not included, of `prompt`, under hashes of that seed."""
    hashes = [(seed + 1) << 32 | i for i in range(first, end)]
    parent = (seed + 1) << 32 | (first - 1) if first else None
    return stored(hashes, prompt(end - first, start=first), parent, block_size=BLOCK, **fields)


def test_who_holds_what_and_who_holds_nothing(pair: Pair) -> None:
    """Several engines, one that holds nothing, a partial block, a prompt nobody knows."""
    pair.worker(1).say(chain(0, 4)).settle()
    pair.worker(2).say(chain(0, 2)).settle()
    pair.worker(3).settle()

    answer = pair.same(prompt(6))
    assert {"1": {"0": 64}, "2": {"0": 32}} == answer["scores"]
    assert {"1": {"0": 48}, "2": {"0": 32}} == pair.same(prompt(4)[:-1])["scores"]
    assert {} == pair.same(prompt(4, start=100))["scores"]
    assert {} == pair.same([])["scores"]
    assert {} == pair.same(prompt(1)[:-1])["scores"]


def test_by_local_hashes(pair: Pair) -> None:
    """Signed, as Dynamo takes them."""
    pair.worker(1).say(chain(0, 4)).settle()
    hashes = [int.from_bytes(digest, "big", signed=True) for digest in local_hashes(u32(prompt(6)), BLOCK)]
    assert min(hashes) < 0 < max(hashes)

    assert pair.dynamo.query_by_hash(hashes) == pair.ours.query_by_hash(hashes)
    assert {"1": {"0": 64}} == pair.ours.query_by_hash(hashes)["scores"]


def test_tiers_are_cumulative(pair: Pair) -> None:
    """Blocks that continue in host memory, then on disk, on one engine; another has some in host memory alone."""
    pair.worker(1).say(chain(0, 2), chain(2, 4, medium="CPU"), chain(4, 5, medium="STORAGE")).settle()
    pair.worker(2).say(chain(0, 1, medium="CPU")).settle()

    answer = pair.same(prompt(6))
    assert (32, 64, 80) == tuple(answer["instances"]["1"][tier] for tier in ("gpu", "cpu", "disk"))
    assert {"1"} == set(answer["scores"])
    assert {"longest_matched": 16, "gpu": 0, "dp": {"0": 0}, "cpu": 16, "disk": 16} == answer["instances"]["2"]


def test_ranks_of_one_instance(pair: Pair) -> None:
    """Each counted by itself; the instance has the best of them."""
    pair.worker(1, dp_rank=0).say(chain(0, 2)).settle()
    pair.worker(1, dp_rank=1).say(chain(0, 3)).settle()

    assert {"1": {"0": 32, "1": 48}} == pair.same(prompt(4))["scores"]


def test_adapters_and_routing_groups_and_models_are_apart(pair: Pair) -> None:
    """A block of one is none of the other."""
    pair.worker(1).say(chain(0, 3, lora_name="ad", lora_id=1)).settle()
    pair.worker(2, routing_group="g").say(chain(0, 2))
    pair.worker(3, model_name="other").say(chain(0, 1)).settle()

    assert {"1": {"0": 48}} == pair.same(prompt(3), lora_name="ad")["scores"]
    assert {} == pair.same(prompt(3))["scores"]
    assert {} == pair.same(prompt(3), lora_name="another")["scores"]
    assert {"3": {"0": 16}} == pair.same(prompt(3), model_name="other")["scores"]


def test_removals_and_clears(pair: Pair) -> None:
    """From the end of a chain, and of everything."""
    worker = pair.worker(1)
    worker.say(chain(0, 4)).say(removed((1 << 32) | 3)).settle()
    assert {"1": {"0": 48}} == pair.same(prompt(4))["scores"]
    worker.say(CLEARED).settle()
    assert {} == pair.same(prompt(4))["scores"]


def test_generated_traffic(pair: Pair) -> None:
    """Engines that learn branching prompts and evict their ends, asked after each round."""
    random_ = random.Random(5)
    engines = [(worker, _Evicting()) for worker in map(pair.worker, range(1, 5))]
    matched = 0
    for _ in range(12):
        for worker, evicting in engines:
            for _ in range(4):
                worker.say(*evicting.turn(random_))
            worker.settle()
        for _ in range(10):
            matched += len(pair.same(evicting.asked(random_))["scores"])
    assert matched > 100


class _Evicting:
    """Holds documents that begin alike; what it evicts it evicts from the end, never twice held."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, ...], None] = {}

    def turn(self, random_: random.Random) -> list[dict[str, Any]]:
        path = self._path(random_)
        events: list[dict[str, Any]] = []
        for end in range(1, len(path) + 1):
            if path[:end] not in self._held:
                self._held[path[:end]] = None
                parent = self._hash(path[: end - 1]) if end > 1 else None
                events.append(stored([self._hash(path[:end])], _block(path[:end]), parent, block_size=BLOCK))
        leaves = [
            one
            for one in self._held
            if not any(len(other) > len(one) and other[: len(one)] == one for other in self._held)
        ]
        if len(self._held) > 30:
            leaf = random_.choice(leaves)
            del self._held[leaf]
            events.append(removed(self._hash(leaf)))
        return events

    def asked(self, random_: random.Random) -> list[int]:
        path = self._path(random_)
        return [token for end in range(1, len(path) + 1) for token in _block(path[:end])]

    def _path(self, random_: random.Random) -> tuple[int, ...]:
        return tuple(random_.choice((0, 0, 1)) for _ in range(random_.randint(1, 7)))

    def _hash(self, path: tuple[int, ...]) -> int:
        return int("1" + "".join(map(str, path)), 3)


def _block(path: tuple[int, ...]) -> list[int]:
    return [10_000 + 100 * len(path) + path[-1]] * BLOCK


def test_recorded_engines(pair: Pair) -> None:
    """A real engine's events, without evictions and with one hash seed: both say what the engine itself said."""
    recorded = recording("basic-sameseed")
    workers = [pair.worker(pod.pod + 1) for pod in recorded.header.pods]
    position = 0
    for probe in probes(recorded):
        position = play(recorded, workers, position, probe.n)
        answer = pair.same(list(recorded.truth.prompts[probe.prompt].tokens))
        assert list(probe.chain) == held(answer, workers)


def probes(recorded: Recording) -> list[Probe]:
    """Those that are asked."""
    return list(recorded.probes[:: max(1, len(recorded.probes) // PROBES)])


def held(answer: dict[str, Any], workers: list[Worker]) -> list[int]:
    """Tokens in GPU memory, by worker."""
    return [answer["scores"].get(str(worker.number), {}).get("0", 0) for worker in workers]


def play(recorded: Recording, workers: list[Worker], position: int, until: int) -> int:
    """Publish up to there; returns when both have applied it."""
    for message in recorded.messages[position:until]:
        workers[message.pod].engine.publish(message.payload)
    for worker in workers:
        worker.settle()
    return until
