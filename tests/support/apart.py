"""A deployment of which every part has an address of its own (tests/support/netns): replicas, a store, engines.

Engines speak on their own, at random, and restart when told to; a naive model remembers what each held after each of
its batches. Every replica is asked all the time, at a Unix socket that no cut network reaches; each answer is judged.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import httpx
from redis import Redis

from indexer.model import SourceId
from indexer.store.layout import partition_of
from tests.support.core_service import DEADLINE_S
from tests.support.core_streams import Contents
from tests.support.deployment import one_pod_each
from tests.support.in_trouble import DEADLINE_MS, assert_clean
from tests.support.judge import Judge
from tests.support.many import NAMES, Cluster, Member
from tests.support.netns import Net
from tests.support.redis_servers import Server, binaries
from tests.support.speakers import Speaker
from tests.support.speaking_engine import QUESTIONS, TAIL, SpeakingEngine, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from schemas.lookup import PodEntry
    from tests.support.core_model import Expected
    from tests.support.netns import Place

PARTITIONS: Final = 3
"""One for each replica, and in each an engine that replays, and one that does not."""
LAYOUTS: Final = ("one group", "windows", "two full groups")
RESTART_S: Final = 1.0
TIMES: Final = {
    "redis__lease_s": "3",
    "redis__heartbeat_s": "0.3",
    "redis__min_hold_s": "0.5",
    "redis__timeout_ms": "300",
    "events__heartbeat_ms": "300",
    "events__probe_interval_s": "1",
    "events__min_engine_restart_s": str(RESTART_S),
    "staleness__stale_after_s": "3",
    "staleness__score_ttl_s": "120",
    "staleness__retain_s": "600",
}
"""Short ones, else everything is set as it is by itself."""
DOWN_S: Final = 1.5 * RESTART_S
"""An engine's process that ends is back after this, no faster: what the service relies on where nothing replays."""
SAYS_S: Final = 0.1
ASKS_S: Final = 0.1
"""Pauses between two batches, of any engines, and between two questions to one replica."""
SAYS_AGAIN_S: Final = 3.0
"""Longer than it takes to look at all answers."""


class FarServer(Server):
    """A store in a place. The test looks at it by its Unix socket."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        super().__init__(binaries()["valkey"], folder, "--bind", place.address, "127.0.0.1", "--protected-mode", "no")

    @property
    def url(self) -> str:
        """As replicas reach it."""
        return f"redis://{self.place.address}:{self.port}"

    def start(self) -> None:
        """In its place."""
        with self.place.inside():
            super().start()

    def client(self) -> Redis:
        """Whatever becomes of its network."""
        return Redis(unix_socket_path=str(self.folder / "s"), protocol=2)


class FarReplica(Member):
    """A replica in a place, asked at its Unix socket."""

    def __init__(self, place: Place, path: Path, flags: Sequence[str], **settings: str) -> None:
        self.place = place
        self._path = path
        with place.inside():
            super().__init__(flags, server__uds=str(path), **settings)

    def _open_client(self, headers: dict[str, str]) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self._path))
        return httpx.Client(transport=transport, base_url="http://replica", timeout=DEADLINE_S, headers=headers)


class FarCluster(Cluster):
    """Replicas in places of their own; their ways to the store are what the network makes of them."""

    def __init__(self, places: dict[str, Place], store: FarServer, flags: Sequence[str], folder: Path) -> None:
        self._places, self._store, self._folder = places, store, folder
        super().__init__(0, flags, partitions=PARTITIONS, names=list(places), **TIMES)

    def _lay_way(self, name: str) -> None:
        """It is there."""

    def _start(self, name: str, flags: Sequence[str] | None, settings: dict[str, str]) -> Member:
        environment = {**self._settings, **settings, "redis__url": self._store.url, "redis__replica": name}
        path = self._folder / f"{name}.sock"
        member = FarReplica(self._places[name], path, self._flags if flags is None else flags, **environment)
        member.name = name
        return member


class Repeated:
    """A thread that does something again and again, until the block ends. `check` raises what it met."""

    def __init__(self, name: str, pause_s: float, what: Callable[[], None]) -> None:
        self._pause_s, self._what = pause_s, what
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self.turns = 0
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    def check(self) -> None:
        """Raise what it raised."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause_s):
                self._what()
                self.turns += 1
        except BaseException as error:  # noqa: BLE001  raised again in the test's thread
            self.error = error


class Told(NamedTuple):
    """Of one source, what every replica must say alike."""

    state: str
    bound: str
    generation: str | None
    sequence: int | None
    entry: Expected


class Apart:
    """A context manager: replicas end in order, then everything else. Askers run from `begin` on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.chance = random.Random()
        self._began_with: dict[str, str] = {}
        self._cleared: dict[str, int] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            net = stack.enter_context(Net())
            self.store = FarServer(net.place("store"), self._folder / "store")
            stack.callback(self.store.stop)
            stack.callback(lambda: assert_clean(self.store))  # when replicas have ended
            contents = Contents()
            self.speakers: dict[str, Speaker] = {}
            for number, pod in enumerate(pods()):
                place, layout = net.place(f"engine{number}"), LAYOUTS[number % len(LAYOUTS)]
                self.speakers[pod] = Speaker(pod, place, layout, contents, replays=number < PARTITIONS)
                stack.callback(self.speakers[pod].engine.close)
            self.places = {name: net.place(name) for name in NAMES}
            flags = [speaker.flag for speaker in self.speakers.values()]
            self.judge = Judge(self.speakers)
            self.cluster = stack.enter_context(FarCluster(self.places, self.store, flags, self._folder))
            stack.callback(self.mend)  # before replicas are told to end in order
            self.askers = [
                stack.enter_context(Repeated(f"asker of {name}", ASKS_S, partial(self._ask_something, name)))
                for name in NAMES
            ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *told: object) -> None:
        self._stack.__exit__(*told)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Shared as planned, everybody heard, and some batches known to all."""
        self.cluster.wait_settled()
        for speaker in self.speakers.values():
            speaker.engine.simulator.wait_subscribers(2, DEADLINE_S)
        self.speak(20)
        self.wait_right()
        self._began_with = self.generations()
        self._cleared = self._clears()

    # -- engines ------------------------------------------------------------------------------------------------------

    def speak(self, turns: int = 1) -> None:
        """So many batches of engines picked at random, and one of each."""
        for _ in range(turns):
            self._say_something()
        for speaker in self.speakers.values():
            speaker.say_something(self.chance)

    def speaking(self) -> Repeated:
        """A context: engines speak all the time."""
        return Repeated("engines", SAYS_S, self._say_something)

    def _say_something(self) -> None:
        self.chance.choice(list(self.speakers.values())).say_something(self.chance)

    def restart(self, *pods: str, subscribers: int = 0) -> None:
        """Their processes end, and others are there as soon as engines can be. See `Speaker.begin`."""
        for pod in pods:
            self.speakers[pod].end()
        self.pass_time(DOWN_S)
        for pod in pods:
            self.speakers[pod].begin(subscribers)

    @property
    def silent(self) -> list[str]:
        """Pods whose engines say nothing twice."""
        return [pod for pod, speaker in self.speakers.items() if not speaker.replays]

    # -- the network --------------------------------------------------------------------------------------------------

    @property
    def engine_places(self) -> list[Place]:
        """Of all engines."""
        return [speaker.place for speaker in self.speakers.values()]

    def mend(self) -> None:
        """All of it."""
        for place in (*self.places.values(), self.store.place):
            place.mend()

    # -- replicas -----------------------------------------------------------------------------------------------------

    def ask(self, name: str, number: int) -> dict[str, PodEntry]:
        """One question, judged; by pod."""
        query = QUESTIONS[number].query(TAIL)
        answer = self.cluster.replicas[name].ask(query.pop("token_ids"), timeout_ms=DEADLINE_MS, **query)
        self.judge.check(name, number, answer)
        return {entry.pod: entry for entry in answer.pods}

    def _ask_something(self, name: str) -> None:
        self.ask(name, random.randrange(len(QUESTIONS)))

    def pods_of(self, name: str) -> list[str]:
        """Whose events a replica applies, as it says itself."""
        owned = {number for number, view in self.cluster.replicas[name].partitions().items() if view["role"] == "owner"}
        return [pod for pod in self.speakers if self.cluster.partition(pod) in owned]

    def generations(self) -> dict[str, str]:
        """By pod; all must agree."""
        told = [
            {pod: source["generation"] for pod, source in self.cluster.replicas[name].sources().items()}
            for name in NAMES
        ]
        assert all(each == told[0] for each in told), told
        return told[0]

    def _clears(self) -> dict[str, int]:
        return {pod: speaker.clears for pod, speaker in self.speakers.items()}

    def assert_judged(self) -> None:
        """Every replica has said of something that it is exact: else nothing was tried."""
        assert set(NAMES) == set(+self.judge.exact), self.judge.exact

    def assert_nothing_lost(self, *, but: Sequence[str] = ()) -> None:
        """No gap, no restart, and no generation that no engine gave cause for; of all pods but these."""
        assert set() == set(self.mishaps()) - set(but), self.mishaps()
        cleared = self._clears()
        for pod, generation in self.generations().items():
            if pod not in but and cleared[pod] == self._cleared[pod]:
                assert generation == self._began_with[pod], pod

    def tell(self) -> None:
        """What replicas have to say of all, where something failed: else nobody knows what led there."""
        print(self.cluster.told())
        for name in NAMES:
            for pod in self.speakers:
                history = self.cluster.replicas[name].call("GET", f"/v1/sources/{pod}/history").json()
                print(name, pod, json.dumps(history))
        for pod, speaker in self.speakers.items():
            print(pod, speaker.engine.told)
        for told in self.judge.narrowed:
            print(told)

    def mishaps(self) -> dict[str, dict[str, int]]:
        """By pod, gaps and restarts that anybody has counted."""
        found: dict[str, dict[str, int]] = {}
        for name in NAMES:
            for pod, source in self.cluster.replicas[name].sources().items():
                counted = {what: count for what in ("gaps", "restarts") if (count := source["counters"].get(what, 0))}
                if counted:
                    found[pod] = counted
        return found

    # -- waiting ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Nobody who asks has met anything that may not be."""
        for asker in self.askers:
            asker.check()

    def wait_for(self, look: Callable[[], bool], what: str, why: Callable[[], str] = str) -> None:
        """As of `Cluster`, with an eye on what askers meet."""

        def look_twice() -> bool:
            self.check()
            return look()

        self.cluster.wait_for(look_twice, what, why)

    def pass_time(self, seconds: float) -> None:
        """Where the length of a fault is what is tried; every replica answers meanwhile."""
        answered = [asker.turns for asker in self.askers]
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.check()
            time.sleep(ASKS_S)
        self.wait_for(
            lambda: all(asker.turns > before + 1 for asker, before in zip(self.askers, answered, strict=True)),
            "every replica to answer",
        )

    def wait_right(self, *names: str, unsure: Sequence[str] = ()) -> None:
        """Until these (all) answer every question as engines hold it, alike, `live` and `exact`.

        Of those that are `unsure` something was lost for good: they are all at the engine's last batch, and say alike.
        Who missed an engine's last word hears another one now and then: that is when it is noticed (promise P6).
        """
        asked = names or NAMES
        says_again_at = time.monotonic() + SAYS_AGAIN_S

        def are_right() -> bool:
            nonlocal says_again_at
            if not self.differences(asked, unsure):
                return True
            if time.monotonic() > says_again_at:
                says_again_at = time.monotonic() + SAYS_AGAIN_S
                for pod in unsure:
                    self.speakers[pod].say("nothing")
            return False

        self.wait_for(
            are_right,
            f"{asked} to be right",
            lambda: str(self.differences(asked, unsure)[:3]),
        )

    def differences(self, names: Sequence[str], unsure: Sequence[str] = ()) -> list[object]:
        """From what these must answer."""
        found: list[object] = []
        for number in range(len(QUESTIONS)):
            told = {name: self.ask(name, number) for name in names}
            for pod, speaker in self.speakers.items():
                each = {name: told_of(entries[pod]) for name, entries in told.items()}
                said_first = each[names[0]]
                if any(other != said_first for other in each.values()):
                    found.append((number, pod, "is told otherwise", each))
                elif said_first.sequence != speaker.engine.last.sequence:
                    found.append((number, pod, said_first, "the engine is at", speaker.engine.last))
                elif pod not in unsure and (said_first.state, said_first.bound, said_first.entry) not in expected(
                    speaker.engine, number
                ):
                    found.append((number, pod, said_first, expected(speaker.engine, number)))
        return found


def expected(engine: SpeakingEngine, number: int) -> set[tuple[str, str, Expected]]:
    """State, bound and entry of a question, where all was heard. What is odd in what it says is suspected."""
    state = "suspect" if engine.truth.doubts else "live"
    return {(state, bound, entry) for bound, entry in engine.expected(number)}


def told_of(entry: PodEntry) -> Told:
    """See `Told`."""
    return Told(entry.state, entry.bound, entry.generation, entry.sequence, said(entry))


def pods() -> list[str]:
    """One in each partition, and another one in each."""
    first = one_pod_each(PARTITIONS)
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        pod = f"pod-{number}"
        if pod not in first:
            found.setdefault(partition_of(SourceId(pod, 0), PARTITIONS), pod)
        number += 1
    return [*first, *(found[partition] for partition in range(PARTITIONS))]


@contextlib.contextmanager
def apart(folder: Path) -> Iterator[Apart]:
    """All of it, ready; the store is looked at when replicas have ended."""
    with Apart(folder) as deployment:
        try:
            deployment.begin()
            yield deployment
        except BaseException:
            deployment.tell()
            raise
