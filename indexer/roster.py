"""Which sources are followed: registration, whole lists, removal, clears, and what protects the index from them.

Relies on: all calls come on one event loop. Promises: what is registered is listed at once and followed soon; what is
removed is never scored again (P4); a list takes effect whole or not at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from indexer.clear_limit import ClearLimit
from indexer.errors import LimitReachedError, SourceConflictError, TooManyRemovalsError
from indexer.happenings import Happening
from indexer.index.registry import is_redescribed, taken
from indexer.log_lines import about
from indexer.model import Descriptor, SourceId
from indexer.source_log import A_CALLER, named, names
from schemas.rest import SourcesReplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from indexer.demands import SequenceWaits
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.ingest import Ingest, SourceSink
    from indexer.log_lines import Event
    from indexer.lookup_view import FleetView
    from indexer.model import Origin
    from indexer.ports import Clock, Collector, EventSink
    from indexer.settings import Settings
    from indexer.source_log import SourceLog
    from indexer.store.registered import Registered
    from indexer.telemetry import Telemetry

_DONE: Final[dict[Event, str]] = {
    "source_removed": "removed",
    "source_cleared": "cleared",
    "source_cordoned": "cordoned",
    "source_uncordoned": "uncordoned",
}
"""By a command."""
_LOCKED_ORIGINS: Final[tuple[Origin, ...]] = ("flag", "config")


class Exchange(NamedTuple):
    """What a whole list changes: `gone` leave or are registered anew, `removed` of them altogether.

    `counted`: of those, one of each pod that counts against `max_clears_per_minute`.
    """

    gone: list[SourceId]
    removed: list[SourceId]
    fresh: list[Descriptor]
    cordoned: frozenset[SourceId]
    counted: frozenset[SourceId]
    answer: SourcesReplaced


class Touched(NamedTuple):
    """Sources that a caller may clear or remove. `counted` as in `Exchange`."""

    keys: list[SourceId]
    counted: frozenset[SourceId]


class Roster:
    """The sources of one process. `fleet` subscribes for them."""

    fleet: Collector

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        registry: Registry,
        ingest: Ingest,
        *,
        view: FleetView,
        waits: SequenceWaits,
        telemetry: Telemetry,
        source_log: SourceLog,
    ) -> None:
        self._retain_s = settings.staleness.retain_s
        self._clock = clock
        self._registry = registry
        self._ingest = ingest
        self._view = view
        self._waits = waits
        self._telemetry = telemetry
        self._log = source_log
        self._sinks: dict[SourceId, SourceSink] = {}
        self.clears = ClearLimit(settings.limits.max_clears_per_minute, clock, telemetry, source_log)
        self._to_follow: dict[SourceId, None] = {}
        self._followed_anew = asyncio.Event()
        self.appeared: Callable[[SourceSink], None] = _ignore_sink
        """Called when a source came by its topic."""
        self.gone_for_good: Callable[[SourceId], None] = _ignore_key
        """Called when one that came by its topic leaves altogether."""
        self.may_appear: Callable[[SourceId], bool] = _always
        """Whether a source that is not known may come by its topic now."""
        self.changes = 0
        """How often a source came or went."""
        self.happened: Callable[[SourceId, Happening], None] = _ignore_happening
        """Called with what goes into the history of a source."""
        self.left = False
        """Set when a source leaves; whoever gives memory back takes it away."""

    async def follow(self) -> None:
        """Have subscribers begin and end, one a turn of the loop; until cancelled."""
        while True:
            await self._followed_anew.wait()
            self._followed_anew.clear()
            while self._to_follow:
                key = next(iter(self._to_follow))
                del self._to_follow[key]
                sink = self._sinks.get(key)
                if sink is None:
                    self.fleet.stop(key)
                elif sink.descriptor.endpoint is not None and not sink.followed:
                    self.fleet.start(sink)
                await asyncio.sleep(0)

    def add(self, descriptor: Descriptor, *, by: str = A_CALLER) -> Literal["created", "same"]:
        """Register.

        An equal registration is a no-op; one that differs is refused, as are names that another pod has.
        """
        if self.stands(descriptor):
            return "same"
        self._open(descriptor)
        self.say_registered(descriptor, by)
        return "created"

    def stands(self, descriptor: Descriptor) -> bool:
        """Whether it is registered so; raises where it cannot be."""
        known = self._sinks.get(descriptor.id)
        if known is None:
            self._check(descriptor)
            return False
        if same_but_origin(known.descriptor, descriptor):
            return True
        raise differs(known.descriptor, descriptor)

    def say_registered(self, descriptor: Descriptor, by: str) -> None:
        """For the operator."""
        if descriptor.origin == "api":
            events = "no endpoint" if descriptor.endpoint is None else f"events at {named(descriptor.endpoint)}"
            extra = about("source_registered", source=descriptor.id, model=descriptor.model)
            self._log.say(extra, "source %s: registered by %s, %s", named(descriptor.id), by, events)

    def say_done(self, keys: Iterable[SourceId], what: Event, by: str) -> None:
        """For the operator: a command, in one line, however many sources it reached."""
        reached = list(keys)
        extra = about(what, source=reached[0]) if len(reached) == 1 else about(what)
        self._log.say(extra, "source %s: %s by %s", names(reached), _DONE[what], by)

    def replace_api(
        self,
        descriptors: Sequence[Descriptor],
        *,
        max_removals: int | None = None,
        tenant: str | None = None,
        by: str = A_CALLER,
    ) -> SourcesReplaced:
        """Make these the whole set of origin `api`, of that tenant: all or nothing.

        `max_removals`: so many sources may be removed or registered anew and no more; of so many blocks may be
        forgotten, whatever `max_clears_per_minute` says.
        """
        exchange = self.plan_exchange(descriptors, max_removals=max_removals, tenant=tenant)
        for key in exchange.gone:
            self._leave(key)
        for descriptor in exchange.fresh:
            self._enter(descriptor).source.facts.cordoned = descriptor.id in exchange.cordoned
        self.follow_soon([*exchange.gone, *(descriptor.id for descriptor in exchange.fresh)])
        self.say_exchanged(exchange, by)
        return exchange.answer

    def plan_exchange(
        self, descriptors: Sequence[Descriptor], *, max_removals: int | None, tenant: str | None = None
    ) -> Exchange:
        """What a whole list of origin `api` changes; raises where it may not."""
        wanted: dict[SourceId, Descriptor] = {}
        for descriptor in descriptors:
            if descriptor.id in wanted:
                raise SourceConflictError("pod", f"{descriptor.id} is in the list twice")
            wanted[descriptor.id] = descriptor
        present = {
            key: sink.descriptor
            for key, sink in self._sinks.items()
            if sink.descriptor.origin == "api" and tenant in {None, sink.descriptor.tenant}
        }
        kept = {
            key for key, descriptor in wanted.items() if key in present and same_but_origin(present[key], descriptor)
        }
        fixed = {key: sink.descriptor for key, sink in self._sinks.items() if key not in present}
        fresh = [descriptor for key, descriptor in wanted.items() if key not in kept and not _stands(fixed, descriptor)]
        gone = [key for key in present if key not in kept]
        self._check_all(gone, fresh)
        counted = self._allow_removals(gone, max_removals)
        cordoned = frozenset(key for key in gone if self._sinks[key].source.facts.cordoned)  # a word that stays
        removed = [key for key in gone if key not in wanted]
        answer = SourcesReplaced(added=len(fresh), kept=len(wanted) - len(fresh), removed=len(removed))
        return Exchange(gone, removed, fresh, cordoned, counted, answer)

    def say_exchanged(self, exchange: Exchange, by: str) -> None:
        """For the operator."""
        if exchange.gone or exchange.fresh:
            self._log.say(
                about("sources_replaced"),
                "list of sources by %s: %d added or changed%s, %d removed%s",
                by,
                len(exchange.fresh),
                _listed(descriptor.id for descriptor in exchange.fresh),
                len(exchange.removed),
                _listed(exchange.removed),
            )

    def remove(self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER) -> int:
        """Remove one rank or all; sources of flags and configuration stay."""
        keys = self.may_remove(pod, dp_rank, tenant).keys
        for key in keys:
            self._close(key)
        self.say_done(keys, "source_removed", by)
        return len(keys)

    def may_remove(self, pod: str, dp_rank: int | None, tenant: str | None = None) -> Touched:
        """The sources of that name; raises where they may not be removed. Counts as having removed them."""
        sources = self._registry.named(pod, dp_rank, tenant)
        for source in sources:
            if source.descriptor.origin in _LOCKED_ORIGINS:
                raise SourceConflictError(
                    "origin", f"{source.descriptor.id} comes from a {source.descriptor.origin}: remove it there"
                )
        keys = [source.descriptor.id for source in sources]
        counted = self._one_of_each_pod(keys)
        self.clears.allow(len(counted))
        return Touched(keys, counted)

    def clear(self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER) -> int:
        """New generation, everything of it gone."""
        keys = self.may_clear(pod, dp_rank, tenant).keys
        for key in keys:
            self.clear_one(key)
        self.say_done(keys, "source_cleared", by)
        return len(keys)

    def may_clear(self, pod: str, dp_rank: int | None, tenant: str | None = None) -> Touched:
        """The sources of that name; raises where too much was cleared just now. Counts as having cleared them."""
        sources = self._registry.named(pod, dp_rank, tenant)
        self.clears.allow(1)
        keys = [source.descriptor.id for source in sources]
        return Touched(keys, frozenset(keys[:1]))

    def clear_one(self, key: SourceId, generation: int | None = None) -> None:
        """As an operator says, maybe through another replica, which gave the generation."""
        sink = self._sinks[key]
        facts = sink.source.facts
        before, sequence = facts.generation, facts.sequence
        self._ingest.clear(sink, generation)
        self.tell_cleared(sink, before, sequence)

    def tell_cleared(self, sink: SourceSink, before: int | None, sequence: int | None) -> None:
        """An operator's clear is in force: it is counted, and stands in the history. `before`: where it is known."""
        sink.source.counters["cleared_by_operator"] += 1
        generation = sink.source.facts.generation
        cleared = Happening(what="clear", sequence=sequence, generation=generation, generation_before=before)
        self.happened(sink.descriptor.id, cleared)

    def cordon(
        self, pod: str, dp_rank: int | None, *, cordoned: bool, tenant: str | None = None, by: str = A_CALLER
    ) -> int:
        """Set or lift the cordon: a cordoned source goes on learning and is listed with score 0."""
        sources = self._registry.named(pod, dp_rank, tenant)
        for source in sources:
            self.cordon_one(source.descriptor.id, cordoned=cordoned)
        self.say_done((source.descriptor.id for source in sources), cordon_event(cordoned=cordoned), by)
        return len(sources)

    def cordon_one(self, key: SourceId, *, cordoned: bool) -> None:
        """Of one source."""
        source = self._sinks[key].source
        if source.facts.cordoned is not cordoned:
            self.happened(key, Happening(what=cordon_word(cordoned=cordoned)))
        source.facts.cordoned = cordoned
        self._view.touch(source)

    def edit(self, key: SourceId, registered: Registered) -> None:
        """It is said otherwise of a source who it is called by, whether it is scored, or which process its engine is.

        What it holds stays, unless that is another process.
        """
        sink = self._sinks[key]
        source, facts = sink.source, sink.source.facts
        if facts.cordoned is not registered.cordoned:
            self.happened(key, Happening(what=cordon_word(cordoned=registered.cordoned)))
        if facts.ready is not registered.ready:
            self.happened(key, Happening(what="ready" if registered.ready else "not_ready"))
        registered.tell(facts)
        if is_redescribed(source.descriptor, registered.descriptor):
            self.redescribe(source, registered.descriptor)
        self._view.touch(source)
        self.learn_life(sink, registered.life)

    def discover(self, registered: Registered) -> None:
        """Discovery tells of a source, or of another in the place of one: whatever that held is not this one's."""
        key = registered.descriptor.id
        if key in self._sinks:
            self._leave(key)
        sink = self._enter(registered.descriptor)
        registered.begin(sink.source)
        self.follow_soon([key])

    def undiscover(self, key: SourceId) -> None:
        """Discovery tells of it no more."""
        facts = self._sinks[key].source.facts
        before, sequence = facts.generation, facts.sequence
        self._close(key)
        self.happened(
            key, Happening(what="removed", cause="not_discovered", sequence=sequence, generation_before=before)
        )

    def redescribe(self, source: SourceIndex, descriptor: Descriptor) -> None:
        """Its further names, model or other words that are part of no hash are others.

        Whoever says so has seen to it that names belong to one pod. One that moves may be told of its new pod first,
        through another partition: then it is both pods' until the old one is told, too.
        """
        self._registry.remove(descriptor.id)
        source.descriptor = descriptor
        self._registry.add(source)
        self._waits.reshaped()
        self._ingest.reshaped(source)
        self._ingest.touched(source)

    def learn_life(self, sink: SourceSink, life: str) -> None:
        """Which process its engine is, as whoever runs it says. Where that is news, nothing of before is scored."""
        if self._ingest.learn_life(sink.source, life) and not self.fleet.other_life(sink.descriptor.id):
            sink.restart("life_differs")
        self._ingest.touched(sink.source)  # with a store it is to be written

    def vouch(self, key: SourceId, life: str, heard_at: float) -> None:
        """Whoever runs its engine was heard at that moment, and says that this process of it lives."""
        sink = self._sinks.get(key)
        if sink is not None and not sink.followed and life == sink.source.life and not sink.source.life_is_due:
            self.fleet.vouch(key, heard_at)

    def source_for_topic(self, pod: str, model: str | None, dp_rank: int) -> EventSink | None:
        """The sink of a publisher on a bound socket; a source registered otherwise wins over its topic.

        One that came by topic itself and serves another model now is registered anew; a cordon stays on the pod.
        """
        known = self._sinks.get(SourceId(pod, dp_rank))
        if known is not None and (known.descriptor.origin != "topic" or known.descriptor.model == model):
            return known
        descriptor = Descriptor(pod=pod, dp_rank=dp_rank, model=model, origin="topic")
        if not self.may_appear(descriptor.id):
            return None
        try:
            self._check(descriptor)
        except (LimitReachedError, SourceConflictError):
            return None
        if known is not None:
            self._close(known.descriptor.id)
        sink = self._enter(descriptor)
        extra = about("source_appeared", source=descriptor.id, model=descriptor.model)
        self._log.say(extra, "source %s: appeared by its topic", named(descriptor.id))
        sink.source.facts.cordoned = known is not None and known.source.facts.cordoned
        self.appeared(sink)
        return sink

    def put(self, sink: SourceSink) -> None:
        """A source as its store has it, in place of what went by that name."""
        source_id = sink.descriptor.id
        known = self._sinks.get(source_id)
        if known is sink:
            return
        if known is not None:
            self._leave(source_id)
            if not known.followed:  # of a followed one the engine may be listened to, for whoever takes it over
                self.fleet.stop(source_id)
        self._place(sink)

    def drop(self, source_id: SourceId) -> None:
        """A source that its store no longer has."""
        if source_id in self._sinks:
            self._close(source_id)

    def sink(self, source_id: SourceId) -> SourceSink | None:
        """Of a registered source."""
        return self._sinks.get(source_id)

    def unfollow(self, source_id: SourceId) -> None:
        """Its subscriber ends; the source stays."""
        self.fleet.stop(source_id)

    def step_down(self, source_id: SourceId) -> None:
        """Its subscriber applies nothing more, and keeps what comes."""
        self._to_follow.pop(source_id, None)
        self.fleet.step_down(source_id)

    def forget_lost(self) -> Generator[None, None, None]:
        """Sources gone for `retain_s`: their memory comes back, and those that came by topic leave altogether."""
        self.clears.tell()
        for key, source in list(self._registry.sources.items()):
            yield
            if self._registry.sources.get(key) is not source or self._sinks[key].followed:
                continue
            lost = self._ingest.forget_lost(source, self._retain_s)
            if source.facts.alive_at is None:  # never seen connected: its registration is all there is to count from
                lost = self._clock.now() - source.since >= self._retain_s
            if lost and source.descriptor.origin == "topic":
                self._close(key)
                self.gone_for_good(key)
                extra = about("source_removed", source=key, model=source.descriptor.model)
                self._log.say(extra, "source %s: removed, gone for staleness.retain_s", named(key))

    def _check(self, descriptor: Descriptor) -> None:
        try:
            self._registry.check(descriptor)
        except LimitReachedError as error:
            self._telemetry.limits_reached[error.limit] += 1
            raise

    def _open(self, descriptor: Descriptor) -> None:
        self._enter(descriptor)
        self.follow_soon([descriptor.id])

    def follow_soon(self, keys: Iterable[SourceId]) -> None:
        """Have subscribers begin and end. Making sockets takes 0.4 ms a source, so it is done in the background."""
        self._to_follow.update(dict.fromkeys(keys))
        self._followed_anew.set()

    def _check_all(self, leaving: Sequence[SourceId], coming: Sequence[Descriptor]) -> None:
        try:
            self._registry.check_all(leaving, coming)
        except LimitReachedError as error:
            self._telemetry.limits_reached[error.limit] += 1
            raise

    def _enter(self, descriptor: Descriptor) -> SourceSink:
        sink = self._ingest.open_source(descriptor)
        self._place(sink)
        self.happened(descriptor.id, registered_as(descriptor, sink.source.facts.generation))
        return sink

    def _place(self, sink: SourceSink) -> None:
        self._sinks[sink.descriptor.id] = sink
        self.changes += 1
        self._registry.add(sink.source)
        self._waits.reshaped()
        self._view.fit(len(self._registry.sources))

    def _close(self, source_id: SourceId) -> None:
        self._leave(source_id)
        self.fleet.stop(source_id)

    def _leave(self, source_id: SourceId) -> None:
        sink = self._sinks.pop(source_id)
        self.changes += 1
        self._registry.remove(source_id)
        self._waits.reshaped()
        self._ingest.close_source(sink)
        self._telemetry.departed.update(sink.source.counters)
        self.left = True
        self._view.fit(len(self._registry.sources))

    def _one_of_each_pod(self, keys: Iterable[SourceId]) -> frozenset[SourceId]:
        """One source of each pod of which something would be forgotten; what never spoke can go unnoticed."""
        found: dict[str, SourceId] = {}
        for key in keys:
            if any(self._sinks[key].source.holdings[1:]):
                found.setdefault(key.pod, key)
        return frozenset(found.values())

    def _allow_removals(self, gone: Sequence[SourceId], max_removals: int | None) -> frozenset[SourceId]:
        """What the caller allows itself, or else `max_clears_per_minute`; which of them count against that."""
        if max_removals is not None:
            if len(gone) > max_removals:
                raise TooManyRemovalsError(len(gone), max_removals)
            return frozenset()
        counted, most = self._one_of_each_pod(gone), self.clears.most
        if len(counted) > most:  # waiting would not help
            self.clears.refuse(len(counted))
            raise TooManyRemovalsError(len(gone), most, pods=len(counted))
        self.clears.allow(len(counted))
        return counted


def _ignore_sink(_: SourceSink) -> None:
    """Memory mode."""


def _ignore_key(_: SourceId) -> None:
    """Memory mode."""


def _ignore_happening(_: SourceId, _happening: Happening) -> None:
    """Nobody reads it."""


def registered_as(descriptor: Descriptor, generation: int) -> Happening:
    """For the history of a source."""
    return Happening(what="registered", cause=descriptor.origin, generation=generation)


def cordon_event(*, cordoned: bool) -> Event:
    """For the log."""
    return "source_cordoned" if cordoned else "source_uncordoned"


def cordon_word(*, cordoned: bool) -> Literal["cordoned", "uncordoned"]:
    """What happened to it."""
    return "cordoned" if cordoned else "uncordoned"


def _always(_: SourceId) -> bool:
    return True


def same_but_origin(known: Descriptor, new: Descriptor) -> bool:
    """Equal but for where it came from: a registrar that posts what a flag says already changes nothing."""
    return known == msgspec.structs.replace(new, origin=known.origin)


def _stands(fixed: dict[SourceId, Descriptor], new: Descriptor) -> bool:
    """Whether a source of another origin already is what is asked for; raises where it differs."""
    known = fixed.get(new.id)
    if known is None:
        return False
    if known.tenant != new.tenant:
        raise taken("pod")
    if not same_but_origin(known, new):
        raise SourceConflictError("pod", f"{new.id} comes from a {known.origin} and differs")
    return True


def _listed(keys: Iterable[SourceId]) -> str:
    shown = names(keys)
    return f" ({shown})" if shown else ""


def differs(known: Descriptor, new: Descriptor) -> SourceConflictError:
    """A registration stands as it is: told with the way to change it."""
    if known.tenant != new.tenant:
        return taken("pod")
    field = _first_difference(known, new)
    way = (
        "PUT the whole list with the change, or DELETE it and add it again"
        if known.origin == "api"
        else f"change it where the {known.origin} stands"
    )
    return SourceConflictError(field, f"{new.id} is registered with another {field} (origin {known.origin})", hint=way)


def _first_difference(known: Descriptor, new: Descriptor) -> str:
    for field in new.__struct_fields__:
        if field != "origin" and getattr(known, field) != getattr(new, field):
            return field
    return "origin"
