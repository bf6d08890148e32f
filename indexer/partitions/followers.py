"""[I/O] Follows partitions of the store: a mirror of what their owners write, for lookups.

For each partition: note where its control stream and its journal end, read the registry and all maps, then read both
streams on. On one server one wait serves all of them; in a cluster each server is asked every few milliseconds, all its
partitions in one message. Whatever fails is tried again with growing rests; meanwhile everything stands and ages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from indexer.index.source import SLOTS_WAITING_MIN
from indexer.partitions.followed_partition import FollowedPartition
from indexer.partitions.options import FollowOptions
from indexer.partitions.reading import Superseded
from indexer.slices import Slices
from indexer.store.entries import START, Position
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.rebuild import SourceReader, survey

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping, Sequence
    from random import Random

    from indexer.index.mirror import Mirror
    from indexer.model import SourceId
    from indexer.partitions.followed import FollowedSource
    from indexer.partitions.options import PartitionProgress
    from indexer.partitions.reading import Reading
    from indexer.partitions.shelves import Shelves
    from indexer.ports import Clock
    from indexer.store.client import Client, StreamEntry
    from indexer.store.following import Follower
    from indexer.store.layout import PartitionKeys

T = TypeVar("T")
UNFINISHED_RESTS = 12
"""How many times longer the longest rest is where no whole copy stands: thousands of sources may have no owner."""
KEEP_S = 0.1
"""Between two looks whether something is due to be tried again."""


class _Asked(NamedTuple):
    """A partition that is looked at, and where it stood when the store was asked."""

    partition: FollowedPartition
    follower: Follower | None
    position: Position
    control: Position


class Followers:
    """All partitions that a process follows. `keys` are those of every partition, by number."""

    def __init__(
        self,
        client: Client,
        keys: Mapping[int, PartitionKeys],
        shelves: Shelves,
        mirror: Mirror,
        *,
        clock: Clock,
        chance: Random,
        options: FollowOptions = FollowOptions(),  # noqa: B008  a frozen struct
    ) -> None:
        self._client = client
        self._keys = keys
        self._shelves = shelves
        self._mirror = mirror
        self._clock = clock
        self._chance = chance
        self._options = options
        self._reader = SourceReader(client, options.load)
        self._readings_at_once = asyncio.Semaphore(options.load.in_flight)
        self._partitions: dict[int, FollowedPartition] = {}
        self._begun: set[FollowedPartition] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()
        self._failures = 0

    def follow(self, partition: int) -> None:
        """Load a partition, then follow it. Nothing where it is followed."""
        if partition not in self._partitions:
            keys = self._keys[partition]
            self._partitions[partition] = FollowedPartition(
                partition, keys, self._shelves, self._mirror, self._options.models
            )
            self._begin_due()

    def follows(self, partition: int) -> bool:
        """Whether a partition is followed."""
        return partition in self._partitions

    def have_obeyed(self, partition: int, command: Position) -> bool:
        """Whether a followed partition's command, by its id, is in force here and at the owner."""
        followed = self._partitions.get(partition)
        return followed is not None and followed.has_obeyed(command)

    def is_following(self, partition: int) -> bool:
        """Whether a partition is followed and all of it read."""
        followed = self._partitions.get(partition)
        return followed is not None and followed.state == "following"

    def has_sources(self, partition: int) -> bool:
        """Whether it is, and any source of it is followed."""
        return self.is_following(partition) and bool(self._partitions[partition].sources.by_name)

    def sources(self, partition: int) -> list[SourceId]:
        """Those of a followed partition."""
        followed = self._partitions.get(partition)
        return [] if followed is None else [source.id for source in followed.sources.by_name.values()]

    @property
    def models(self) -> frozenset[str] | None:
        """Those whose sources are followed; None: all."""
        return self._options.models

    def passes_over(self, pod: str) -> bool:
        """Whether a rank of that pod is of a model that is not followed."""
        return any(each.sources.passed_over.has_pod(pod) for each in self._partitions.values())

    def leave(self, partition: int) -> None:
        """Follow it no more. Its sources stay in the registry as they are."""
        followed = self._partitions.pop(partition, None)
        if followed is not None:
            followed.leave()

    def age_s(self, partition: int) -> float | None:
        """Time since an entry of a followed partition came; None before the first, and where it is not followed."""
        followed = self._partitions.get(partition)
        return None if followed is None else followed.age_s(self._clock.now())

    def progress(self) -> list[PartitionProgress]:
        """How far each followed partition is."""
        now = self._clock.now()
        return [self._partitions[number].progress(now) for number in sorted(self._partitions)]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._start("read journals", self._read())
            self._start("look at journals", self._look())
            self._start("keep followers", self._keep())
            await stop.wait()
            self._tasks = None  # what is asked for from now on is not begun
            for task in self._running:
                task.cancel()

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        assert self._tasks is not None  # noqa: S101  only while it runs
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, steps: Generator[None, None, T]) -> T:
        return await Slices(self._clock).run(steps)

    def _later(self, tries: int, most: float) -> float:
        """When to try again: twice as long from time to time, and not all at the same moment."""
        rest = min(self._options.rest_s * (1 << min(tries, 16)), most)
        return self._clock.now() + rest * (0.5 + 0.5 * self._chance.random())

    # -- reading on ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            ready = [each for each in self._partitions.values() if self._is_readable(each)]
            if not ready:
                self._stirred.clear()
                await self._stirred.wait()
                continue
            asked_at = self._clock.now()
            try:
                entries = await self._ask(ready)
            except StoreFailure as failure:
                await self._not_answered(ready, failure)
                continue
            self._failures = 0
            await self._enter_all(ready, entries, asked_at)
            if self._client.is_cluster:
                await asyncio.sleep(self._options.poll_s)

    def _is_readable(self, partition: FollowedPartition) -> bool:
        """Not while so much waits for maps to be read, or for the mirror to be scrubbed, that it must not grow (P9)."""
        crowd = SLOTS_WAITING_MIN + 2 * self._mirror.live_slots.bit_count()
        has_room = partition.sources.held.bytes < self._options.queue_bytes and self._mirror.retired_slots() < crowd
        return partition.follower is not None and has_room

    async def _ask(self, partitions: Sequence[FollowedPartition]) -> Mapping[bytes, Sequence[StreamEntry]]:
        after: dict[bytes, bytes] = {}
        for each in partitions:
            after[each.keys.log] = str(each.position).encode()
            after[each.keys.control] = str(each.control).encode()  # read later, so commands are never behind entries
        if self._client.is_cluster:
            return await self._client.entries_of_each(after, self._options.count)
        return await self._client.await_entries(after, self._options.count, self._options.block_s)

    async def _not_answered(self, partitions: Sequence[FollowedPartition], failure: StoreFailure) -> None:
        """Nothing came. Where the store answered with an error, one partition must not cost the others theirs."""
        if failure.kind == "refused" and len(partitions) > 1:
            for partition in partitions:
                try:
                    await self._client.entries_of_each({partition.keys.log: b"0-0", partition.keys.control: b"0-0"}, 1)
                except StoreFailure:
                    partition.is_reached = False
                    partition.lose("damaged")
            return
        for partition in partitions:
            partition.is_reached = False
            if failure.kind == "refused":
                partition.lose("damaged")
        self._failures += 1
        await asyncio.sleep(self._later(self._failures, self._options.rest_max_s) - self._clock.now())

    async def _enter_all(
        self,
        partitions: Sequence[FollowedPartition],
        entries: Mapping[bytes, Sequence[StreamEntry]],
        asked_at: float,
    ) -> None:
        received_at = self._clock.now()
        for partition in partitions:
            commands, told = entries.get(partition.keys.control, ()), entries.get(partition.keys.log, ())
            if commands or told:
                await self._enter(partition, commands, told, received_at)
            if len(told) < self._options.count:
                partition.end_seen_at = asked_at
            partition.is_reached = True
        if entries:
            self._begin_due()

    async def _enter(
        self,
        partition: FollowedPartition,
        commands: Sequence[StreamEntry],
        told: Sequence[StreamEntry],
        received_at: float,
    ) -> None:
        """Commands and entries of one partition. What may have lain in the journal is as old as that allows."""
        is_fresh = received_at - partition.end_seen_at <= self._options.trusted_s
        async with partition.turn:
            if commands:
                await self._obey(partition, commands)
            await self._run(partition.hear(told, received_at if is_fresh else partition.end_seen_at))

    async def _obey(self, partition: FollowedPartition, commands: Sequence[StreamEntry]) -> None:
        before = partition.control
        await self._run(partition.obey(commands))
        try:
            if before == START or not await self._client.has_entry(partition.keys.control, str(before).encode()):
                partition.registry_due = True  # the stream was trimmed, or begun anew, and commands may be missing
        except StoreFailure:
            partition.registry_due = True

    # -- what is to be begun -------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            now = self._clock.now()
            for partition in self._partitions.values():
                partition.sources.want_due(now)
                partition.sources.try_refused()
                partition.sources.forget_lost(now, self._options.retain_s)
            self._begin_due()
            await asyncio.sleep(KEEP_S)

    def _begin_due(self) -> None:
        """Start whatever I/O is asked for."""
        if self._tasks is None:
            return
        self._stirred.set()
        for partition in self._partitions.values():
            for source, reading in partition.sources.take_wanted():
                self._start("read map", self._read_map(partition, source, reading))
            is_due = partition.follower is None or partition.registry_due
            if is_due and partition not in self._begun and self._clock.now() >= partition.due_at:
                self._begun.add(partition)
                self._start("begin partition", self._begin(partition))

    async def _begin(self, partition: FollowedPartition) -> None:
        """Find out where a partition stands, or read its registry again."""
        try:
            async with partition.turn:
                now = self._clock.now()
                if partition.follower is None:
                    found = await survey(self._client, partition.keys)
                    await self._run(partition.begin(found, now))
                elif partition.registry_due:
                    partition.registry_due = False
                    registry = await self._client.fields(partition.keys.sources)
                    await self._run(partition.sources.register_all(registry, now))
            for name, source in partition.sources.missing():
                state = await self._reader.state(partition.keys, source.id)
                partition.sources.forget_if_removed(name, source, state)
        except (StoreFailure, DamagedValue):
            partition.is_reached = False
            partition.registry_due = True
            partition.tries += 1
            partition.due_at = self._later(partition.tries, self._options.rest_max_s)
        else:
            partition.tries = 0
            if partition.lost_in_a_row > 1:  # all maps are read each time
                partition.due_at = self._later(partition.lost_in_a_row, self._options.rest_max_s)
        finally:
            self._begun.discard(partition)
        self._begin_due()

    async def _read_map(self, partition: FollowedPartition, source: FollowedSource, reading: Reading) -> None:
        async with self._readings_at_once:
            if source.reading is not reading:
                return
            reading.start()
            due_at = self._later(source.tries, self._options.rest_max_s)
            try:
                read = await self._reader.read(partition.keys, source.id, b"", reading)
                head = await self._client.string(partition.keys.head)
                until = START if head is None else Position.parse(head)
            except Superseded:
                return
            except (StoreFailure, DamagedValue) as failure:
                partition.sources.refuse(failure.what if isinstance(failure, DamagedValue) else failure.kind)
                async with partition.turn:
                    if source.reading is reading:
                        source.give_up(due_at)
                return
            async with partition.turn:
                if read.outcome == "whole":
                    await self._run(partition.has_read(source, reading, until, due_at))
                else:  # the journal will tell: looked at now and then all the same
                    seldom = self._later(source.tries, UNFINISHED_RESTS * self._options.rest_max_s)
                    partition.has_no_copy(source, reading, read.state, seldom)
        self._begin_due()

    # -- did the store go back? ----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            asked = [
                _Asked(each, each.follower, each.position, each.control)
                for each in self._partitions.values()
                if each.follower is not None and each.is_reached
            ]
            try:
                await self._look_at_all(asked)
            except StoreFailure as failure:
                # What lies at the keys of one partition must not cost the others theirs: each is asked alone.
                for each in asked:
                    reached = failure.kind == "refused" and await self._could_look_at(each)
                    each.partition.is_reached = reached
            self._begin_due()
            await asyncio.sleep(self._options.look_s)

    async def _could_look_at(self, asked: _Asked) -> bool:
        try:
            await self._look_at_all([asked])
        except StoreFailure:
            return False
        return asked.partition.is_reached

    async def _look_at_all(self, asked: Sequence[_Asked]) -> None:
        """In one message to each server: there are many followers, and mostly nothing is wrong."""
        keys = [each.partition.keys for each in asked]
        heads, newest = await self._client.ends_of_each([each.head for each in keys], [each.control for each in keys])
        for each, head, last in zip(asked, heads, newest, strict=True):
            try:
                await self._look_at(each, head, Position.parse(last[0][0]) if last else START)
            except DamagedValue:
                each.partition.is_reached = False

    async def _look_at(self, asked: _Asked, head: bytes | None, end: Position) -> None:
        partition, position = asked.partition, asked.position
        is_missing = head is not None and Position.parse(head) > position
        if is_missing:
            is_missing = not await self._client.entries_after(partition.keys.log, str(position).encode(), 1)
        async with partition.turn:
            if partition.follower is asked.follower:
                partition.look(head, position, is_missing=is_missing)
            if end < asked.control and partition.control == asked.control:
                partition.control, partition.registry_due = end, True
