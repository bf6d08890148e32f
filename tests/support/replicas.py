"""A whole replica on a real store, in the test's process; what its engines say is handed in."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.clock import SystemClock
from indexer.model import RawBatch, SourceId
from indexer.node import Node
from indexer.ports import ListenerView
from indexer.settings import load
from indexer.sharding.rendezvous import share_out
from indexer.store.layout import partition_of
from schemas.lookup import LookupQuery, PodEntry
from tests.support.core_events import payload, u32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.discovery.found import Discoverer
    from indexer.ingest import SourceSink
    from indexer.model import Descriptor
    from indexer.ports import EventSink, Resume

DEADLINE_S: Final = 20.0
SHORT: Final = {"redis.lease_s": 2.0, "redis.timeout_ms": 500, "redis.heartbeat_s": 0.2, "redis.min_hold_s": 0.5}
NOTHING_KEPT: Final = ListenerView(0.0, 0, 0, 0, joins=True)


def names_of_two(pod: str = "a") -> tuple[str, str]:
    """Of two replicas, the one first that owns that pod's partition as soon as both are there.

    Else it moves, soon after the second has begun: what nobody else had before is held for no minimum time.
    """
    owner = share_out(16, ("r1", "r2"))[partition_of(SourceId(pod, 0), 16)].owner
    return ("r1", "r2") if owner == "r1" else ("r2", "r1")


class HandedIn:
    """Implements `ports.Collector`: notes who is subscribed to and from where it went on, and who is listened to."""

    def __init__(self) -> None:
        self.resumed: dict[SourceId, Resume | None] = {}
        self.vouched: dict[SourceId, float] = {}
        self.listened: dict[SourceId, ListenerView] = {}
        self.noted: dict[SourceId, tuple[int | None, float | None, float | None]] = {}

    def start(self, sink: EventSink) -> None:
        self.unlisten(sink.descriptor.id)
        self.resumed[sink.descriptor.id] = sink.resume

    def stop(self, source: SourceId) -> None:
        self.resumed.pop(source, None)
        self.unlisten(source)

    def step_down(self, source: SourceId) -> None:
        if source in self.resumed:
            del self.resumed[source]
            self.listened[source] = NOTHING_KEPT

    def other_life(self, _: SourceId) -> bool:
        return False

    def vouch(self, source: SourceId, at: float) -> None:
        self.vouched[source] = at

    def listen(self, descriptor: Descriptor) -> None:
        if descriptor.id not in self.resumed and descriptor.endpoint is not None:
            self.listened.setdefault(descriptor.id, NOTHING_KEPT)

    def unlisten(self, source: SourceId) -> None:
        self.listened.pop(source, None)

    def note(self, source: SourceId, cursor: int | None, stamp: float | None, alive_at: float | None) -> None:
        if source in self.listened:
            self.noted[source] = (cursor, stamp, alive_at)

    def listeners(self) -> Mapping[SourceId, ListenerView]:
        return self.listened

    def sources(self) -> Sequence[SourceId]:
        return list(self.resumed)


class Replica:
    """`pods` are its configured sources. Use as a context, on the test's loop."""

    def __init__(
        self,
        url: str,
        pods: Sequence[str] = ("a",),
        *,
        name: str = "r1",
        discoverers: Sequence[Discoverer] = (),
        **settings: Any,  # noqa: ANN401  settings of any kind
    ) -> None:
        flags: dict[str, object] = {**SHORT, "redis.url": url, "redis.replica": name}
        flags |= {key.replace("__", "."): value for key, value in settings.items()}
        sources = [f"{pod}=tcp://127.0.0.1:1" for pod in pods]
        read = load(None, flags=flags, source_flags=sources, environment={})
        self.node = Node(read, SystemClock(), discoverers)
        self.collector = self.node.roster.fleet = HandedIn()
        self.next: dict[str, int] = {}
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def part(self) -> Any:  # noqa: ANN401  its parts are looked at from inside
        """What has to do with the store."""
        assert self.node.replica is not None
        return self.node.replica

    async def start(self) -> Replica:
        """Run; returns when all partitions are owned or followed."""
        self._task = asyncio.get_running_loop().create_task(self.node.run(self._stop))
        await self.until(lambda: self.part.overview.waiting_partitions == 0)
        return self

    async def stop(self) -> None:
        """A clean stop."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def die(self) -> None:
        """As a process that is killed: what was not written is not written any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                assert self._task is None or not self._task.done(), self._task.exception()
                await asyncio.sleep(0.005)

    def sink(self, pod: str = "a") -> SourceSink:
        """Of a source that is known here."""
        sink = self.node.roster.sink(SourceId(pod, 0))
        assert sink is not None, pod
        return sink

    def say(self, pod: str, *events: object, sequence: int | None = None, ts: float = 1_000.0) -> None:
        """The engine's next batch."""
        sink = self.sink(pod)
        if sequence is None:
            sequence = 0 if sink.cursor is None else sink.cursor + 1
        sink.alive(connected=True)
        sink.apply(RawBatch(b"", sequence, payload(*events, ts=ts + sequence)))

    async def written(self) -> None:
        """Wait until nothing waits for the store and no new copy is due."""
        await self.until(self._is_written)

    def _is_written(self) -> bool:
        owned = [each for owner in self.part.owners.values() for each in owner.owned.values()]
        return all(
            each.wish is None
            and not each.wants_turn
            and not each.waiting_bytes
            and each.written == each.source.facts.sequence
            for each in owned
        )

    def ask(self, token_ids: Sequence[int], pod: str = "a") -> PodEntry:
        """What an answer says of a pod whose connection is well."""
        sink = self.sink(pod)
        if not sink.followed:
            sink.syncing(active=False)
            sink.alive(connected=True)
        answer = self.node.lookup(LookupQuery(request_id="1", tokens=u32(token_ids)))
        pods = [msgspec.json.decode(p, type=PodEntry) if isinstance(p, msgspec.Raw) else p for p in answer.pods]
        (entry,) = [each for each in pods if each.pod == pod]
        return entry


def run(body: Callable[[], Any]) -> None:
    """A test's body on a loop of its own, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())
