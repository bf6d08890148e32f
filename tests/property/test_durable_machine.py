"""Redis mode against memory mode: any engine behaviour, kills of either process, a store in any trouble.

Three nodes hear the same engines over real sockets: one in memory mode, which nothing happens to and which is the
model; one that owns on a real server; one that follows. Engines keep what they said, so nothing is lost for good:
whenever things have settled all three answer alike, and meanwhile whatever is called live and exact is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from indexer.model import Descriptor
from indexer.node import Node
from indexer.settings import Events, Redis, Server, Settings, Staleness
from schemas.lookup import LookupQuery, PodEntry
from tests.support.core import Answer
from tests.support.core_events import CLEARED, TS, payload, stored, u32
from tests.support.core_model import ModelSource
from tests.support.core_streams import (
    LAYOUTS,
    REMOVALS,
    STORES,
    TRUNKS,
    Chain,
    Contents,
    Removal,
    Store,
    removal_event,
    store_event,
)
from tests.support.redis_servers import Server as StoreServer
from tests.support.redis_servers import binaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PODS: Final = {"pod-0": "one group", "pod-1": "windows"}
QUESTIONS: Final = [Chain(flavour, trunk) for flavour in ("plain", "adapter", "salt", "image") for trunk in TRUNKS]
DEADLINE_S: Final = 20.0
EVENTS: Final = Events(probe_interval_s=0.3, heartbeat_ms=200, reconnect_max_ms=100)
STALENESS: Final = Staleness(stale_after_s=3.0)
OPERATIONS = st.lists(
    st.one_of(STORES, STORES, STORES, REMOVALS, st.sampled_from(["clear", "nothing"])), min_size=1, max_size=4
)
BATCHES = st.lists(st.tuples(st.sampled_from(sorted(PODS)), OPERATIONS), min_size=1, max_size=4)
Operation = Store | Removal | str
Told = dict[str, tuple[object, ...]]
"""By pod, what an answer says of it, but for what is each process's own: generation and ages."""


class Running:
    """A node that runs on the machine's loop."""

    def __init__(self, runner: asyncio.Runner, settings: Settings) -> None:
        self._runner = runner
        runner.run(self._start(settings))

    async def _start(self, settings: Settings) -> None:
        self.node = Node(settings, SystemClock())
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self.node.run(self._stop), name="node")

    def kill(self) -> None:
        """Nothing is flushed and nothing given up."""
        self._runner.run(self._kill())

    async def _kill(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self.node.replica is not None:
            await self.node.replica._parts.client.close()

    def end(self) -> None:
        """As on SIGTERM."""
        self._runner.run(self._end())

    async def _end(self) -> None:
        self._stop.set()
        await self._task

    def told(self, question: Chain) -> Told:
        """An answer."""
        query = question.query(3)
        tokens = u32(query.pop("token_ids"))
        answer = self.node.lookup(LookupQuery(tokens=tokens, **query))
        read = msgspec.json.decode(msgspec.json.encode(answer), type=Answer)
        return {entry.pod: _said(entry) for entry in read.pods}

    def all_told(self) -> list[Told]:
        """All answers."""
        return [self.told(question) for question in QUESTIONS]

    def stamps(self) -> dict[str, float | None]:
        """By pod, of the batch that was applied last."""
        return {name.pod: source.facts.stamp for name, source in self.node.registry.sources.items()}

    def generations(self) -> dict[str, int]:
        """By pod."""
        return {name.pod: source.facts.generation for name, source in self.node.registry.sources.items()}


def _said(entry: PodEntry) -> tuple[object, ...]:
    return (
        entry.state,
        entry.bound,
        entry.sequence,
        entry.matched_tokens,
        entry.reusable_tokens,
        entry.tiers,
        entry.prefix,
        entry.score,
        entry.reason,
    )


class Engine:
    """What it says, and which parents it can name."""

    def __init__(self, layout: str, contents: Contents) -> None:
        self.simulator = EngineSimulator()
        self.simulator.start()
        self.groups = LAYOUTS[layout]
        self._contents = contents
        self.life = 0
        self._forget()

    def _forget(self) -> None:
        self._model = ModelSource(self.groups, self._contents.of_hash, count_copies=True, ttls={})

    def say(self, operations: Sequence[Operation]) -> None:
        """One batch."""
        events = [self._event(operation) for operation in operations]
        self.simulator.publish(payload(*events, ts=TS + 1_000 * self.life))

    def _event(self, operation: Operation) -> object:
        model = self._model
        if operation == "clear":
            model.cleared()
            return CLEARED
        if isinstance(operation, str):
            return stored([], [1, 2, 3, 4], group_idx=0)
        if isinstance(operation, Removal):
            told = removal_event(operation, self._contents, "seed", self.groups)
            model.removed(told.lane, told.hashes)
        else:
            told = store_event(operation, self._contents, "seed", self.groups, model.lacks_parent)
            model.stored(told.lane, told.hashes, told.parent, 0.0, dense=told.dense)
        return told.event

    def restart(self) -> None:
        """Another process, which has said nothing."""
        self.life += 1
        self._forget()
        self.simulator.restart()


class DurableMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.store = StoreServer(binaries()["valkey"], self.folder / "store")
        contents = Contents()
        self.engines = {pod: Engine(layout, contents) for pod, layout in PODS.items()}
        self.memory = Running(self.runner, self._settings())
        self.owner = Running(self.runner, self._settings(replica="owner"))
        self.follower = self._follow()
        self.kept = False
        self.highest: dict[str, int] = {}
        self._say([(pod, ["nothing"]) for pod in PODS])
        self.settle()

    def _settings(self, replica: str = "", *, follows: bool = False) -> Settings:
        sources = [
            Descriptor(
                pod=pod,
                endpoint=engine.simulator.endpoint,
                replay_endpoint=engine.simulator.replay_endpoint,
                origin="flag",
            )
            for pod, engine in self.engines.items()
        ]
        url = self.store.url if replica else None
        return Settings(
            server=Server(roles=("lookup",) if follows else ("collect", "lookup")),
            sources=() if follows else tuple(sources),
            redis=Redis(url=url, partitions=2, lease_s=1.5, timeout_ms=300, replica=replica or None),
            events=EVENTS,
            staleness=STALENESS,
        )

    def _follow(self) -> Running:
        return Running(self.runner, self._settings(replica="follower", follows=True))

    def teardown(self) -> None:
        """Settle a last time."""
        if not hasattr(self, "folder"):
            return
        try:
            self.settle()
        finally:
            for running in (self.owner, self.follower, self.memory):
                running.end()
            for engine in self.engines.values():
                engine.simulator.close()
            self.store.stop()
            self.runner.close()
            shutil.rmtree(self.folder)

    # -- engines -------------------------------------------------------------------------------------------------------

    def _say(self, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        for pod, operations in batches:
            self.engines[pod].say(operations)

    @rule(batches=BATCHES)
    def engines_say(self, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        self._say(batches)

    @rule(pod=st.sampled_from(sorted(PODS)), batches=BATCHES)
    def an_engine_restarts(self, pod: str, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        self.settle()  # what a node did not hear of a life that ended, such as its block size, it never will
        self.engines[pod].restart()
        self._say([(pod, ["nothing"]), *batches])

    # -- processes -----------------------------------------------------------------------------------------------------

    @rule(batches=BATCHES)
    def the_owner_is_killed(self, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        self.owner.kill()
        self._say(batches)
        self.owner = Running(self.runner, self._settings(replica="owner"))

    @rule()
    def the_owner_is_restarted(self) -> None:
        self.owner.end()
        self.owner = Running(self.runner, self._settings(replica="owner"))

    @rule()
    def the_follower_is_restarted(self) -> None:
        self.follower.kill()
        self.follower = self._follow()

    # -- the store -----------------------------------------------------------------------------------------------------

    @rule(batches=BATCHES, seconds=st.sampled_from([0.1, 0.5, 2.0]))
    def the_store_hangs(self, batches: Sequence[tuple[str, Sequence[Operation]]], seconds: float) -> None:
        self.store.freeze()
        self._say(batches)
        self.pass_time(seconds)
        self.store.thaw()

    @rule(batches=BATCHES, seconds=st.sampled_from([0.1, 0.5]))
    def the_store_is_killed(self, batches: Sequence[tuple[str, Sequence[Operation]]], seconds: float) -> None:
        self.store.stop()
        (self.store.folder / "dump.rdb").unlink(missing_ok=True)
        self.kept = False
        self._say(batches)
        self.pass_time(seconds)
        self.store.start()

    @rule(batches=BATCHES)
    def the_store_is_emptied(self, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        with self.store.client() as look:
            look.flushall()
        self._say(batches)

    @rule()
    def a_snapshot_is_kept(self) -> None:
        with self.store.client() as look:
            look.save()
        self.kept = True

    @rule(batches=BATCHES)
    def the_store_goes_back(self, batches: Sequence[tuple[str, Sequence[Operation]]]) -> None:
        if self.kept:
            self._say(batches)
            self.store.stop()
            self.store.start()

    @rule(batches=BATCHES, seconds=st.sampled_from([0.1, 0.5]))
    def the_store_is_full(self, batches: Sequence[tuple[str, Sequence[Operation]]], seconds: float) -> None:
        with self.store.client() as look:
            look.config_set("maxmemory", 1)
            self._say(batches)
            self.pass_time(seconds)
            look.config_set("maxmemory", 0)

    @rule()
    def scripts_are_forgotten(self) -> None:
        with self.store.client() as look:
            look.script_flush()

    # -- what must hold ------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.02, 0.1, 0.3]))
    def pass_time(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    @invariant()
    def exact_is_right(self) -> None:
        """Where two nodes call the same source live and exact at the same batch, they say the same of it.

        The same batch: of the same life, too, which its time stamp tells; numbers begin again with each.
        """
        if not hasattr(self, "highest"):
            return
        model, stamps = self.memory.all_told(), self.memory.stamps()
        for replica in (self.owner, self.follower):
            at = replica.stamps()
            for theirs, right in zip(replica.all_told(), model, strict=True):
                for pod, said in theirs.items():
                    same_batch = said[2] == right[pod][2] and at.get(pod) == stamps.get(pod)
                    if same_batch and said[:2] == right[pod][:2] == ("live", "exact"):
                        assert said == right[pod]
            for pod, generation in replica.generations().items():
                if replica is self.owner:
                    assert generation >= self.highest.get(pod, 0)
                    self.highest[pod] = generation

    @rule()
    def settle(self) -> None:
        """All is well: all that engines said is known to all, and they answer alike."""

        def differences() -> list[tuple[str, str, object, object]]:
            model = self.memory.all_told()
            found: list[tuple[str, str, object, object]] = []
            for pod, engine in self.engines.items():
                if model[0][pod][:3] != ("live", model[0][pod][1], engine.simulator.sequence):
                    found.append(("memory", pod, model[0][pod][:3], engine.simulator.sequence))
            for name, replica in (("owner", self.owner), ("follower", self.follower)):
                for told, right in zip(replica.all_told(), model, strict=True):
                    found += [(name, pod, told.get(pod), right[pod]) for pod in PODS if told.get(pod) != right[pod]]
            return found

        self._until(lambda: not differences(), differences)

    def _until(self, condition: Callable[[], bool], why: Callable[[], object]) -> None:
        ends_at = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends_at, why()
            self.pass_time(0.01)


def tried(examples: int, steps: int) -> settings:
    """No shrinking: a history that fails takes a deadline's time to fail again, and need not."""
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, phases=[Phase.generate], print_blob=True
    )


@pytest.mark.timeout(600)
def test_answers_as_in_memory_mode() -> None:
    """A few histories."""
    run_state_machine_as_test(DurableMachine, settings=tried(6, 15))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_answers_as_in_memory_mode_for_long() -> None:
    """Many, and longer."""
    run_state_machine_as_test(DurableMachine, settings=tried(100, 40))
