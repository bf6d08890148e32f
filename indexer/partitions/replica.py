"""[I/O] One replica of a deployment on a store: which partitions it owns and follows, and how that is going.

Nothing here is on the path of a lookup. While the store is away, what is owned goes on being applied in memory, and is
written when it is back; what is followed ages, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from indexer.errors import SettingsError
from indexer.hashing.chain import SCHEME
from indexer.partitions.configuring import Configuring
from indexer.partitions.control import Control
from indexer.partitions.followers import Followers
from indexer.partitions.news import News
from indexer.partitions.on_roster import OnRoster
from indexer.partitions.options import FollowOptions
from indexer.partitions.orders import Orders
from indexer.partitions.owned import OwnedSource
from indexer.partitions.owner import Owner, replica_of
from indexer.partitions.views import Around, facts_of, partition_views, partitions_progress
from indexer.store.deployment import agree
from indexer.store.failures import FailureKind, StoreFailure
from indexer.store.fitness import judge
from indexer.store.layout import PartitionKeys, tags
from indexer.telemetry import StoreHealth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.index.source import SourceIndex
    from indexer.ingest import SourceSink
    from indexer.model import SourceId
    from indexer.partitions.draining import Draining
    from indexer.partitions.parts import Parts
    from indexer.partitions.views import OwnerFacts
    from schemas.rest import PartitionView, Progress, ReplicaView

log = logging.getLogger("kvindexer.store")

RETRY_S: Final = 0.2
RETRY_MAX_S: Final = 2.0
FIRST_TRY_S: Final = 5.0
"""At the start, so long an answer of the store is waited for; then the service begins without."""
LOOK_S: Final = 1.0
LOOKS: Final = 5
"""For so many looks a refusal counts: what is refused is tried again sooner."""
REFUSALS_MIN: Final = 2
"""Refused so often meanwhile it is not a call that came at a bad moment."""
REFUSALS: Final[tuple[FailureKind, ...]] = ("denied", "out_of_memory", "read_only", "refused")
ALONE_AFTER_S: Final = 1.0


class Replica:
    """`collects`: whether it owns what it can; else it only follows."""

    def __init__(self, parts: Parts, *, namespace: str, collects: bool, secret_digest: str) -> None:
        self._parts = parts
        self._namespace = namespace
        self._facts = {"scheme": SCHEME, "partitions": str(parts.partitions), "secret": secret_digest}
        self._keys = {number: PartitionKeys(namespace, tag) for number, tag in enumerate(tags(parts.partitions))}
        self._news = News()
        self.followers = Followers(
            parts.client,
            self._keys,
            OnRoster(parts),
            parts.mirror,
            clock=parts.clock,
            chance=parts.chance,
            options=FollowOptions(retain_s=parts.options.retain_s),
        )
        self.owners: dict[int, Owner] = {}
        if collects:
            self.owners = {
                number: Owner(parts, keys, number, on_owned=self._owned, on_lost=self._lost, news=self._news)
                for number, keys in self._keys.items()
            }
        self.orders = Orders(parts, self._keys, self.owners, self.followers)
        self._configuring = Configuring(parts, self._keys, self.owners, self.followers)
        self._control = Control(parts, self._keys, self.owners)
        self._agreed = asyncio.Event()
        self._unfit: StoreFailure | None = None
        self._fitness_due_at = float("-inf")
        self._holders: dict[int, str] = {}
        """Of followed partitions: who owns them, as the store said last."""
        self._refused: deque[Counter[str]] = deque([Counter()], maxlen=LOOKS)
        """Calls that failed up to each of the latest looks."""
        self.draining: Draining | None = None
        """Where it is known who else is there."""
        self.trouble = ""
        """Why the store cannot be used now; empty where it can."""

    # -- what others see ----------------------------------------------------------------------------------------------

    @property
    def waiting_partitions(self) -> int:
        """Of which it is not known yet what the store has."""
        followed = {each.partition: each.state == "following" for each in self.followers.progress()}
        return sum(not self._is_known(number, followed) for number in self._keys)

    def _is_known(self, number: int, followed: Mapping[int, bool]) -> bool:
        owner = self.owners.get(number)
        return followed.get(number, False) or (owner is not None and owner.has_loaded)

    def progress(self) -> dict[str, Progress | dict[str, Progress]]:
        """For `/readyz`."""
        partitions = partitions_progress(
            self._parts.partitions,
            self._owner_facts().values(),
            self.followers.progress(),
            self.waiting_partitions,
        )
        return {"redis": {"up": self.is_up, "trouble": self.trouble or None}, "partitions": partitions}

    @property
    def is_up(self) -> bool:
        """Whether the store answers, and serves."""
        return self._agreed.is_set() and not self.trouble

    def views(self) -> list[PartitionView]:
        """For `GET /v1/partitions`."""
        followed = {each.partition: each for each in self.followers.progress()}
        around = Around(self._holders)
        return partition_views(self._parts.partitions, self._owner_facts(), followed, {}, around)

    def replicas(self) -> list[ReplicaView]:
        """For `GET /v1/partitions`: who is there."""
        return []

    def _owner_facts(self) -> dict[int, OwnerFacts]:
        now = self._parts.clock.now()
        return {number: facts_of(owner, now) for number, owner in self.owners.items()}

    def follows(self, source: SourceId) -> bool:
        """Whether a source is known by what its owner tells: where blocks lie, without maps and counts."""
        return self.followers.follows(self._parts.partition_of(source))

    def owner_of(self, source: SourceId) -> str | None:
        """The replica that applies a source's events, where known."""
        number = self._parts.partition_of(source)
        owner = self.owners.get(number)
        if owner is not None and owner.role == "owner":
            return owner.holder or None
        return self._holders.get(number) or None

    def health(self) -> StoreHealth:
        """For `/metrics`."""
        owned = [owner for owner in self.owners.values() if owner.role == "owner"]
        return StoreHealth(
            up=self.is_up,
            owned=len(owned),
            lags_s={owner.number: owner.age_s for owner in owned}
            | {each.partition: each.age_s for each in self.followers.progress() if each.age_s is not None},
            pending_bytes={owner.number: owner.pending_bytes for owner in owned},
            failures=dict(self._parts.client.failures),
        )

    # -- what happens to sources --------------------------------------------------------------------------------------

    def touched(self, source: SourceIndex) -> None:
        """Something of it changed. Called with every batch."""
        owner = self.owners.get(self._parts.partition_of(source.descriptor.id))
        if owner is not None:
            owner.touched(source)

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
        self.orders.remove_later(source)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """At the start: whether the store serves, and others agree. Raises SettingsError where it says no.

        Where it says nothing, the service starts without and asks on.
        """
        try:
            async with asyncio.timeout(FIRST_TRY_S):
                await self._agree()
        except StoreFailure as failure:
            if failure.kind == "unfit":
                raise SettingsError("redis.url", str(failure)) from None
            self._say(failure)
        except TimeoutError:
            self._say(StoreFailure("timeout"))

    async def run(self, stop: asyncio.Event, quiet: asyncio.Event) -> None:
        """Until `stop` is set; then, when `quiet` says that nothing is applied any more, write the rest and give up."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._ask_on(), name="store: agree"),
                tasks.create_task(self._watch(), name="store: watch"),
                tasks.create_task(self._begin_alone(), name="store: begin alone"),
                tasks.create_task(self.orders.run(), name="store: orders"),
                tasks.create_task(self._control.run(), name="store: control"),
                tasks.create_task(self._configure(), name="store: configure"),
                tasks.create_task(self._news.run(), name="store: news"),
            ]
            following = tasks.create_task(self._follow(stop), name="store: follow")
            owning = [
                tasks.create_task(self._own(owner), name=f"store: own {owner.number}") for owner in self.owners.values()
            ]
            await stop.wait()
            await quiet.wait()
            for task in [*owning, *running]:
                task.cancel()
            await asyncio.wait([*owning, *running])
            await self._end()
            following.cancel()
        await self._parts.client.close()

    async def _end(self) -> None:
        until = self._parts.clock.now() + self._parts.options.stop_s
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(owner.stop(until), name="store: end") for owner in self.owners.values()]
        left = sum(not end.result() for end in ends)
        if left:
            log.warning("the store: what waited for it in %d partitions was not written", left)

    async def _own(self, owner: Owner) -> None:
        await self._agreed.wait()
        await owner.run()

    async def _configure(self) -> None:
        await self._agreed.wait()
        if self.owners:
            await self._configuring.run()

    async def _follow(self, stop: asyncio.Event) -> None:
        await self._agreed.wait()
        if not self.owners:
            for number in self._keys:
                self.followers.follow(number)
        await self.followers.run(stop)

    async def _begin_alone(self) -> None:
        """A store that does not answer at the start keeps nobody from collecting what is configured."""
        await asyncio.sleep(ALONE_AFTER_S)
        for owner in self.owners.values():
            owner.begin_alone()

    async def _ask_on(self) -> None:
        rest = RETRY_S
        while not self._agreed.is_set():
            try:
                await self._agree()
            except StoreFailure as failure:
                self._say(failure)
                await asyncio.sleep(rest * (0.5 + 0.5 * self._parts.chance.random()))
                rest = min(2 * rest, RETRY_MAX_S)

    async def _agree(self) -> None:
        client = self._parts.client
        fitness = judge(await client.reports(), as_cluster=client.is_cluster)
        await agree(client, self._namespace, self._facts)
        self._agreed.set()
        log.info("the store: %s %s, %d partitions", fitness.kind, fitness.version, self._parts.partitions)
        self.trouble = ""

    async def _watch(self) -> None:
        """Whether the store answers, for whoever asks how it is."""
        await self._agreed.wait()
        while True:
            try:
                await agree(self._parts.client, self._namespace, self._facts)  # anew where the store was emptied
                await self._learn_owners()
                self._look_at_refusals()
                await self._look_at_fitness()
            except StoreFailure as failure:
                self._say(failure)
            else:
                if self.trouble:
                    log.info("the store: it answers again")
                self.trouble = ""
            await asyncio.sleep(LOOK_S)

    def _look_at_refusals(self) -> None:
        """Raises StoreFailure where it goes on refusing calls, though these looks are answered: rights may differ."""
        before, now = self._refused[0], self._parts.client.failures.copy()
        self._refused.append(now)
        for kind in REFUSALS:
            if now[kind] - before[kind] >= REFUSALS_MIN:
                raise StoreFailure(kind)

    async def _look_at_fitness(self) -> None:
        """A setting may be changed while it runs. Raises StoreFailure."""
        now = self._parts.clock.now()
        if self._unfit is not None or now >= self._fitness_due_at:
            self._fitness_due_at = now + self._parts.options.fitness_look_s
            self._unfit = None
            try:
                judge(await self._parts.client.reports(), as_cluster=self._parts.client.is_cluster)
            except StoreFailure as failure:
                if failure.kind == "unfit":
                    self._unfit = failure
                raise

    async def _learn_owners(self) -> None:
        """Of followed partitions: for people, who must know where to look."""
        for each in self.followers.progress():
            self._holders[each.partition] = replica_of(
                await self._parts.client.string(self._keys[each.partition].owner) or b""
            )

    def _say(self, failure: StoreFailure) -> None:
        text = str(failure)
        if failure.kind == "circuit_open" and self.trouble:
            return  # why it is not asked is known already
        if text != self.trouble:
            log.warning("%s", text)
            self.trouble = text

    # -- partitions come and go ---------------------------------------------------------------------------------------

    def _owned(self, number: int) -> None:
        self.followers.leave(number)

    def _lost(self, number: int) -> None:
        """Somebody else owns it: what they write is followed."""
        self.followers.follow(number)
