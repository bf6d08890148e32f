"""A service in Redis mode whose store a test wounds: engines that go on, an owner, a follower, and the truth.

The truth is what each engine held after each of its batches. An answer names the batch at which it is true, so every
answer can be judged, also those given while the store is away.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from api.demo.engine import EngineSimulator
from indexer.model import SourceId
from indexer.store.layout import PartitionKeys, is_without_ttl, partition_of, tags
from tests.support.core_events import BLOCK, TS, payload, prompt, removed, stored
from tests.support.core_service import RunningService
from tests.support.redis_servers import Store, lasting_keys, own_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from schemas.lookup import PodEntry
    from tests.support.core import Answer
    from tests.support.redis_servers import Server

PODS: Final = ("pod-a", "pod-b")
_CLOCK: Final = itertools.count(TS, 0.001)
"""Of all engines: no two batches have one stamp, and those of an engine's next process are later."""
BLOCKS: Final = 4
"""Of a prompt."""
PARTITIONS: Final = 4
TIMES: Final = {
    "redis__lease_s": "1.5",
    "redis__heartbeat_s": "0.25",
    "redis__partitions": str(PARTITIONS),
    "redis__timeout_ms": "300",
    "staleness__stale_after_s": "2",
    "staleness__score_ttl_s": "60",
    "staleness__retain_s": "600",
    "events__heartbeat_ms": "200",
}
SAMPLE: Final = 24
"""Prompts asked for at a time, about."""
DEADLINE_MS: Final = 2_000
"""Of each lookup, whatever the store does."""
_FORBIDDEN: Final = ("keys", "scan", "del", "flushall", "flushdb", "randomkey")


class Engine:
    """One engine, and what it held after each batch: prompt → tokens from its start."""

    def __init__(self, pod: str, *, replay: bool) -> None:
        self.pod = pod
        self._simulator = EngineSimulator(replay_endpoint="tcp://127.0.0.1:0" if replay else None)
        self._simulator.start()
        self.history: list[dict[int, int]] = []

    @property
    def flag(self) -> str:
        """Value of `--source`."""
        replay = self._simulator.replay_endpoint
        return f"{self.pod}={self._simulator.endpoint}" + (f",replay={replay}" if replay else "")

    @property
    def sequence(self) -> int:
        """Of its last batch."""
        return len(self.history) - 1

    def say(self, comes: Iterable[int], goes: Iterable[int] = ()) -> None:
        """One batch: whole prompts come, of others the last block goes."""
        held = dict(self.history[-1]) if self.history else {}
        events: list[dict[str, Any]] = []
        for number in comes:
            events.append(stored(hashes_of(number), tokens_of(number)))
            held[number] = BLOCKS * BLOCK
        for number in goes:
            events.append(removed(hashes_of(number)[held[number] // BLOCK - 1]))
            held[number] -= BLOCK
        self.history.append(held)
        self._simulator.publish(payload(*events, ts=next(_CLOCK)))

    @property
    def endpoint(self) -> str:
        """Where it publishes."""
        return self._simulator.endpoint

    @property
    def subscribers(self) -> int:
        """How many listen to it."""
        return self._simulator.subscribers

    def wait_subscribers(self, count: int = 1) -> None:
        """Until somebody listens, or so many."""
        self._simulator.wait_subscribers(count)

    def restart(self) -> None:
        """Another process on the same ports, with nothing in its cache and numbers from 0."""
        self._simulator.restart()
        self.history = []

    def close(self) -> None:
        """End it."""
        self._simulator.close()


def tokens_of(number: int) -> list[int]:
    """A prompt's."""
    return prompt(BLOCKS, number * 100)


def hashes_of(number: int) -> list[int]:
    """The engines' own hashes of a prompt's blocks."""
    return [number * BLOCKS + block + 1 for block in range(BLOCKS)]


class Replica(RunningService):
    """A process of the service."""

    name: str

    def judge(self, number: int, truth: dict[str, Engine]) -> dict[str, PodEntry]:
        """Ask for a prompt. What is called live and exact is the truth at the batch that it names. By pod."""
        answer: Answer = self.ask(tokens_of(number), timeout_ms=DEADLINE_MS)
        entries = {entry.pod: entry for entry in answer.pods}
        for pod, entry in entries.items():
            assert entry.reason != "deadline", entry
            if (entry.state, entry.bound) == ("live", "exact"):
                held = {} if entry.sequence is None else truth[pod].history[entry.sequence]
                assert entry.matched_tokens == held.get(number, 0), (self.name, number, entry)
        counted = [entry for entry in entries.values() if entry.state != "down"]  # which is listed with 0
        assert answer.state != "exact" or all(standing_of(entry) == ("live", "exact") for entry in counted)
        return entries

    def wait_trouble(self, kind: str = "") -> None:
        """Until it has noticed that the store does not answer; with a kind, that a call failed so."""
        if kind:
            sample = f'kvindexer_redis_failures_total{{kind="{kind}"}}'
            self.wait_for(lambda: self.metrics().get(sample, 0.0) > 0, f"a call to fail: {kind}")
        else:
            self.wait_for(lambda: self.metrics()["kvindexer_redis_up"] == 0.0, "the store to be missed")


def standing_of(entry: PodEntry) -> tuple[str, str]:
    """State and bound."""
    return entry.state, entry.bound


class Truth:
    """Engines that tell the same prompts, and what they hold. Replicas are judged by it."""

    def __init__(self, pods: Iterable[str], *, replay: bool) -> None:
        self._stack = contextlib.ExitStack()
        self.engines = {pod: Engine(pod, replay=replay) for pod in pods}
        for engine in self.engines.values():
            self._stack.callback(engine.close)
        self._prompts = 0

    @property
    def flags(self) -> list[str]:
        """Values of `--source` for all engines."""
        return [engine.flag for engine in self.engines.values()]

    def publish(self, batches: int = 1, *, prompts: int = 1) -> None:
        """Batches of every engine, with so many new prompts each; now and then the last block of one goes."""
        for _ in range(batches):
            fresh = range(self._prompts, self._prompts + prompts)
            self._prompts += prompts
            for place, engine in enumerate(self.engines.values()):
                goes = [number for number in fresh if number % 3 == place]
                engine.say(fresh, goes)

    def sample(self) -> list[int]:
        """Prompts to ask for: all, or of many some that are spread evenly, the newest among them."""
        return list(range(self._prompts - 1, -1, -max(1, self._prompts // SAMPLE)))

    def ask_all(self, replica: Replica) -> list[dict[str, PodEntry]]:
        """Prompts, judged."""
        return [replica.judge(number, self.engines) for number in self.sample()]

    def is_right(self, replica: Replica, number: int) -> bool:
        """Whether it knows this prompt as the engines hold it now, and says so without a reservation."""
        entries = replica.judge(number, self.engines)
        return all(
            pod in entries and (*standing_of(entries[pod]), entries[pod].sequence) == ("live", "exact", engine.sequence)
            for pod, engine in self.engines.items()
        )

    def all_right(self, replica: Replica) -> bool:
        """Whether it answers every prompt as the engines hold it, `live` and `exact`."""
        return all(self.is_right(replica, number) for number in self.sample())


class Trouble(Truth):
    """Engines, `owner` and `follower`. A context manager: both processes end cleanly unless they were killed."""

    def __init__(self, url: str, *, replay: bool = True, follower: bool = True, **settings: str) -> None:
        super().__init__(PODS, replay=replay)
        self.url = url
        self._settings = {**TIMES, **settings, "redis__url": url}
        try:
            self.owner = self.start_owner()
            self.follower = self.start_follower() if follower else None
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *told: object) -> None:
        self._stack.__exit__(*told)  # type: ignore[arg-type]

    def start_owner(self) -> Replica:
        """Another process that collects, of the same name as the one before."""
        self.owner = self._start(self.flags, "owner")
        return self.owner

    def start_follower(self, name: str = "follower") -> Replica:
        """A process that only answers."""
        return self._start([], name, roles="lookup")

    def _start(self, flags: list[str], name: str, **more: str) -> Replica:
        replica = self._stack.enter_context(Replica(flags, **self._settings, **more, redis__replica=name))
        replica.name = name
        return replica

    @property
    def replicas(self) -> list[Replica]:
        """Those that run."""
        return [self.owner, *([] if self.follower is None else [self.follower])]

    def wait_right(self, *replicas: Replica) -> None:
        """Until the replicas (all that run) answer every prompt as the engines hold it, `live` and `exact`."""
        for replica in replicas or self.replicas:
            replica.wait_for(partial(self.all_right, replica), "all to be right")

    def wait_applied(self) -> None:
        """Until the owner has all that the engines said; it asks nobody for that."""
        self.owner.wait_for(
            lambda: all(self.owner.sources()[pod]["sequence"] == e.sequence for pod, e in self.engines.items()),
            "the owner to apply what came",
        )
        for number in self.sample():
            entries = self.owner.judge(number, self.engines)
            held = {pod: engine.history[-1].get(number, 0) for pod, engine in self.engines.items()}
            assert held == {pod: entry.matched_tokens for pod, entry in entries.items()}, (number, entries)

    def generations(self) -> list[dict[str, str]]:
        """Of every source, by replica."""
        return [{pod: source["generation"] for pod, source in replica.sources().items()} for replica in self.replicas]

    def begin(self, batches: int = 6) -> list[dict[str, str]]:
        """Some batches, known to all. Returns the generations, which no trouble of the store may raise."""
        for engine in self.engines.values():
            engine.wait_subscribers()
        self.publish(batches)
        self.wait_right()
        return self.generations()

    def heal(self, generations: list[dict[str, str]]) -> None:
        """The store is well again: all is right by itself, also what comes now, and no source began anew."""
        self.wait_right()
        self.publish(2)
        self.wait_right()
        assert generations == self.generations()
        for source in self.owner.sources().values():
            assert (0, 0) == (source["counters"].get("restarts", 0), source["counters"].get("gaps", 0)), source


def keys_of(pod: str) -> PartitionKeys:
    """Of the partition in which a pod's rank 0 lies."""
    return PartitionKeys("kvi", tags(PARTITIONS)[partition_of(SourceId(pod, 0), PARTITIONS)])


@contextlib.contextmanager
def in_trouble(
    folder: Path, *options: str, by_test: Sequence[str] = (), **settings: str
) -> Iterator[tuple[Server, Trouble]]:
    """A server of the test's own and all that stands on it. `by_test`: commands that the test itself gives."""
    with own_server(folder, *options) as server:
        with Trouble(server.url, **settings) as trouble:
            yield server, trouble
        assert_clean(server, by_test)


def assert_clean(server: Server, by_test: Sequence[str] = ()) -> None:
    """What the service did since the server started, and what it left: no forbidden command, no key that lasts.

    To be called once a test is over, before it looks at keys itself.
    """
    with server.client() as look:
        told: Any = look.info("commandstats")
    used = {name for name in _FORBIDDEN if f"cmdstat_{name}" in told}
    assert set() == used - set(by_test), told.keys()
    store = Store("valkey", [server])
    try:
        assert [] == lasting_keys(store, is_without_ttl)
    finally:
        store.look.close()


def stand_still(seconds: float) -> None:
    """Where the length of a fault is what is tried."""
    time.sleep(seconds)
