"""A mirror that follows partitions, and the sources it stands for: the real parts, without the service around them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final, TypeAlias

from indexer.clock import SystemClock
from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.source import SourceIndex
from indexer.index.states import StateLimits, state_of
from indexer.partitions.followers import Followers
from indexer.partitions.options import FollowOptions
from indexer.store.client import ClientOptions
from indexer.store.layout import source_name
from tests.support.collecting import until
from tests.support.owning import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from indexer.index.reverse_map import ReverseMap
    from indexer.model import Descriptor, SourceId, SourceState
    from indexer.partitions.followed_partition import FollowedPartition
    from indexer.partitions.options import PartitionProgress
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from indexer.store.registered import Registered
    from tests.support.hand_owner import HandOwner

QUICK: Final = FollowOptions(block_s=0.05, look_s=0.05, rest_s=0.01, rest_max_s=0.2)
IMPATIENT: Final = ClientOptions(timeout_s=1.0, retries=0)
PARTITION: Final = 3
Others: TypeAlias = "Mapping[int, PartitionKeys] | None"
"""Further partitions that are followed."""


class PlainShelves:
    """A registry and nothing else."""

    def __init__(self, registry: Registry, mirror: Mirror) -> None:
        self.registry = registry
        self.mirror = mirror
        self.left: list[SourceId] = []
        self.cleared: list[bytes] = []
        self.buried: list[ReverseMap] = []
        self.changes = 0

    def enter(self, registered: Registered, generation: int) -> SourceIndex:
        self.registry.check(registered.descriptor)
        known = self.registry.remove(registered.descriptor.id)
        if known is not None:
            known.leave(self.mirror)
        source = SourceIndex(registered.descriptor, self.mirror, generation=generation, orphans_max=0)
        self.registry.add(source)
        return source

    def redescribe(self, source: SourceIndex, descriptor: Descriptor) -> None:
        self.registry.remove(descriptor.id)
        source.descriptor = descriptor
        self.registry.add(source)

    def leave(self, source: SourceId) -> None:
        known = self.registry.remove(source)
        assert known is not None
        known.leave(self.mirror)
        self.left.append(source)

    def changed(self, _: SourceIndex) -> None:
        self.changes += 1

    def heard(self, _: SourceIndex) -> None:
        """Nobody here listens along."""

    def reshaped(self, _: SourceIndex) -> None:
        self.registry.version += 1

    def stands(self, _: SourceIndex) -> None:
        """Only ticks tell how it is."""

    def bury(self, left: ReverseMap) -> None:
        self.buried.append(left)

    def clears(self, nonce: bytes) -> None:
        self.cleared.append(nonce)

    def passes_over(self, tenant: str, model: str | None) -> None:
        self.registry.note_elsewhere(tenant, model, 1)

    def passes_over_no_more(self, tenant: str, model: str | None) -> None:
        self.registry.note_elsewhere(tenant, model, -1)

    def get(self, source: SourceId) -> SourceIndex | None:
        return self.registry.sources.get(source)

    def shown(self, source: SourceIndex) -> dict[int, int]:
        """Token hash → lanes, of all that the mirror shows of the source. Looks at every row of the table."""
        book, table = self.mirror.book, self.mirror.table
        assert self.mirror.live_slots >> source.slot & 1
        out: dict[int, int] = {}
        for rows in [table.current.rows] + ([] if table.old is None else [table.old.rows]):
            for token_hash in rows[:, 0].tolist():
                lanes = book.records[table.get(token_hash)].lanes_of(source.slot) if token_hash else 0
                if lanes:
                    out[token_hash] = lanes
        return out


class Follow:
    """One process's followers of one partition."""

    def __init__(
        self, client: Client, keys: PartitionKeys, options: FollowOptions = QUICK, *, others: Others = None
    ) -> None:
        self.clock = SystemClock()
        self.mirror = Mirror()
        self.registry = Registry()
        self.shelves = PlainShelves(self.registry, self.mirror)
        self.followers = Followers(
            client,
            {PARTITION: keys, **(others or {})},
            self.shelves,
            self.mirror,
            clock=self.clock,
            chance=random.Random(3),
            options=options,
        )

    @property
    def progress(self) -> PartitionProgress:
        """Of the partition that tests are about."""
        return next(each for each in self.followers.progress() if each.partition == PARTITION)

    @property
    def position(self) -> str:
        return self.progress.position

    def source(self, source: SourceId) -> SourceIndex:
        return self.registry.sources[source]

    def state(self, source: SourceId) -> SourceState:
        """As a lookup would show it now."""
        return state_of(self.source(source).facts, self.clock.now(), StateLimits())

    def shown(self, source: SourceId) -> dict[int, int]:
        """Token hash → lanes, of all that the mirror shows of the source."""
        return self.shelves.shown(self.source(source))

    async def until_shows(self, owner: HandOwner) -> None:
        """Until the journal is followed to its end and everything is whole; then it must be right."""
        await self._until(lambda: self.is_at(owner), "the mirror to follow", owner)
        for source in self._wanted(owner):
            truth = owner.truth[source]
            assert truth.presence == self.shown(source)
            facts = self.source(source).facts
            assert (truth.where.generation, truth.sequence) == (facts.generation, facts.sequence)
            assert not facts.reloading
            assert not facts.loading

    async def until_gone(self, source: SourceId, owner: HandOwner) -> None:
        """Until it is listed no more."""
        await self._until(lambda: source not in self.registry.sources, f"{source} to go", owner)

    async def _until(self, condition: Callable[[], bool], what: str, owner: HandOwner) -> None:
        try:
            await until(condition, what)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self._how_far(owner)}") from None

    def _how_far(self, owner: HandOwner) -> str:
        sources = {
            name: (each.whole, each.generation, each.tries, each.reading and each.reading.stage, each.due_at)
            for name, each in self._partition.sources.by_name.items()
        }
        truth = {str(source): truth.where for source, truth in owner.truth.items()}
        partition = self._partition
        commands = partition.control, partition.registry_due, partition.due_at, self.mirror.retired_slots()
        return (
            f"{self.progress}, {commands}, journal at {owner.journal.position}, {sources}, {truth}, {self.clock.now()}"
        )

    def is_at(self, owner: HandOwner) -> bool:
        progress = self.progress
        return (
            progress.state == "following"
            and progress.position == str(owner.journal.position)
            and progress.loaded == progress.sources
            and set(self.registry.sources) == self._wanted(owner)
        )

    def _wanted(self, owner: HandOwner) -> set[SourceId]:
        """All that it has, of the models that are followed."""
        models = self.followers.models
        return {each for each in owner.truth if models is None or owner.models.get(each, "m") in models}

    def tries(self, source: SourceId) -> int:
        """Readings of its map, one after the other, that came to nothing."""
        known = self._partition.sources.by_name.get(source_name(source))
        return 0 if known is None else known.tries

    def is_whole(self, source: SourceId) -> bool:
        """Whether it is what its journal told so far."""
        known = self._partition.sources.by_name.get(source_name(source))
        return known is not None and known.whole

    @property
    def due_at(self) -> float:
        """Before that it does not begin anew."""
        return self._partition.due_at

    def lose(self) -> None:
        """Have everything read anew."""
        self._partition.lose("damaged")

    @property
    def _partition(self) -> FollowedPartition:
        return self.followers._partitions[PARTITION]

    @property
    def waiting_bytes(self) -> int:
        """Of changes that wait for maps to be read."""
        return self._partition.sources.held.bytes

    def tidied(self) -> bool:
        """All housekeeping that is due is done."""
        while self.mirror.tidy_slice():
            pass
        return True


@contextlib.asynccontextmanager
async def following(
    url: str, keys: PartitionKeys, options: FollowOptions = QUICK, *, others: Others = None
) -> AsyncIterator[Follow]:
    """Followers that run while the block does, with a client of their own."""
    client = client_of(url, IMPATIENT)
    follow = Follow(client, keys, options, others=others)
    for partition in (PARTITION, *(others or ())):
        follow.followers.follow(partition)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow.followers.run(stop))
            try:
                yield follow
            finally:
                stop.set()
    finally:
        await client.close()
