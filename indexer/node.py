"""The composition root: builds every part, owns their lifetime, and is what the faces talk to (api/ports.py).

Everything here runs on one event loop. `run` holds the background work (subscribers, housekeeping in slices) until
`stop` is set; all other methods are plain calls that return quickly.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import random
import socket
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

from indexer.allocator import return_freed_memory
from indexer.candidates import of_tenant
from indexer.collect.nobody import NobodyHeard
from indexer.demands import SequenceWaits, tell_unmet
from indexer.errors import DrainRefusedError, SourceElsewhereError, SourceSyncingError
from indexer.exporting import Exporting, Measured
from indexer.hashing.chain import SCHEME
from indexer.hashing.texts import TextMemo
from indexer.history import History, Mark, item_of, page, since_registered
from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.removals import Removals
from indexer.index.states import StateLimits
from indexer.ingest import Ingest
from indexer.loads.board import LoadBoard
from indexer.log_lines import about
from indexer.lookup import Lookup, hash_block_size
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES, Descriptor, SourceId, Tier
from indexer.partitions.parts import Nonces, Pace, Parts, ReplicaOptions
from indexer.partitions.replica import Replica
from indexer.receipts.speculation import Speculation
from indexer.recommend.blend import BlendWeights
from indexer.recommend.recommender import Recommender, Ways
from indexer.reporting import HISTORY_WHOLE, Core, Reporting
from indexer.roster import Roster
from indexer.scraping.scraper import Intervals, Scraper
from indexer.settings import followed_models, masked, replica_name
from indexer.slices import Slices
from indexer.source_log import A_CALLER, SourceLog, named
from indexer.source_views import block_views, source_load, source_status, source_view
from indexer.source_words import listed_warnings
from indexer.store.address import parse
from indexer.store.breaker import BreakerOptions
from indexer.store.client import Client, ClientOptions
from indexer.store.rebuild import SourceReader
from indexer.telemetry import Telemetry
from indexer.texts.asking import Asking
from indexer.texts.choice import read_tokenizers
from indexer.texts.health import Health
from indexer.texts.making import Making, TextOptions
from indexer.texts.remarks import TextRemarks
from schemas.history import HistoryList
from schemas.lookup import LookupQuery
from schemas.rest import HashResult, PartitionList, Readiness, SourceRegistered, SourcesTouched, VersionAnswer

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from indexer.collect.fleet import Fleet
    from indexer.discovery.found import Discoverer
    from indexer.discovery.keeper import Keeper
    from indexer.happenings import Happening
    from indexer.index.source import SourceIndex
    from indexer.lookup_view import Encoding
    from indexer.partitions.draining import Draining
    from indexer.ports import Clock, EventSink, TopicRegistrar
    from indexer.settings import Settings
    from schemas.explain import ExplainAnswer
    from schemas.feedback import FeedbackReport, FeedbackResult
    from schemas.lookup import Holdings, LookupAnswer
    from schemas.receipts import RoutedReport, RoutedResult
    from schemas.recommend import RecommendAnswer, RecommendQuery
    from schemas.reports import ConsistencyReport, StalenessReport, WindowName
    from schemas.rest import (
        BlockView,
        Progress,
        ReplicaDrained,
        SourcesReplaced,
        SourceView,
    )
    from schemas.watch import SourceStatus

_access_log: Final = logging.getLogger("kvindexer.access")
LAYOUT: Final = "1"
TIDY_PAUSE_S: Final = 0.002
"""Between two slices of housekeeping while there is some; each slice is under a millisecond."""
TIDY_IDLE_S: Final = 0.010
LOST_EVERY_S: Final = 1.0
SHIFT_MAX: Final = 24
BREAKER_REST_MAX_S: Final = 2.0
"""A store that fails is asked again after so long at most."""


class Node:
    """One process of the service, in memory mode or on a store."""

    def __init__(self, settings: Settings, clock: Clock, discoverers: Sequence[Discoverer] | None = None) -> None:
        """`discoverers`: in place of those that the settings ask for."""
        self.settings = settings
        self.clock = clock
        limits = StateLimits(
            stale_after_s=settings.staleness.stale_after_s,
            score_ttl_s=settings.staleness.score_ttl_s,
            suspect_weight=settings.events.suspect_weight,
        )
        secret = (settings.auth.hash_secret or "").encode()
        weights = settings.models.weights
        chance = random.SystemRandom()
        self.telemetry = Telemetry(clock, limits, self.version().version, per_source=settings.metrics.per_source)
        self.telemetry.follows = self._follows
        self.mirror = Mirror(chance.randrange(SHIFT_MAX), Removals(settings.limits.removals_kept, clock.now()))
        self.registry = Registry(aliases=settings.models.aliases, sources_max=settings.limits.sources)
        self.speculation = Speculation(
            self.mirror, blocks_max=settings.limits.speculative_blocks, reached=self.limit_reached
        )
        tier_ttls = _tier_ttls(settings)
        self.ingest = Ingest(
            self.mirror,
            clock,
            secret=secret,
            gap_policy=settings.events.gap_policy,
            orphans_max=settings.limits.orphans,
            count_copies=settings.events.copies == "count",
            tier_ttls=tier_ttls,
            durable=settings.redis.url is not None,
            silent_block_sizes={model: each.block_size for model, each in settings.models.approximate.items()},
        )
        memo_salt = chance.getrandbits(64)
        self.texts = TextMemo(memo_salt)
        self._lookup = Lookup(
            self.mirror,
            self.registry,
            clock,
            limits,
            secret=secret,
            memo_salt=memo_salt,
            weights=(weights.gpu, weights.cpu, weights.storage, weights.remote, weights.unknown),
            speculation=self.speculation,
        )
        self._recommender = self._on_recommending()
        self.replica: Replica | None = None
        self._waits = SequenceWaits(self.registry, self._watch_applied)
        self._watch_applied(waited_for=False)
        self.ingest.reshaped = self._reshaped
        self.source_log = SourceLog(
            self.registry,
            self._lookup.view,
            clock,
            follows=self._follows,
            remarks=self._remarks,
        )
        self._making, self._asking, self._text_remarks = self._on_texts(chance)
        self._exporting = Exporting(
            settings.telemetry,
            clock,
            Measured(self.telemetry, self.registry, self.source_log, self._measure),
            {"service.version": self.version().version, "service.instance.id": self._own_name()},
            chance,
        )
        self.tracing = self.ingest.tracing = self._exporting.tracing
        self.ingest.restarted = self.source_log.restarted
        self.history = History(clock, replica="" if settings.redis.url is None else self._own_name())
        self.ingest.happened = self._happened
        self.roster = Roster(
            settings,
            clock,
            self.registry,
            self.ingest,
            view=self._lookup.view,
            waits=self._waits,
            telemetry=self.telemetry,
            source_log=self.source_log,
        )
        self.roster.happened = self._note
        self.fleet = self.roster.fleet = _fleet(settings, clock, self.roster)
        self._refused: Counter[tuple[int, str]] = Counter()
        self.loads, self._scraper = self._on_loads()
        core = Core(
            self.mirror,
            self.registry,
            self._lookup,
            self.speculation,
            self.roster,
            self.history,
            tier_ttls,
            self.loads,
        )
        self.reporting = Reporting(settings, clock, core, self.telemetry, memo_salt)
        self._was_ready, self._started_at = False, clock.now()
        self._begin_with_sources(chance, secret)
        self.keeper = self._on_discovery(discoverers)

    def _begin_with_sources(self, chance: random.Random, secret: bytes) -> None:
        """What is configured, and where there is a store, what stands there."""
        if self.settings.redis.url is not None:
            self.replica = self._on_store(self.settings.redis.url, chance, secret)
            return
        for descriptor in self.settings.sources:
            self.roster.add(descriptor)

    def bind(self) -> None:
        """Bind the sockets on which engines connect, before `run`. Raises `SettingsError`; then there is no `run`."""
        self.fleet.bind()

    def listens_at(self, addresses: Sequence[str]) -> None:
        """Where callers reach this process: other replicas tell people."""
        if self.replica is not None and addresses:
            self.replica.sharing.address = addresses[0]

    async def check_store(self) -> None:
        """Whether the store serves and other replicas agree, before `run`. Raises `SettingsError` where it says no.

        Where it says nothing within some seconds, the service begins without and asks on.
        """
        if self.replica is not None:
            await self.replica.watch.check()

    async def run(self, stop: asyncio.Event, answered: asyncio.Event | None = None) -> None:
        """Subscribe and keep house until `stop` is set; make tokens of texts until `answered` is, if it is given.

        Between the two no engine is listened to any more, but callers who were let in are still answered.
        """
        gc.collect()
        gc.freeze()  # modules and code live as long as the process: no full collection needs to look at them
        return_freed_memory()  # of what was read to be loaded
        async with asyncio.TaskGroup() as tasks:
            ended = asyncio.Event()
            self._exporting.start(tasks, ended)
            await self._run_parts(stop, answered)
            ended.set()

    async def _run_parts(self, stop: asyncio.Event, answered: asyncio.Event | None) -> None:
        """All that may have something to trace."""
        async with asyncio.TaskGroup() as tasks:
            end, quiet = asyncio.Event(), asyncio.Event()
            fleet = tasks.create_task(self.fleet.run(end), name="fleet")
            tasks.create_task(self._keep_house(end), name="housekeeping")
            tasks.create_task(self._scraper.run(end), name="engines' metrics")
            tasks.create_task(self._making.run(answered or stop), name="texts")
            following = tasks.create_task(self.roster.follow(), name="follow")
            doubting = tasks.create_task(
                self.reporting.distrust.run(self.reporting.feedback.take_drifted), name="distrust"
            )
            keeping = None if self.keeper is None else tasks.create_task(self.keeper.run(), name="discovery")
            if self.replica is not None:
                tasks.create_task(self.replica.run(end, quiet), name="replica")
            await stop.wait()
            if keeping is not None:
                keeping.cancel()  # what becomes of its partition is for whoever gets it
            if self.replica is not None:
                await self.replica.give_away()
            end.set()
            following.cancel()
            doubting.cancel()
            await asyncio.wait([fleet])
            if self.replica is not None:
                await self._apply_the_rest()
            quiet.set()

    async def _apply_the_rest(self) -> None:
        """Large batches under way: the store takes batches whole, and nobody would bring these again."""
        slices = Slices(self.clock)
        for source in list(self.registry.sources.values()):
            while self.ingest.go_on(source):
                await slices.turn()

    # -- asking --------------------------------------------------------------------------------------------------------

    def lookup(self, query: LookupQuery, *, encoding: Encoding = "json") -> LookupAnswer:
        """Answer from memory."""
        answer = self._lookup.answer(query, encoding)
        if query.min_sequence:
            tell_unmet(self.registry, query, answer, self._lookup.view, self.clock.now())
        return answer

    def holdings(self, query: LookupQuery) -> Holdings:
        """Who holds how much of a prompt, from memory."""
        return self._lookup.holdings(query)

    def recommend(self, asked: RecommendQuery) -> RecommendAnswer:
        """Where to send a request, from memory."""
        return self._recommender.answer(asked)

    def note_sent(self, pod: str, dp_rank: int, request_id: str, tenant: str | None) -> None:
        """A request goes there, and nobody will report it."""
        self._recommender.sent(pod, dp_rank, request_id, tenant)

    def hash(self, query: LookupQuery) -> HashResult:
        """Token hashes of the whole blocks of a prompt."""
        size = hash_block_size(query)
        return HashResult(
            scheme=SCHEME,
            block_size=size,
            hashes=self._lookup.hashes(query, size).tolist(),
            prompt_tokens=len(query.tokens or b"") // TOKEN_BYTES,
        )

    async def report_routed(self, report: RoutedReport) -> RoutedResult:
        """A request was sent to a pod."""
        return await self.reporting.report_routed(report)

    def routed_refused(self) -> None:
        """Count it."""
        self.reporting.routed_refused()

    @property
    def silent_models(self) -> Container[str]:
        """Models whose engines may announce nothing."""
        return self.settings.models.approximate

    def address_of(self, pod: str, tenant: str | None) -> str | None:
        """Where a pod was said to be reached."""
        addresses = (each.descriptor.address for each in of_tenant(self.registry, pod, tenant or DEFAULT_TENANT))
        return next((address for address in addresses if address), None)

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        """The same question with tokens in the place of a text."""
        return await self._asking.tokenized(query)

    def tokenized_before(self, query: LookupQuery) -> LookupQuery | None:
        """The same at once, where the text is known; None where it takes time."""
        return self._asking.known(query)

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        """Return once every sequence in `query.min_sequence` is applied, or the time is over."""
        await self._waits.until_applied(query, timeout_s)

    # -- sources -------------------------------------------------------------------------------------------------------

    async def add_source(self, descriptor: Descriptor, *, by: str = A_CALLER) -> SourceRegistered:
        """Register."""
        if self.replica is not None:
            answer = await self.replica.orders.add(descriptor, by=by)
        else:
            result = self.roster.add(descriptor, by=by)
            answer = SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result=result)
        source = self.registry.sources.get(descriptor.id)
        if source is not None:  # else its owner has not come to it yet
            answer.warnings = [*listed_warnings(source, self.registry).values()]
        return answer

    async def replace_api_sources(
        self,
        descriptors: Sequence[Descriptor],
        *,
        max_removals: int | None = None,
        tenant: str | None = None,
        by: str = A_CALLER,
    ) -> SourcesReplaced:
        """Make these the whole set of origin `api`, of that tenant: all or nothing."""
        if self.replica is not None:
            return await self.replica.orders.replace(descriptors, max_removals=max_removals, tenant=tenant, by=by)
        return self.roster.replace_api(descriptors, max_removals=max_removals, tenant=tenant, by=by)

    async def remove_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """Remove one rank or all."""
        if self.replica is not None:
            return await self.replica.orders.remove(pod, dp_rank, tenant=tenant, by=by)
        return SourcesTouched(pod=pod, sources=self.roster.remove(pod, dp_rank, tenant=tenant, by=by))

    async def clear_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """New generation, everything of it gone."""
        if self.replica is not None:
            return await self.replica.orders.clear(pod, dp_rank, tenant=tenant, by=by)
        return SourcesTouched(pod=pod, sources=self.roster.clear(pod, dp_rank, tenant=tenant, by=by))

    async def cordon_source(
        self, pod: str, dp_rank: int | None, *, cordoned: bool, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """Set or lift the cordon."""
        if self.replica is not None:
            return await self.replica.orders.cordon(pod, dp_rank, cordoned=cordoned, tenant=tenant, by=by)
        touched = self.roster.cordon(pod, dp_rank, cordoned=cordoned, tenant=tenant, by=by)
        return SourcesTouched(pod=pod, sources=touched)

    def source_for_topic(self, pod: str, model: str | None, dp_rank: int) -> EventSink | None:
        """The sink of a publisher on a bound socket."""
        return self.roster.source_for_topic(pod, model, dp_rank)

    async def find_block(
        self, pod: str, dp_rank: int | None, block_hash: int, *, tenant: str | None = None
    ) -> list[BlockView]:
        """Entries under that engine hash or token hash."""
        slices = Slices(self.clock)
        views: list[BlockView] = []
        for source in self.registry.named(pod, dp_rank, tenant):
            if self._follows(source.descriptor.id):
                owner = None if self.replica is None else self.replica.owner_of(source.descriptor.id)
                raise SourceElsewhereError(pod, owner)
            if self.replica is not None and not self.replica.has_map(source):
                raise SourceSyncingError(pod)  # neither that it is held nor that it is not could be told
            views += await slices.run(block_views(source, self.mirror, block_hash))
        return views

    async def source_views(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        limit: int = 0,
        after: tuple[str, int] | None = None,
        tenant: str | None = None,
        counted: bool = True,
    ) -> list[SourceView]:
        """Sources in the order of (pod, rank), from the first one greater than `after`; `limit` 0 = all.

        `counted`: with the counters of sources that other replicas apply, which are read from the store.
        """
        slices = Slices(self.clock)
        views: list[SourceView] = []
        for key in sorted(self.registry.sources):
            await slices.turn()
            source = self.registry.sources.get(key)
            if source is None or (after is not None and key <= after):
                continue
            if tenant not in {None, source.descriptor.tenant}:
                continue
            prepared = self._lookup.view.prepared(source, self.clock.now())
            if (state is not None and prepared.state != state) or (model is not None and source.model != model):
                continue
            owner = None if self.replica is None else self.replica.owner_of(key)
            views.append(
                source_view(
                    source,
                    prepared,
                    self.clock,
                    self.registry,
                    owner=owner,
                    followed=self._follows(key),
                    remarks=[*self._text_remarks.of(source), *self._told_remarks(source)],
                )
            )
            views[-1].load = source_load(key, self.loads, self.clock.now())
            if limit and len(views) == limit:
                break
        if counted:
            followed = {SourceId(view.pod, view.dp_rank): view for view in views}
            keys = [key for key in followed if self._follows(key)]
            for key, told in (await self.reporting.told_counts(keys)).items():
                followed[key].counters = dict(sorted(told.counts.counters.items()))
        return views

    async def staleness_report(
        self, *, pod: str | None = None, model: str | None = None, state: str | None = None, tenant: str | None = None
    ) -> StalenessReport:
        """How sources are doing, and how they were."""
        return await self.reporting.staleness_report(pod=pod, model=model, state=state, tenant=tenant)

    def take_feedback(self, report: FeedbackReport) -> FeedbackResult:
        """What an engine really reused."""
        return self.reporting.take_feedback(report)

    def feedback_refused(self) -> None:
        """Count it."""
        self.telemetry.feedback_refused += 1

    async def consistency_report(
        self,
        *,
        pod: str | None = None,
        model: str | None = None,
        tenant: str | None = None,
        window: WindowName | None = None,
    ) -> ConsistencyReport:
        """What was answered beside what engines really reused."""
        report = self.reporting.consistency.report(pod=pod, model=model, tenant=tenant, window=window)
        return await Slices(self.clock).run(report)

    async def explain(self, query: LookupQuery, dp_rank: int | None = None) -> ExplainAnswer:
        """Why each source that a lookup lists holds no more of the prompt."""
        return await self.reporting.explain(query, dp_rank)

    @property
    def followed_models(self) -> list[str] | None:
        """Those that sources are followed of; None: all."""
        models = None if self.replica is None else self.replica.followers.models
        return None if models is None else sorted(models)

    async def source_statuses(self) -> list[SourceStatus]:
        """Of every source what a router must know at once."""
        slices = Slices(self.clock)
        statuses: list[SourceStatus] = []
        for source in list(self.registry.sources.values()):
            await slices.turn()
            statuses.append(source_status(source, self._lookup.view.prepared(source, self.clock.now())))
        return statuses

    async def source_history(
        self,
        pod: str,
        dp_rank: int | None,
        *,
        limit: int,
        after: tuple[int, int, int] | None,
        tenant: str | None = None,
    ) -> HistoryList:
        """What happened to a pod's sources, the newest first."""
        sources = [source.descriptor.id for source in self.registry.named(pod, dp_rank, tenant)]
        before, complete = None if after is None else Mark(*after), True
        if self.replica is not None:
            begins = (before, limit + 1) if tenant is None else (None, HISTORY_WHOLE)
            told, complete = await self.replica.histories.read(sources, *begins)
        else:
            told = [each for source in sources for each in self.history.kept(source)]
        if tenant is not None:
            told = since_registered(told)
        shown, following = page(told, before, limit)
        return HistoryList(
            pod=pod,
            items=[item_of(each) for each in shown],
            next=None if following is None else str(following),
            complete=complete,
        )

    async def partitions(self) -> PartitionList:
        """What this replica does with each partition of the store, and which replicas there are."""
        if self.replica is None:
            return PartitionList(mode="memory", partitions=[], replicas=[])
        return self.replica.overview.listed()

    async def drain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        """Have a replica give up all that it owns."""
        drained = await self._draining().drain(name)
        self.source_log.say(about("replica_drained"), "replica %s: drained by %s", named(name), by)
        return drained

    async def undrain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        """It may own again."""
        undrained = await self._draining().undrain(name)
        self.source_log.say(about("replica_undrained"), "replica %s: let own again by %s", named(name), by)
        return undrained

    def _draining(self) -> Draining:
        if self.replica is None:
            raise DrainRefusedError("there is no store that replicas share: nobody could take over (serve --redis-url)")
        return self.replica.draining

    # -- health --------------------------------------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Ready once every known source has a verdict, or `server.ready_wait_s` has passed."""
        now = self.clock.now()
        usable = [source for source in self.registry.sources.values() if source.facts.ready]  # others may take minutes
        states = Counter(self._lookup.view.prepared(source, now).state for source in usable)
        waited = now - self._started_at
        waiting = states["syncing"] + states["new"]
        if self.replica is not None:
            waiting += self.replica.overview.waiting_partitions
        if self.keeper is not None and self.keeper.is_learning:
            waiting += 1
        # Once ready, a source that is added or comes back does not take the whole instance out of rotation.
        self._was_ready = self._was_ready or waiting == 0 or waited >= self.settings.server.ready_wait_s
        ready = self._was_ready
        detail: dict[str, Progress | dict[str, Progress]] = {
            "sources": len(self.registry.sources),
            "waiting": waiting,
            **dict(sorted(states.items())),
        }
        if self.replica is not None:
            detail |= self.replica.overview.progress() | self.replica.overview.followed()
        return Readiness(ready=ready, detail=detail)

    def config(self) -> dict[str, Any]:
        """The effective settings, secrets masked."""
        return masked(self.settings)

    def count_reload(self, file: Literal["tokens", "tls"], *, usable: bool) -> None:
        """A file that says who may call has changed."""
        self.telemetry.reloads[file, "ok" if usable else "failed"] += 1

    async def metrics_text(self) -> bytes:
        """The metrics."""
        self._measure()
        return await Slices(self.clock).run(self.telemetry.text(list(self.registry.sources.values())))

    def _measure(self) -> None:
        """Have `telemetry` know what others count."""
        self.telemetry.nobodys = Counter()
        self.telemetry.texts.cache_bytes = self._making.cache_bytes
        self.reporting.measure()
        self.telemetry.discovery = None if self.keeper is None else self.keeper.health
        if self.mirror.removals.forgotten:
            self.telemetry.limits_reached["limits.removals_kept"] = self.mirror.removals.forgotten

        if self.replica is not None:
            dropped = self.replica.histories.dropped + self.history.dropped
            if dropped:
                self.telemetry.limits_reached["history.waiting"] = dropped
            self.telemetry.store = self.replica.overview.health(
                standby_bytes=self.fleet.standby_bytes, standby_dropped=self.fleet.standby_dropped
            )
        for counts in self.fleet.bound_counts:
            self.telemetry.nobodys.update(
                {
                    "wire.frames_malformed": counts.malformed,
                    "skipped.topic_unnamed": counts.unnamed,
                    "skipped.source_refused": counts.refused,
                }
            )

    def observe_lookup(self, *, api: str, input: str, code: int, state: str, seconds: float) -> None:  # noqa: A002
        """Count one lookup."""
        self.telemetry.lookups.observe(api, input, code, state, seconds)

    def known_names(self, names: Sequence[str], tenant: str | None) -> tuple[str, ...]:
        """Those by which a source of that tenant goes."""
        return tuple(name for name in names if of_tenant(self.registry, name, tenant or DEFAULT_TENANT))

    def follows_all(self, tenant: str | None) -> bool:
        """Whether every source of that tenant is known here."""
        return self.registry.follows_all(tenant or DEFAULT_TENANT)

    def knows_pool(self, tenant: str | None) -> bool:
        """Whether who is not known here is not there."""
        return not self.settings.events.source_bind and self.follows_all(tenant) and self.readiness().ready

    def requests_at(self, pod: str, dp_rank: int, tenant: str | None) -> float | None:
        """How many are there."""
        named = of_tenant(self.registry, pod, tenant or DEFAULT_TENANT)
        ids = [each.descriptor.id for each in named if each.descriptor.dp_rank == dp_rank]
        requests = self.loads.view(ids, self.clock.now()).requests
        return next((requests[each] for each in ids if each in requests), None)

    def request_ended(self, request_id: str, tenant: str | None) -> None:
        """It is over."""
        self.loads.ended(request_id, tenant)

    def count_pick(self, result: str) -> None:
        """Count one pick of an endpoint."""
        self.telemetry.picks[result] += 1

    def count_served(self, by: str) -> None:
        """Count who served a request that was picked for."""
        self.telemetry.served[by] += 1

    def limit_reached(self, limit: str) -> None:
        """Count it."""
        self.telemetry.limit_reached(limit)

    def return_memory(self) -> None:
        """What departed sources held is freed: give it back to the system.

        With nobody left no prompt is remembered either: what is remembered lies scattered and would pin the rest.
        """
        if not self.registry.sources:
            self._lookup.forget_prompts()
            self.mirror.table.forget_prompts()
            self.texts.forget()
            self._making.forget()
        return_freed_memory()

    def access_refused(self, status: int, code: str) -> None:
        """Count it; a line of the log says so within a second."""
        self._refused[status, code] += 1

    def version(self) -> VersionAnswer:
        """What runs here."""
        return VersionAnswer(version=version("kvindexer"), hash_scheme=SCHEME, layout=LAYOUT)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _on_loads(self) -> tuple[LoadBoard, Scraper]:
        """What is known of loads, and what reads engines' metrics; whoever recommends is told."""
        board = LoadBoard(self.limit_reached, interval_s=self.settings.loads.interval_s)
        models = self.settings.models
        intervals = Intervals(
            self.settings.loads.interval_s,
            self.settings.events.engine_metrics_s,
            models.discover_s if models.discover else None,
        )
        scraper = Scraper(
            self.registry,
            board,
            self.clock,
            intervals,
            follows=self._follows,
            limit_reached=self.limit_reached,
        )
        self.telemetry.scrapes = scraper.results
        self.telemetry.load_of = lambda key: board.numbers(key, self.clock.now())
        self._recommender.loads = board
        return board, scraper

    def _on_discovery(self, discoverers: Sequence[Discoverer] | None) -> Keeper | None:
        """Who brings the registry to what they tell; None where nobody is asked, or this replica only follows."""
        if "collect" not in self.settings.server.roles:
            return None
        from indexer.discovery import chosen, in_memory, in_store, keeper  # noqa: PLC0415 - only who collects needs it

        if discoverers is None:
            discoverers = chosen.discoverers(self.settings, self.clock)
        if not discoverers:
            return None
        ledger = (
            in_memory.InMemory(self.roster, self.registry)
            if self.replica is None
            else in_store.InStore(self.replica.discovered)
        )
        watching = keeper.Keeper(
            discoverers,
            ledger,
            self.clock,
            clears=self.roster.clears,
            log=self.source_log,
            sources_max=self.settings.limits.sources,
        )
        watching.vouched = self.roster.vouch
        return watching

    def _follows(self, source: SourceId) -> bool:
        return self.replica is not None and self.replica.follows(source)

    def _told_remarks(self, source: SourceIndex) -> list[str]:
        """What discovery could not do for it as it was told, and what its events say otherwise than was told."""
        key, keeper = source.descriptor.id, self.keeper
        if keeper is None:
            return []
        remark, size = keeper.remarks.get(str(key)), keeper.block_size_of(key)
        told = [] if remark is None else [f"discovery: {remark}"]
        if source.denies_block_size(size):
            told.append(
                f"discovery: its blocks are said to be of {size} tokens, and its events have {source.block_size}"
            )
        return told

    def _remarks(self, source: SourceIndex) -> dict[str, str]:
        return self._text_remarks.standing(source)

    def _watch_applied(self, *, waited_for: bool) -> None:
        """Each batch goes through here: who has nothing to do with it is not told."""
        if self.replica is not None:
            self.ingest.touched = self._touched_on_store
        else:
            self.ingest.touched = self._touched if waited_for else self._lookup.view.touch
        self._waited_for = waited_for

    def _touched(self, source: SourceIndex) -> None:
        self._lookup.view.touch(source)
        self._waits.applied(source)

    def _touched_on_store(self, source: SourceIndex) -> None:
        self._lookup.view.touch(source)
        if self._waited_for:
            self._waits.applied(source)
        if self.replica is not None:
            self.replica.touched(source)

    def _on_recommending(self) -> Recommender:
        told = self.settings.recommend
        ways = Ways(
            strategy=told.strategy,
            weights=BlendWeights(told.weights.prefix, told.weights.load, told.weights.speculative),
            floor=told.load_floor,
            non_cached_tokens=told.non_cached_tokens,
        )
        recommender = Recommender(self._lookup, self.registry, self.clock, ways, reached=self.limit_reached)
        recommender.recommended = self.telemetry.recommended
        return recommender

    def _on_texts(self, chance: random.Random) -> tuple[Making, Asking, TextRemarks]:
        """What makes tokens of prompts told as text. Raises `SettingsError` where a file cannot be had."""
        limits, view = self.settings.limits, self._lookup.view
        tokenizers = read_tokenizers(self.settings.models, self.clock)
        options = TextOptions(
            bytes_max=limits.text_bytes,
            tokens_max=limits.tokens,
            waiting_max=limits.texts_waiting,
            threads=limits.text_threads,
            cache_bytes=limits.text_cache_bytes,
            asks_engines=tokenizers.ask_engines,
        )
        health = Health(self.clock, self.source_log.say)
        making = Making(self.clock, options, self.telemetry.texts, chance.getrandbits(64), health)
        asking = Asking(
            self.clock,
            tokenizers,
            making,
            candidates=self._lookup.candidates,
            state=lambda source: view.prepared(source, self.clock.now()).state,
            timeout_ms=limits.text_timeout_ms,
        )
        return making, asking, TextRemarks(tokenizers, health)

    def _own_name(self) -> str:
        """Of this process among all."""
        return replica_name(self.settings, socket.gethostname(), os.getpid())

    def _on_store(self, url: str, chance: random.Random, secret: bytes) -> Replica:
        """The part of this process that has to do with the store."""
        settings = self.settings
        redis = settings.redis
        # When a store is back each replica must have found out well before others may judge it by its silence.
        rests = BreakerOptions(rest_max_s=min(BREAKER_REST_MAX_S, redis.lease_s / 5))
        options = ClientOptions(timeout_s=redis.timeout_ms / 1000, breaker=rests)
        client = Client(parse(url), options, self.clock, chance)
        replica_options = ReplicaOptions(
            name=self.history.replica,
            lease_s=redis.lease_s,
            heartbeat_s=redis.heartbeat_s,
            min_hold_s=redis.min_hold_s,
            standby=bool(redis.standby),
            retain_s=settings.staleness.retain_s,
            follow=followed_models(settings.models),
            stale_after_s=settings.staleness.stale_after_s,
            pending_bytes=redis.pending_bytes,
            journal_bytes=redis.journal_bytes,
        )
        parts = Parts(
            client=client,
            clock=self.clock,
            chance=chance,
            mirror=self.mirror,
            registry=self.registry,
            ingest=self.ingest,
            roster=self.roster,
            configured={descriptor.id: descriptor for descriptor in settings.sources},
            options=replica_options,
            reader=SourceReader(client, replica_options.load),
            nonces=Nonces(chance),
            pace=Pace(replica_options.share_s),
            partitions=redis.partitions,
            history=self.history,
            tracing=self.tracing,
        )
        replica = Replica(
            parts,
            namespace=redis.namespace,
            collects="collect" in settings.server.roles,
            secret_digest=_digest(secret),
        )
        self.reporting.share(replica)
        if settings.models.discover:
            replica.names.share(self.limit_reached)
        self.ingest.touched = self._touched_on_store
        self.roster.appeared = replica.appeared
        self.roster.gone_for_good = replica.gone_for_good
        self.roster.may_appear = replica.may_appear
        return replica

    def _happened(self, source: SourceIndex, happening: Happening) -> None:
        self._note(source.descriptor.id, happening)

    def _note(self, key: SourceId, happening: Happening) -> None:
        self.history.note(key, happening)
        self.reporting.feedback.happened(key, happening)

    def _reshaped(self, _: SourceIndex) -> None:
        self.registry.version += 1

    def _say_refused(self) -> None:
        """One line of all since the last, with nothing of what was sent."""
        if self._refused:
            counts = ", ".join(f"{status} {code} ({times})" for (status, code), times in sorted(self._refused.items()))
            _access_log.warning("requests refused for who asked: %s", counts, extra=about("requests_refused"))
            self._refused.clear()

    async def _keep_house(self, stop: asyncio.Event) -> None:
        """Slices of background work, and the event loop's own delay."""
        look_for_lost_at = 0.0
        while not stop.is_set():
            if self.clock.now() >= look_for_lost_at:
                slices = Slices(self.clock)
                await slices.run(self.roster.forget_lost())
                await slices.run(self.source_log.look())
                await slices.run(self.history.tidy(self.registry.sources))
                self._say_refused()
                await slices.run(self.reporting.look())
                look_for_lost_at = self.clock.now() + LOST_EVERY_S
            self.history.turn()
            self.mirror.removals.now = self.clock.now()  # of what the journal tells; ingest has its own moments
            busy = self.ingest.tidy_slice()
            busy = self.reporting.tidy() or busy
            if self.roster.left and not busy:  # what departed sources held is freed: give it back to the system
                self.roster.left = False
                self.return_memory()
            pause = TIDY_PAUSE_S if busy else TIDY_IDLE_S
            due = self.clock.now() + pause
            await asyncio.sleep(pause)
            self.telemetry.lagged(self.clock.now() - due)


def _tier_ttls(settings: Settings) -> dict[Tier, float]:
    ttls = settings.staleness.entry_ttl_s
    named = (ttls.gpu, ttls.cpu, ttls.storage, ttls.remote, ttls.unknown)
    return {tier: ttl for tier, ttl in zip(Tier, named, strict=True) if ttl is not None}


def _fleet(settings: Settings, clock: Clock, registrar: TopicRegistrar) -> Fleet | NobodyHeard:
    """What subscribes to engines, where any is to be."""
    if "collect" not in settings.server.roles:
        return NobodyHeard()
    from indexer.collect.fleet import Fleet  # noqa: PLC0415 - 3 MB, only where it is used
    from indexer.collect.options import CollectOptions  # noqa: PLC0415 - as above

    events = settings.events
    options = CollectOptions(
        bind_endpoints=events.source_bind,
        rcvhwm_messages=events.rcvhwm,
        message_max_bytes=events.max_message_bytes,
        heartbeat_interval_s=events.heartbeat_ms / 1000,
        heartbeat_timeout_s=3 * events.heartbeat_ms / 1000,
        heartbeat_ttl_s=6 * events.heartbeat_ms / 1000,
        reconnect_min_s=events.reconnect_ms / 1000,
        reconnect_max_s=events.reconnect_max_ms / 1000,
        sources_max=settings.limits.sources,
        lane_bytes=events.lane_bytes,
        lanes_total_bytes=events.lanes_total_bytes,
        standby_total_bytes=settings.redis.standby_bytes,
        probe_interval_s=events.probe_interval_s,
        replay_timeout_s=events.replay_timeout_s,
        replay_overall_s=max(60.0, 6 * events.replay_timeout_s),
        min_engine_restart_s=events.min_engine_restart_s,
    )
    return Fleet(options, clock, registrar)


def _digest(secret: bytes) -> str:
    """What tells two secrets apart and does not tell the secret, also where that is a weak one."""
    return hashlib.pbkdf2_hmac("sha256", secret, b"kvindexer", 200_000).hex()[:16] if secret else ""
