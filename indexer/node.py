"""The composition root: builds every part, owns their lifetime, and is what the faces talk to (api/ports.py).

Everything here runs on one event loop. `run` holds the background work (subscribers, housekeeping in slices) until
`stop` is set; all other methods are plain calls that return quickly.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter, deque
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from indexer.allocator import return_freed_memory
from indexer.collect.fleet import Fleet
from indexer.collect.options import CollectOptions
from indexer.demands import SequenceWaits, tell_unmet
from indexer.errors import LimitReachedError, SourceConflictError, TooManyRemovalsError
from indexer.hashing.chain import SCHEME, TOKEN_BYTES
from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.states import StateLimits
from indexer.ingest import Ingest
from indexer.lookup import Lookup, hash_block_size
from indexer.model import Descriptor, SourceId, Tier
from indexer.slices import Slices
from indexer.source_views import block_views, reason_in_words, source_view
from indexer.telemetry import Telemetry
from schemas.rest import HashResult, Readiness, SourcesReplaced, VersionAnswer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from indexer.index.source import SourceIndex
    from indexer.ingest import SourceSink
    from indexer.lookup_view import Encoding
    from indexer.model import Origin
    from indexer.ports import Clock, EventSink
    from indexer.settings import Settings
    from schemas.lookup import LookupAnswer, LookupQuery
    from schemas.rest import BlockView, SourceView

log = logging.getLogger("kvindexer.sources")

SILENT: Final = ("new", "lower")
"""How every source begins: no news."""
LAYOUT: Final = "1"
TIDY_PAUSE_S: Final = 0.002
"""Between two slices of housekeeping while there is some; each slice is under a millisecond."""
TIDY_IDLE_S: Final = 0.010
LOST_EVERY_S: Final = 1.0
CLEARS_WINDOW_S: Final = 60.0
SHIFT_MAX: Final = 24
_LOCKED_ORIGINS: Final[tuple[Origin, ...]] = ("flag", "config")


class Node:
    """One process of the service, in memory mode."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
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
        self.mirror = Mirror(shift=chance.randrange(SHIFT_MAX))
        self.registry = Registry(aliases=settings.models.aliases, sources_max=settings.limits.sources)
        self.ingest = Ingest(
            self.mirror,
            clock,
            secret=secret,
            gap_policy=settings.events.gap_policy,
            orphans_max=settings.limits.orphans,
            count_copies=settings.events.copies == "count",
            tier_ttls=_tier_ttls(settings),
        )
        self._lookup = Lookup(
            self.mirror,
            self.registry,
            clock,
            limits,
            secret=secret,
            memo_salt=chance.getrandbits(64),
            weights=(weights.gpu, weights.cpu, weights.storage, weights.remote, weights.unknown),
        )
        self._waits = SequenceWaits(self.registry, self._watch_applied)
        self._watch_applied(waited_for=False)
        self.ingest.reshaped = self._reshaped
        self.telemetry = Telemetry(clock, limits, self.version().version, per_source=settings.metrics.per_source)
        self.fleet = Fleet(_collect_options(settings), clock, self)
        self._sinks: dict[SourceId, SourceSink] = {}
        self._clears: deque[float] = deque()
        self._to_follow: dict[SourceId, None] = {}
        self._followed_anew = asyncio.Event()
        self._left = False
        self._was_ready = False
        self._shown: dict[SourceId, tuple[str, str]] = {}
        self._started_at = clock.now()
        for descriptor in settings.sources:
            self.add_source(descriptor)

    async def run(self, stop: asyncio.Event) -> None:
        """Subscribe and keep house until `stop` is set."""
        gc.collect()
        gc.freeze()  # modules and code live as long as the process: no full collection needs to look at them
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.fleet.run(stop), name="fleet")
            tasks.create_task(self._keep_house(stop), name="housekeeping")
            following = tasks.create_task(self._follow_all(), name="follow")
            await stop.wait()
            following.cancel()

    # -- asking --------------------------------------------------------------------------------------------------------

    def lookup(self, query: LookupQuery, *, encoding: Encoding = "json") -> LookupAnswer:
        """Answer from memory."""
        answer = self._lookup.answer(query, encoding)
        if query.min_sequence:
            tell_unmet(self.registry, query, answer, self._lookup.view, self.clock.now())
        return answer

    def hash(self, query: LookupQuery) -> HashResult:
        """Token hashes of the whole blocks of a prompt."""
        size = hash_block_size(query)
        return HashResult(
            scheme=SCHEME,
            block_size=size,
            hashes=self._lookup.hashes(query, size).tolist(),
            prompt_tokens=len(query.tokens or b"") // TOKEN_BYTES,
        )

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        """Return once every sequence in `query.min_sequence` is applied, or the time is over."""
        await self._waits.until_applied(query, timeout_s)

    # -- sources -------------------------------------------------------------------------------------------------------

    def add_source(self, descriptor: Descriptor) -> Literal["created", "same"]:
        """Register.

        An equal registration is a no-op; one that differs is refused, as are names that another pod has.
        """
        known = self._sinks.get(descriptor.id)
        if known is not None:
            if _same(known.descriptor, descriptor):
                return "same"
            field = _first_difference(known.descriptor, descriptor)
            raise SourceConflictError(
                field, f"{descriptor.id} is registered with another {field} (origin {known.descriptor.origin})"
            )
        self._check(descriptor)
        self._open(descriptor)
        return "created"

    def replace_api_sources(
        self, descriptors: Sequence[Descriptor], *, max_removals: int | None = None
    ) -> SourcesReplaced:
        """Make these the whole set of origin `api`: all or nothing.

        `max_removals`: so many pods of which blocks are known may lose them, whatever `max_clears_per_minute` says.
        """
        wanted: dict[SourceId, Descriptor] = {}
        for descriptor in descriptors:
            if descriptor.id in wanted:
                raise SourceConflictError("pod", f"{descriptor.id} is in the list twice")
            wanted[descriptor.id] = descriptor
        present = {key: sink.descriptor for key, sink in self._sinks.items() if sink.descriptor.origin == "api"}
        kept = {key for key, descriptor in wanted.items() if key in present and _same(present[key], descriptor)}
        fixed = {key: sink.descriptor for key, sink in self._sinks.items() if key not in present}
        fresh = [descriptor for key, descriptor in wanted.items() if key not in kept and not _stands(fixed, descriptor)]
        gone = [key for key in present if key not in kept]
        self.registry.check_all(gone, fresh)
        self._allow_removals(self._pods_with_blocks(gone), max_removals)
        for key in gone:
            self._leave(key)
        for descriptor in fresh:
            self._enter(descriptor)
        self._follow([*gone, *(descriptor.id for descriptor in fresh)])
        removed = sum(1 for key in gone if key not in wanted)
        return SourcesReplaced(added=len(fresh), kept=len(wanted) - len(fresh), removed=removed)

    def remove_source(self, pod: str, dp_rank: int | None) -> int:
        """Remove one rank or all; sources of flags and configuration stay."""
        sources = self.registry.named(pod, dp_rank)
        for source in sources:
            if source.descriptor.origin in _LOCKED_ORIGINS:
                raise SourceConflictError(
                    "origin", f"{source.descriptor.id} comes from a {source.descriptor.origin}: remove it there"
                )
        self._allow_clears(self._pods_with_blocks([source.descriptor.id for source in sources]))
        for source in sources:
            self._close(source.descriptor.id)
        return len(sources)

    def clear_source(self, pod: str, dp_rank: int | None) -> int:
        """New generation, everything of it gone."""
        sources = self.registry.named(pod, dp_rank)
        self._allow_clears(1)
        for source in sources:
            source.counters["cleared_by_operator"] += 1
            self.ingest.clear(self._sinks[source.descriptor.id])
        return len(sources)

    def cordon_source(self, pod: str, dp_rank: int | None, *, cordoned: bool) -> int:
        """Set or lift the cordon: a cordoned source goes on learning and is listed with score 0."""
        sources = self.registry.named(pod, dp_rank)
        for source in sources:
            source.facts.cordoned = cordoned
            self._lookup.view.touch(source)
        return len(sources)

    async def find_block(self, pod: str, dp_rank: int | None, block_hash: int) -> list[BlockView]:
        """Entries under that engine hash or token hash."""
        slices = Slices(self.clock)
        views: list[BlockView] = []
        for source in self.registry.named(pod, dp_rank):
            views += await slices.run(block_views(source, self.mirror, block_hash))
        return views

    async def source_views(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        limit: int = 0,
        after: tuple[str, int] | None = None,
    ) -> list[SourceView]:
        """Sources in the order of (pod, rank), from the first one greater than `after`; `limit` 0 = all."""
        slices = Slices(self.clock)
        views: list[SourceView] = []
        for key in sorted(self.registry.sources):
            await slices.turn()
            source = self.registry.sources.get(key)
            if source is None or (after is not None and key <= after):
                continue
            prepared = self._lookup.view.prepared(source, self.clock.now())
            if (state is not None and prepared.state != state) or (
                model is not None and source.descriptor.model != model
            ):
                continue
            views.append(source_view(source, prepared, self.clock))
            if limit and len(views) == limit:
                break
        return views

    def source_for_topic(self, pod: str, model: str | None, dp_rank: int) -> EventSink | None:
        """The sink of a publisher on a bound socket; a source registered otherwise wins over its topic.

        One that came by topic itself and serves another model now is registered anew; a cordon stays on the pod.
        """
        known = self._sinks.get(SourceId(pod, dp_rank))
        if known is not None and (known.descriptor.origin != "topic" or known.descriptor.model == model):
            return known
        descriptor = Descriptor(pod=pod, dp_rank=dp_rank, model=model, origin="topic")
        try:
            self._check(descriptor)
        except (LimitReachedError, SourceConflictError):
            return None
        if known is not None:
            self._close(known.descriptor.id)
        sink = self._enter(descriptor)
        sink.source.facts.cordoned = known is not None and known.source.facts.cordoned
        return sink

    # -- health --------------------------------------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Ready once every known source has a verdict, or `server.ready_wait_s` has passed."""
        now = self.clock.now()
        states = Counter(self._lookup.view.prepared(s, now).state for s in self.registry.sources.values())
        waited = now - self._started_at
        waiting = states["syncing"] + states["new"]
        # Once ready, a source that is added or comes back does not take the whole instance out of rotation.
        self._was_ready = self._was_ready or waiting == 0 or waited >= self.settings.server.ready_wait_s
        ready = self._was_ready
        return Readiness(
            ready=ready,
            detail={"sources": len(self.registry.sources), "waiting": waiting, **dict(sorted(states.items()))},
        )

    async def metrics_text(self) -> bytes:
        """The metrics."""
        return await Slices(self.clock).run(self.telemetry.text(list(self.registry.sources.values())))

    def observe_lookup(self, *, api: str, input: str, code: int, state: str, seconds: float) -> None:  # noqa: A002
        """Count one lookup."""
        self.telemetry.lookups.observe(api, input, code, state, seconds)

    def version(self) -> VersionAnswer:
        """What runs here."""
        return VersionAnswer(version=version("kvindexer"), hash_scheme=SCHEME, layout=LAYOUT)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _check(self, descriptor: Descriptor) -> None:
        try:
            self.registry.check(descriptor)
        except LimitReachedError as error:
            self.telemetry.limits_reached[error.limit] += 1
            raise

    def _open(self, descriptor: Descriptor) -> None:
        self._enter(descriptor)
        self._follow([descriptor.id])

    def _follow(self, keys: Iterable[SourceId]) -> None:
        """Have subscribers begin and end. Making sockets takes 0.4 ms a source, so it is done in the background."""
        self._to_follow.update(dict.fromkeys(keys))
        self._followed_anew.set()

    async def _follow_all(self) -> None:
        while True:
            await self._followed_anew.wait()
            self._followed_anew.clear()
            while self._to_follow:
                key = next(iter(self._to_follow))
                del self._to_follow[key]
                sink = self._sinks.get(key)
                if sink is None:
                    self.fleet.stop(key)
                elif sink.descriptor.endpoint is not None:
                    self.fleet.start(sink)
                await asyncio.sleep(0)

    def _enter(self, descriptor: Descriptor) -> SourceSink:
        sink = self.ingest.open_source(descriptor)
        self._sinks[descriptor.id] = sink
        self.registry.add(sink.source)
        self._waits.reshaped()
        self._lookup.view.fit(len(self.registry.sources))
        return sink

    def _close(self, source_id: SourceId) -> None:
        self._leave(source_id)
        self.fleet.stop(source_id)

    def _leave(self, source_id: SourceId) -> None:
        sink = self._sinks.pop(source_id)
        self.registry.remove(source_id)
        self._waits.reshaped()
        self.ingest.close_source(sink)
        self.telemetry.departed.update(sink.source.counters)
        self._left = True
        self._lookup.view.fit(len(self.registry.sources))

    def _pods_with_blocks(self, keys: Iterable[SourceId]) -> int:
        """How many pods something would be forgotten of; what never spoke can go unnoticed."""
        sources = (self._sinks[key].source for key in keys)
        return len({source.descriptor.pod for source in sources if source.pairs or source.map.waiting})

    def _allow_removals(self, pods: int, max_removals: int | None) -> None:
        """`max_clears_per_minute`, unless the caller says that it means as many."""
        if max_removals is not None and pods <= max_removals:
            return
        limit = self.settings.limits.max_clears_per_minute
        if pods > limit:  # waiting would not help
            self.telemetry.limits_reached["limits.max_clears_per_minute"] += 1
            raise TooManyRemovalsError(pods, limit)
        self._allow_clears(pods)

    def _allow_clears(self, pods: int) -> None:
        """`max_clears_per_minute`: a discovery that has gone wrong must not empty the index."""
        now, limit = self.clock.now(), self.settings.limits.max_clears_per_minute
        while self._clears and now - self._clears[0] >= CLEARS_WINDOW_S:
            self._clears.popleft()
        beyond = len(self._clears) + pods - limit
        if beyond > 0:
            self.telemetry.limits_reached["limits.max_clears_per_minute"] += 1
            turn = self._clears[min(beyond, len(self._clears)) - 1] if self._clears else now
            raise LimitReachedError("limits.max_clears_per_minute", limit, retry_s=turn + CLEARS_WINDOW_S - now)
        self._clears.extend([now] * pods)

    def _watch_applied(self, *, waited_for: bool) -> None:
        """Each batch goes through here: while no question waits for one, the read side alone is told."""
        self.ingest.touched = self._touched if waited_for else self._lookup.view.touch

    def _touched(self, source: SourceIndex) -> None:
        self._lookup.view.touch(source)
        self._waits.applied(source)

    def _reshaped(self, _: SourceIndex) -> None:
        self.registry.version += 1

    def _forget_lost(self) -> Generator[None, None, None]:
        """Sources gone for `retain_s`: their memory comes back, and those that came by topic leave altogether."""
        retain_s = self.settings.staleness.retain_s
        for key, source in list(self.registry.sources.items()):
            yield
            if self.registry.sources.get(key) is not source:
                continue
            lost = self.ingest.forget_lost(source, retain_s)
            if source.facts.alive_at is None:  # never seen connected: its registration is all there is to count from
                lost = self.clock.now() - source.since >= retain_s
            if lost and source.descriptor.origin == "topic":
                self._close(key)

    def _log_changes(self) -> Generator[None, None, None]:
        """One line for each source whose state or bound is another than a second ago."""
        shown: dict[SourceId, tuple[str, str]] = {}
        for key, source in list(self.registry.sources.items()):
            yield
            if self.registry.sources.get(key) is not source:
                continue
            view = self._lookup.view.prepared(source, self.clock.now())
            shown[key] = (view.state, view.bound)
            if shown[key] != self._shown.get(key, SILENT):
                why = reason_in_words(source.facts, view)
                log.info("source %s: %s, bound %s%s", key, view.state, view.bound, f" ({why})" if why else "")
        for key in self._shown.keys() - shown.keys():
            yield
            log.info("source %s: removed", key)
        self._shown = shown

    async def _keep_house(self, stop: asyncio.Event) -> None:
        """Slices of background work, and the event loop's own delay."""
        look_for_lost_at = 0.0
        while not stop.is_set():
            if self.clock.now() >= look_for_lost_at:
                slices = Slices(self.clock)
                await slices.run(self._forget_lost())
                await slices.run(self._log_changes())
                look_for_lost_at = self.clock.now() + LOST_EVERY_S
            busy = self.ingest.tidy_slice()
            if self._left and not busy:  # what departed sources held is freed: give it back to the system
                self._left = False
                return_freed_memory()
            pause = TIDY_PAUSE_S if busy else TIDY_IDLE_S
            due = self.clock.now() + pause
            await asyncio.sleep(pause)
            self.telemetry.loop_lag_s = max(self.telemetry.loop_lag_s, self.clock.now() - due)


def _tier_ttls(settings: Settings) -> dict[Tier, float]:
    ttls = settings.staleness.entry_ttl_s
    named = (ttls.gpu, ttls.cpu, ttls.storage, ttls.remote, ttls.unknown)
    return {tier: ttl for tier, ttl in zip(Tier, named, strict=True) if ttl is not None}


def _same(known: Descriptor, new: Descriptor) -> bool:
    """Equal but for where it came from: a registrar that posts what a flag says already changes nothing."""
    return known == msgspec.structs.replace(new, origin=known.origin)


def _stands(fixed: dict[SourceId, Descriptor], new: Descriptor) -> bool:
    """Whether a source of another origin already is what is asked for; raises where it differs."""
    known = fixed.get(new.id)
    if known is None:
        return False
    if not _same(known, new):
        raise SourceConflictError("pod", f"{new.id} comes from a {known.origin} and differs")
    return True


def _first_difference(known: Descriptor, new: Descriptor) -> str:
    for field in new.__struct_fields__:
        if field != "origin" and getattr(known, field) != getattr(new, field):
            return field
    return "origin"


def _collect_options(settings: Settings) -> CollectOptions:
    events = settings.events
    return CollectOptions(
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
        probe_interval_s=events.probe_interval_s,
        replay_timeout_s=events.replay_timeout_s,
        replay_overall_s=max(60.0, 6 * events.replay_timeout_s),
        min_engine_restart_s=events.min_engine_restart_s,
    )
