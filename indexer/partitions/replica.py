"""[I/O] One replica of a deployment on a store: which partitions it owns and follows, and how that is going.

Nothing here is on the path of a lookup. While the store is away, what is owned goes on being applied in memory, and is
written when it is back; what is followed ages, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from indexer.happenings import Happening
from indexer.hashing.chain import SCHEME
from indexer.log_lines import about
from indexer.partitions.acquiring import replica_of
from indexer.partitions.configuring import Configuring
from indexer.partitions.control import Control
from indexer.partitions.counting import read_counts
from indexer.partitions.discovered import Discovered
from indexer.partitions.draining import Draining
from indexer.partitions.followers import Followers
from indexer.partitions.hints import Hints
from indexer.partitions.histories import Histories
from indexer.partitions.load_sharing import LoadSharing
from indexer.partitions.name_sharing import NameSharing
from indexer.partitions.news import News
from indexer.partitions.on_roster import OnRoster
from indexer.partitions.options import FollowOptions
from indexer.partitions.orders import Orders
from indexer.partitions.overview import Overview
from indexer.partitions.owned import OwnedSource
from indexer.partitions.sharing import Sharing
from indexer.partitions.watch import Watch
from indexer.store.failures import StoreFailure
from indexer.store.layout import PartitionKeys, replicas_key, tags

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from indexer.happenings import TakeoverCause
    from indexer.index.source import SourceIndex
    from indexer.ingest import SourceSink
    from indexer.model import SourceId
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.store.counts import StoredCounts

log = logging.getLogger("kvindexer.store")

LEARN_S: Final = 1.0
CANCEL_AGAIN_S: Final = 0.5
ALONE_AFTER_S: Final = 1.0


class Replica:
    """`collects`: whether it owns what it can; else it only follows."""

    def __init__(self, parts: Parts, *, namespace: str, collects: bool, secret_digest: str) -> None:
        parts = self._parts = dataclasses.replace(parts, agrees=self._agree)
        self._keys = {number: PartitionKeys(namespace, tag) for number, tag in enumerate(tags(parts.partitions))}
        self._news = News()
        facts = {"scheme": SCHEME, "partitions": str(parts.partitions), "secret": secret_digest}
        self.watch = Watch(parts, namespace, facts)
        self.followers = Followers(
            parts.client,
            self._keys,
            OnRoster(parts, self._heard),
            parts.mirror,
            clock=parts.clock,
            chance=parts.chance,
            options=FollowOptions(retain_s=parts.options.retain_s, models=parts.options.follow),
        )
        self.owners: dict[int, Owner] = {}
        key = replicas_key(namespace)
        self.sharing = Sharing(parts, key, self.owners, self.followers)
        if collects:
            from indexer.partitions.owner import Hooks, Owner  # noqa: PLC0415 - only who owns needs it

            hooks = Hooks(self._owned, self._lost, self._taken, self.sharing.listens)
            self.owners.update(
                (number, Owner(parts, keys, number, self.sharing.membership, self._news, hooks))
                for number, keys in self._keys.items()
            )
        self.histories = Histories(parts, self._keys)
        self.hints = Hints(parts, self._keys, self._is_loaded)
        of_use = self.followers.has_sources
        self.loads = LoadSharing(parts, self._keys, owned=self._sources_owned, is_followed=of_use)
        self.names = NameSharing(parts, self._keys, owned=self._sources_owned, is_followed=of_use)
        self.orders = Orders(parts, self._keys, self.owners, self.followers)
        self.discovered = Discovered(parts, self._keys, self.owners)
        self._configuring = Configuring(parts, self._keys, self.owners, self.followers)
        self._control = Control(parts, self._keys, self.owners)
        self._holders: dict[int, str] = {}
        """Of followed partitions: who owns them, as the store said last."""
        self.overview = Overview(
            parts, self.watch, self.sharing, self.followers, owners=self.owners, holders=self._holder_names
        )
        self.draining = Draining(
            parts.client,
            key,
            self.sharing.membership.members,
            self.sharing.membership.beat,
            clock=parts.clock,
            retain_ms=parts.options.retain_ms,
        )

    # -- what others see ----------------------------------------------------------------------------------------------

    def follows(self, source: SourceId) -> bool:
        """Whether a source is known by what its owner tells: where blocks lie, without maps and counts."""
        return self.followers.follows(self._parts.partition_of(source))

    def has_map(self, source: SourceIndex) -> bool:
        """Whether all that is known of its blocks is here: it is applied here, and loaded."""
        owner = self.owners.get(self._parts.partition_of(source.descriptor.id))
        return owner is not None and id(source) in owner.owned

    async def counts(self, sources: Sequence[SourceId]) -> dict[SourceId, StoredCounts]:
        """What their owners told of these; nothing of a source of which they did not, or while the store is away."""
        return await read_counts(self._parts, self._keys, sources)

    def owner_of(self, source: SourceId) -> str | None:
        """The replica that applies a source's events, where known."""
        number = self._parts.partition_of(source)
        owner = self.owners.get(number)
        return (self._holders.get(number) if owner is None else owner.holder) or None

    def journal_age_s(self, source: SourceId) -> float | None:
        """Age of the newest journal entry of its partition, written or applied here; None where none was."""
        number = self._parts.partition_of(source)
        owner = self.owners.get(number)
        if owner is not None and owner.role == "owner":
            return owner.age_s
        return self.followers.age_s(number)

    def _holder_names(self) -> dict[int, str]:
        return self._holders | {number: owner.holder for number, owner in self.owners.items()}

    # -- what happens to sources --------------------------------------------------------------------------------------

    def touched(self, source: SourceIndex) -> None:
        """Something of it changed. Called with every batch."""
        owner = self.owners.get(self._parts.partition_of(source.descriptor.id))
        if owner is not None:
            owner.touched(source)
            if owner.role != "owner":
                self.sharing.standby.note(source)

    def appeared(self, sink: SourceSink) -> None:
        """A source came by its topic."""
        owner = self.owners.get(self._parts.partition_of(sink.descriptor.id))
        if owner is not None:
            owner.leave_all(sink.descriptor.id)  # it served another model before
            owner.enter(OwnedSource(sink, self._parts.unwritten))
            self.orders.register_later(sink.descriptor, cordoned=sink.source.facts.cordoned)

    def may_appear(self, source: SourceId) -> bool:
        """Whether a source may come by its topic now: not before it is known what the store has of it."""
        owner = self.owners.get(self._parts.partition_of(source))
        return owner is not None and owner.has_loaded

    def gone_for_good(self, source: SourceId) -> None:
        """One that came by its topic is not there any more."""
        owner = self.owners.get(self._parts.partition_of(source))
        if owner is not None:
            owner.leave_all(source)
        self._parts.history.note(source, Happening(what="removed", cause="gone_too_long"))
        self.orders.remove_later(source)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, quiet: asyncio.Event) -> None:
        """Until `stop` is set; then, when `quiet` says that nothing is applied any more, write the rest and give up."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self.watch.run(), name="store: watch"),
                tasks.create_task(self._begin_alone(), name="store: begin alone"),
                tasks.create_task(self._share(), name="store: share out"),
                tasks.create_task(self._learn_owners(), name="store: learn owners"),
                tasks.create_task(self.orders.run(), name="store: orders"),
                tasks.create_task(self._control.run(), name="store: control"),
                tasks.create_task(self._configure(), name="store: configure"),
                tasks.create_task(self._once_agreed(self.histories.run), name="store: histories"),
                tasks.create_task(self._once_agreed(self.hints.write), name="store: tell hints"),
                tasks.create_task(self._once_agreed(self.hints.read), name="store: hear hints"),
                tasks.create_task(self._once_agreed(self.loads.run), name="store: loads"),
                tasks.create_task(self._once_agreed(self.names.run), name="store: names"),
                tasks.create_task(self._news.run(), name="store: news"),
            ]
            following = tasks.create_task(self._follow(stop), name="store: follow")
            running += [
                tasks.create_task(self._once_agreed(owner.run), name=f"store: own {owner.number}")
                for owner in self.owners.values()
            ]
            await stop.wait()
            await quiet.wait()
            await _cancelled(running)
            await self._end()
            following.cancel()
        await self._parts.client.close()

    async def give_away(self) -> None:
        """At a stop, while everything is still applied: what others can go on with, they get."""
        if self.watch.is_up:
            await self.sharing.give_away()

    async def _end(self) -> None:
        until = self._parts.clock.now() + self._parts.options.stop_s
        if self.watch.is_up:
            await self.sharing.leave()
        async with asyncio.TaskGroup() as tasks:
            ends = [
                tasks.create_task(owner.stop(until, self.sharing.successor(number)), name="store: end")
                for number, owner in self.owners.items()
            ]
        left = sum(not end.result() for end in ends)
        if left:
            log.warning(
                "the store: what waited for it in %d partitions was not written", left, extra=about("store_unwritten")
            )
        if self.watch.agreed.is_set() and not await self.histories.flush(until):
            log.warning(
                "the store: %d entries of histories were not written",
                self.histories.waiting,
                extra=about("store_unwritten"),
            )

    async def _once_agreed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Nothing is written into a store, nor believed of it, that may be another deployment's."""
        await self.watch.agreed.wait()
        await work()

    def _is_loaded(self, number: int) -> bool:
        """Whether the sources of a partition are known here, as owner or follower."""
        owner = self.owners.get(number)
        return (owner is not None and owner.role == "owner") or self.followers.is_following(number)

    def _sources_owned(self, number: int) -> list[SourceId] | None:
        """Of a partition that is owned here; None of another."""
        owner = self.owners.get(number)
        if owner is None or owner.role != "owner":
            return None
        return [owned.id for owned in owner.owned.values()]

    async def _share(self) -> None:
        await self.watch.agreed.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.sharing.membership.run(), name="store: membership")
            tasks.create_task(self.sharing.tend(), name="store: tend")

    async def _configure(self) -> None:
        await self.watch.agreed.wait()
        if self.owners:
            await self._configuring.run()

    async def _follow(self, stop: asyncio.Event) -> None:
        await self.watch.agreed.wait()
        if not self.owners:
            for number in self._keys:
                self.followers.follow(number)
        await self.followers.run(stop)

    async def _begin_alone(self) -> None:
        """A store that does not answer at the start keeps nobody from collecting what is configured."""
        await asyncio.sleep(ALONE_AFTER_S)
        for owner in self.owners.values():
            owner.begin_alone()

    async def _learn_owners(self) -> None:
        """Of partitions that are only followed: for people, who must know where to look."""
        await self.watch.agreed.wait()
        while True:
            with contextlib.suppress(StoreFailure):  # the watch tells
                numbers = [number for number in self._keys if number not in self.owners]
                owners = await self._parts.client.string_of_each([self._keys[number].owner for number in numbers])
                self._holders = {
                    number: replica_of(owner or b"") for number, owner in zip(numbers, owners, strict=True)
                }
            await asyncio.sleep(LEARN_S)

    def _heard(self, source: SourceIndex) -> None:
        self.sharing.standby.note(source)

    # -- partitions come and go ---------------------------------------------------------------------------------------

    def _owned(self, number: int) -> None:
        self.followers.leave(number)

    def _lost(self, number: int) -> None:
        """Somebody else owns it: what they write is followed."""
        self.followers.follow(number)

    def _agree(self) -> bool:
        """Whether all replicas that collect have the same configuration."""
        return self.sharing.membership.agrees()

    def _taken(self, owner: Owner, cause: TakeoverCause) -> None:
        """It is owned here, and applied."""
        self.sharing.takeovers[cause] += 1
        if cause in {"lease_expired", "handed_over"}:
            level = logging.INFO if cause == "handed_over" else logging.WARNING
            self._news.tell("partition_owned", owner.number, f"owned here now: {cause.replace('_', ' ')}", level)


async def _cancelled(running: Iterable[asyncio.Task[None]]) -> None:
    """Until they have ended. A group of tasks that is cancelled while a task of it fails raises the failure alone.

    So who catches it goes on (Python below 3.13): they are told again.
    """
    pending = set(running)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
