"""Story 1: a batch arrives.

Decode it, apply its events to the source's reverse map, and let the mirror see the difference.

Relies on: the collector calls in the engine's order, each batch once (ports.EventSink). Promises: what `apply` was
given is visible to a lookup when it returns; a restart, clear or removal is O(1) and nothing of before comes back
(P4, P5). Does no I/O; time comes from the Clock it is given.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from indexer.decode.envelope import stamp
from indexer.decode.large import LARGE_BYTES, decode_large
from indexer.decode.vllm import decode
from indexer.happenings import Happening
from indexer.index.changes import Changes
from indexer.index.plan import EVENT_KINDS, HEALED_IN_A_SLICE, Planner
from indexer.index.source import SourceIndex
from indexer.log_lines import about
from indexer.model import EventBatch, Tier
from indexer.under_way import UnderWay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.happenings import Cause, JoinCause, SpellCause, What
    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.index.plan import Presence
    from indexer.index.reverse_map import ReverseMap
    from indexer.index.states import SourceFacts
    from indexer.model import Descriptor, Event, GapPolicy, RawBatch
    from indexer.ports import Clock, CollectorCount, DoubtReason, Replayed, RestartReason, Resume, SuspectReason
    from indexer.tracing import Tracing

log = logging.getLogger("kvindexer.ingest")

CLOCK_SKEW_WARN_S: Final = 30.0
LOOK_INTERVAL_S: Final = 1.0
"""The collector looks at every connection more often than this; after a longer silence its look may end a state."""
EXPIRE_LOOK_S: Final = 0.25
"""How often lanes with a time to live are asked whether anything is due."""
OF_ANOTHER_PROCESS: Final[frozenset[DoubtReason]] = frozenset({"process_unproven"})
"""Doubts about who speaks, which the words of the one before cannot end."""
SHOWN_BY_THE_STREAM: Final[frozenset[RestartReason]] = frozenset(
    {"sequence_went_back", "probe_differs", "reconnect_jump"}
)
"""Restarts of the engine's process that its own messages, or their absence, show."""
COUNT_MAX: Final = (1 << 63) - 1
"""Engines choose sequence numbers: a jump must not make a counter too large to encode."""


class Ingest:
    """The write side of the core: one per process."""

    def __init__(
        self,
        mirror: Mirror,
        clock: Clock,
        *,
        presence: Presence | None = None,
        secret: bytes = b"",
        gap_policy: GapPolicy = "keep",
        count_copies: bool = True,
        orphans_max: int = 65_536,
        tier_ttls: Mapping[Tier, float] = MappingProxyType({}),
        durable: bool = False,
        silent_block_sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.mirror = mirror
        self.clock = clock
        self.gap_policy = gap_policy
        self.touched: Callable[[SourceIndex], None] = _ignore
        """Called whenever a fact of a source changed: the read side drops what it prepared for that source."""
        self.reshaped: Callable[[SourceIndex], None] = _ignore
        """Called when a source got another slot, block size or adapter: candidates are chosen anew."""
        self.restarted: Callable[[SourceIndex, RestartReason, int], None] = _ignore_restart
        """Called with the source, the reason and the generation before."""
        self.happened: Callable[[SourceIndex, Happening], None] = _ignore_happening
        """Called with what goes into the history of a source: rare beside batches, and told once it is done."""
        self.tracing: Tracing | None = None
        self._tier_ttls = tier_ttls
        self._durable = durable
        self._silent_block_sizes = silent_block_sizes
        self._mortal: dict[int, SourceIndex] = {}
        self._look_for_due_at = 0.0
        self._planner = Planner(
            mirror,
            presence if presence is not None else mirror,
            self._cleared_by_engine,
            _log_fault,
            secret=secret,
            count_copies=count_copies,
        )
        self._orphans_max = orphans_max
        self._last_generation = 0
        self._graveyard: deque[ReverseMap] = deque()
        self._compacting: dict[int, Lane] = {}
        self._healing: dict[int, SourceIndex] = {}
        self._under_way: dict[int, UnderWay] = {}

    def open_source(self, descriptor: Descriptor, generation: int | None = None) -> SourceSink:
        """A registration begins, or with `generation` goes on where its store says."""
        if generation is not None:
            self.note_generation(generation)
        self.mirror.removals.now = self.clock.now()
        source = SourceIndex(
            descriptor,
            self.mirror,
            generation=self.next_generation() if generation is None else generation,
            orphans_max=self._orphans_max,
            tier_ttls=self._tier_ttls,
        )
        if self._durable:
            source.changes = Changes()
        source.since = self.clock.now()
        size = self._silent_block_sizes.get(descriptor.model or "")
        if size is not None:
            source.assume_silent(size)
        if self._tier_ttls:
            self._mortal[id(source)] = source
        return SourceSink(self, source)

    def resume(self, source: SourceIndex) -> None:
        """A source whose map was restored: what can be placed now is placed in slices."""
        self._note_waiting(source)
        self.touched(source)
        self.reshaped(source)

    def close_source(self, sink: SourceSink) -> None:
        """The registration ends: nothing of it is scored again, late events find a closed sink. O(1)."""
        sink.open = False
        self._under_way.pop(id(sink.source), None)
        source = sink.source
        self._mortal.pop(id(source), None)
        self._healing.pop(id(source), None)
        self.bury(source.leave(self.mirror))

    def clear(self, sink: SourceSink, generation: int | None = None) -> None:
        """An operator's clear: forget what was applied; what the engine announces from here on counts again.

        The engine may still hold what is forgotten, so the bound is `lower` until it says otherwise. `generation` is
        the one that another replica or the store gave it.
        """
        self._forget(sink.source, "cleared_by_operator", generation)
        self.touched(sink.source)
        self.reshaped(sink.source)

    def forget_lost(self, source: SourceIndex, retain_s: float) -> bool:
        """Give back the memory of a source without a sign of life for `retain_s`; True when it is that long gone."""
        alive_at = source.facts.alive_at
        if alive_at is None or self.clock.now() - alive_at < retain_s:
            return False
        if source.pairs or source.map.waiting:
            before = source.facts.generation
            self._forget(source, "forgotten")
            self._ended(source, "forgotten", "gone_too_long", before, source.facts.sequence)
            self.touched(source)
            self.reshaped(source)
        return True

    def _forget(self, source: SourceIndex, why: str, generation: int | None = None) -> None:
        """What was applied is forgotten here and not there: the stream goes on at its number, the bound is `lower`."""
        sequence = source.facts.sequence
        if generation is not None:
            self.note_generation(generation)
        self._new_generation(source, same_engine=True, generation=generation)
        source.facts.sequence = sequence
        if sequence is not None:
            source.facts.shortfalls.add(why)

    def next_generation(self) -> int:
        """Only grows, also over a restart of this process."""
        self._last_generation = max(self._last_generation + 1, self.clock.wall_us())
        return self._last_generation

    @property
    def last_generation(self) -> int:
        """The latest that is known here."""
        return self._last_generation

    def note_generation(self, generation: int) -> None:
        """Another replica, or this one before it started anew, gave this one: those given here are later."""
        self._last_generation = max(self._last_generation, generation)

    def tidy_slice(self) -> bool:
        """One slice of background work, under a millisecond; True while there is more."""
        if self._graveyard:
            if not self._graveyard[0].free_slice():
                self._graveyard.popleft()
            return True
        if self._healing:
            self._heal_slice()
            return True
        if self._compacting:
            key, lane = next(iter(self._compacting.items()))
            if not lane.compact_slice():
                del self._compacting[key]
            return True
        return self._expire_slice() or self.mirror.tidy_slice()

    def _heal_slice(self) -> None:
        """More of what waited for a parent that came: a long chain is not placed with the batch that brought it."""
        key, source = next(iter(self._healing.items()))
        del self._healing[key]  # the next one's turn
        self._planner.heal_guarded(source, HEALED_IN_A_SLICE)
        self._note_waiting(source)
        self.touched(source)

    def _expire_slice(self) -> bool:
        """Entries of tiers whose producers announce no removals live for a set time."""
        now = self.clock.now()
        if now < self._look_for_due_at:
            return False
        self.mirror.removals.now = now
        for source in self._mortal.values():
            for lane in source.map.lanes.values():
                if now >= lane.due_at and self._planner.expire_guarded(source, lane, now):
                    self.touched(source)
                    return True
        self._look_for_due_at = now + EXPIRE_LOOK_S
        return False

    def apply(self, source: SourceIndex, batch: RawBatch) -> None:
        """One batch of one source; of a large one only the first piece (`go_on`)."""
        under_way = self._under_way.get(id(source))
        if under_way is not None:
            under_way.later.append(partial(self.apply, source, batch))
            return
        tracing = self.tracing
        if tracing is not None and tracing.samples():
            self._apply_traced(source, batch, tracing)
        else:
            self._apply(source, batch)

    def _apply(self, source: SourceIndex, batch: RawBatch) -> None:
        facts = source.facts
        large = len(batch.payload) > LARGE_BYTES
        decoded = decode_large(batch.payload) if large else decode(batch.payload)
        now = self._planner.now = self.clock.now()
        before = facts.sequence
        self._advance(facts, batch.sequence)
        facts.stamp = stamp(batch.payload)
        facts.proof_at = now
        if not batch.late:
            facts.message_at = now
        source.counters["batches"] += 1
        if before is None or before < 0:
            self._joined(source, batch.sequence)
        if decoded is None:
            source.counters["skipped.undecodable"] += 1
            facts.doubts.add("undecodable")
            self.touched(source)
            return
        if not (facts.clock_checked or batch.late or facts.syncing):
            self._check_clock(source, decoded.ts)
        if isinstance(decoded, EventBatch):
            self._apply_events(source, decoded.events)
            self._applied(source)
        else:
            facts.sequence = batch.sequence - 1 if before is None else before  # shown as applied when it is
            facts.in_part = True
            self._under_way[id(source)] = UnderWay(batch.sequence, decoded.pieces)
            self.go_on(source)
        self.touched(source)

    def _apply_traced(self, source: SourceIndex, batch: RawBatch, tracing: Tracing) -> None:
        """With a span; of a large batch it ends with the last piece."""
        began, before = self.clock.now(), _events_of(source)

        def applied() -> None:
            events = _events_of(source) - before
            tracing.batch(source.descriptor.id, batch.sequence, events, self.clock.now() - began)

        self._apply(source, batch)
        under_way = self._under_way.get(id(source))
        if under_way is not None:
            under_way.later.append(applied)
        else:
            applied()

    def is_busy(self, source: SourceIndex) -> bool:
        """Whether a large batch of the source is applied in part."""
        return id(source) in self._under_way

    def go_on(self, source: SourceIndex) -> bool:
        """Apply the next piece of the large batch under way, about a millisecond's work; True while there is more."""
        under_way = self._under_way.get(id(source))
        if under_way is None:
            return False
        events = next(under_way.pieces, None)
        if events is not None:
            self._apply_events(source, events)
        else:
            del self._under_way[id(source)]
            source.facts.sequence, source.facts.in_part = under_way.sequence, False
            self._applied(source)
            for step in under_way.later:
                step()
        self.touched(source)
        return self.is_busy(source)

    def _apply_events(self, source: SourceIndex, events: Sequence[Event]) -> None:
        shape = source.shape
        self._planner.now = self.mirror.removals.now = self.clock.now()
        self._planner.apply(source, events)
        self._note_waiting(source)
        if source.shape != shape:
            self.reshaped(source)

    def _applied(self, source: SourceIndex) -> None:
        """A whole batch is applied."""
        facts = source.facts
        for lane in source.map.lanes.values():
            if lane.wants_compacting():
                self._compacting[id(lane)] = lane
        if source.ghosts is not None:
            self._planner.drop_ghosts_guarded(source)
        elif source.holds_too_much:
            facts.doubts.add("over_capacity")
        elif facts.complete and not facts.doubts:
            source.note_copies()

    def _advance(self, facts: SourceFacts, sequence: int) -> None:
        """The cursor moves, and what that says about completeness."""
        if facts.sequence is None:
            facts.complete = sequence == 0
        elif sequence != facts.sequence + 1:
            # An empty history was confirmed and its first batches never came: truncated, like any other beginning.
            # Later a jump without a gap reported would be a fault of the collector: then removals may be missing too.
            facts.complete = False
            if facts.sequence >= 0:
                facts.doubts.add("sequence_jump")
        facts.sequence = sequence

    def restart(self, source: SourceIndex, reason: RestartReason) -> None:
        """A new life of the engine: what is not applied yet of the old one never counts.

        One that the stream shows before it is told is due to be told. Not where the generation before began since it
        was told, and has not been seen from its beginning: then that may have been of what the process before left
        behind, and this is the life that was told.
        """
        if reason in SHOWN_BY_THE_STREAM and (source.facts.complete or not source.began_by_life):
            source.life_is_due = True
        self._under_way.pop(id(source), None)
        source.counters["restarts"] += 1
        source.counters[f"restarts.{reason}"] += 1
        before, sequence = source.facts.generation, source.facts.sequence
        self._new_generation(source, same_engine=False)
        source.began_by_life = reason == "life_differs"
        self.restarted(source, reason, before)
        self._ended(source, "restart", reason, before, sequence)
        self.touched(source)
        self.reshaped(source)

    @staticmethod
    def learn_life(source: SourceIndex, life: str) -> bool:
        """Whoever runs the engine says which process of it lives. True where that is news: another generation is due.

        It is none where the stream has shown the restart already: what the new process announced since is its own. Nor
        where nothing is known of the life before: then this may well be the one that was listened to all the time.
        """
        if life in {"", source.life}:
            return False
        is_news = bool(source.life) and not source.life_is_due
        source.life, source.life_is_due = life, False
        return is_news

    def gap(self, source: SourceIndex, first: int, last: int) -> None:
        """Batches are lost for good: P6."""
        under_way = self._under_way.get(id(source))
        if under_way is not None:
            under_way.later.append(partial(self.gap, source, first, last))
            return
        source.counters["gaps"] += 1
        source.counters["batches_lost"] = min(source.counters["batches_lost"] + last - first + 1, COUNT_MAX)
        generation, sequence = source.facts.generation, source.facts.sequence
        if self.gap_policy == "clear":
            self._new_generation(source, same_engine=True)
            source.facts.shortfalls.add("cleared_at_gap")
            self.reshaped(source)
        else:
            source.keep_gap()
        source.facts.sequence, source.facts.stamp = last, None
        self.happened(
            source,
            Happening(
                what="gap",
                cause="kept" if source.facts.generation == generation else "cleared",
                first=first,
                last=last,
                lost=min(last - first + 1, COUNT_MAX),
                sequence=sequence,
                generation=source.facts.generation,
            ),
        )
        self.touched(source)

    def _cleared_by_engine(self, source: SourceIndex) -> None:
        """`AllBlocksCleared`: all tiers of this rank are empty.

        From here on the history is complete and nothing is in doubt. But what was held back may be older than the
        absence after which another process may speak: such a clear says nothing of that one (P6).
        """
        facts = source.facts
        before, sequence, proof_at = facts.generation, facts.sequence, facts.proof_at
        lasting = facts.doubts & OF_ANOTHER_PROCESS if facts.syncing else set()
        self._new_generation(source, same_engine=True)
        facts.sequence, facts.complete, facts.proof_at = sequence, True, proof_at
        facts.doubts |= lasting
        self._ended(source, "cleared_by_engine", None, before, sequence)

    def _joined(self, source: SourceIndex, sequence: int) -> None:
        """The first batch of a life that is known here."""
        facts = source.facts
        cause: JoinCause = "from_the_start" if facts.complete else "in_the_middle"
        happening = Happening(what="joined", cause=cause, sequence=sequence, generation=facts.generation)
        self.happened(source, happening)

    def _ended(self, source: SourceIndex, what: What, cause: Cause | None, before: int, sequence: int | None) -> None:
        """A generation is over, and another began."""
        generation = source.facts.generation
        self.happened(
            source,
            Happening(what=what, cause=cause, sequence=sequence, generation=generation, generation_before=before),
        )

    def _new_generation(self, source: SourceIndex, *, same_engine: bool, generation: int | None = None) -> None:
        if generation is None:
            generation = self.next_generation()
        self.mirror.removals.now = self.clock.now()
        self.bury(source.begin_generation(self.mirror, generation, same_engine=same_engine))
        source.since = self.clock.now()
        source.began_by_life = False

    def bury(self, left: ReverseMap) -> None:
        """What is little is freed at once, the rest in slices: clears without end must not pile up."""
        if not left.is_small:
            self._graveyard.append(left)

    def _note_waiting(self, source: SourceIndex) -> None:
        """Blocks announced but not placed yet are held and not claimed."""
        if source.map.waiting:
            source.facts.shortfalls.add("waiting")
        else:
            source.facts.shortfalls.discard("waiting")
        if source.map.healing:
            self._healing[id(source)] = source

    def _check_clock(self, source: SourceIndex, engine_ts: float) -> None:
        """Once a generation, with a message of just now: one that was replayed, or waited behind a replay, is old.

        One that lay here while this process stood still is not known to be: so a remark is looked at again with each.
        """
        source.facts.clock_checked = abs(engine_ts - self.clock.wall_us() / 1e6) <= CLOCK_SKEW_WARN_S
        if source.facts.clock_checked:
            source.warnings.pop("clock", None)
        else:
            source.warnings["clock"] = "the engine's clock and ours differ by more than 30 s (informative)"


class SourceSink:
    """What the collector holds for one registration: implements `ports.EventSink`. Closed for good once removed."""

    __slots__ = ("_ingest", "followed", "open", "resume", "source")

    def __init__(self, ingest: Ingest, source: SourceIndex) -> None:
        self._ingest = ingest
        self.source = source
        self.open = True
        self.followed = False
        """Another process owns it and says how it is: nothing is decided here."""
        self.resume: Resume | None = None
        """Set before the collector starts, where the source's state was loaded from the store."""

    @property
    def descriptor(self) -> Descriptor:
        """The registration this sink belongs to."""
        return self.source.descriptor

    @property
    def cursor(self) -> int | None:
        """Sequence of the last applied batch of this generation; None before the first."""
        return self.source.facts.sequence

    def apply(self, batch: RawBatch) -> None:
        """Decode and apply the next batch in order."""
        if self.open:
            self._ingest.apply(self.source, batch)

    @property
    def busy(self) -> bool:
        """Whether a large batch is applied in part: nothing more should be handed in before `go_on` says so."""
        return self._ingest.is_busy(self.source)

    def go_on(self) -> bool:
        """Apply the next piece of a large batch; True while there is more."""
        return self.open and self._ingest.go_on(self.source)

    def restart(self, reason: RestartReason) -> None:
        """A new life of the engine is certain."""
        if self.open:
            self._ingest.restart(self.source, reason)

    def gap(self, first: int, last: int) -> None:
        """Batches first..last are lost for good."""
        if self.open:
            self._ingest.gap(self.source, first, last)

    def syncing(self, active: bool) -> None:  # noqa: FBT001  the port's form
        """A replay or probe conversation runs."""
        if self.open and self.source.facts.syncing is not active:
            self.source.facts.syncing = active
            self._ingest.touched(self.source)

    def proved(self) -> None:
        """The engine confirmed that nothing after `cursor` exists."""
        if not self.open:
            return
        facts = self.source.facts
        facts.proof_at = self._ingest.clock.now()
        if facts.sequence is None:
            facts.sequence, facts.complete = -1, True
            self._ingest.touched(self.source)

    def doubt(self, reason: DoubtReason) -> None:
        """What is claimed may be false, and nothing will tell."""
        if self.open and reason not in self.source.facts.doubts:
            self.source.facts.doubts.add(reason)
            self._ingest.happened(self.source, Happening(what="doubt", cause=reason, sequence=self.cursor))
            self._ingest.touched(self.source)

    def suspect(self, reason: SuspectReason, active: bool) -> None:  # noqa: FBT001  the port's form
        """What is claimed may be false until the collector takes it back."""
        suspicions = self.source.facts.suspicions
        if self.open and active is not (reason in suspicions):
            (suspicions.add if active else suspicions.discard)(reason)
            cause: SpellCause = "begun" if active else "ended"
            self._ingest.happened(self.source, Happening(what=reason, cause=cause, sequence=self.cursor))
            self._ingest.touched(self.source)

    def alive(self, connected: bool, silent_s: float = 0.0) -> None:  # noqa: FBT001  the port's form
        """The collector looked at the connection just now."""
        if not self.open:
            return
        facts = self.source.facts
        now = self._ingest.clock.now()
        looked_lately = facts.alive_at is not None and now - facts.alive_at <= LOOK_INTERVAL_S
        news = facts.connected is not connected or not looked_lately
        facts.connected = connected
        if connected:
            facts.alive_at = now
        elif silent_s and facts.alive_at is not None and facts.alive_at > now - silent_s:
            facts.alive_at = now - silent_s
            news = True
        if news:  # else nothing a reader shows changed: prepared sources look again when a state would fall due
            self._ingest.touched(self.source)

    def seen(self, at: float) -> None:
        """The engine was connected at that moment, which is past."""
        facts = self.source.facts
        if self.open and (facts.alive_at is None or facts.alive_at < at):
            facts.alive_at = at
            self._ingest.touched(self.source)

    def count(self, what: CollectorCount, n: int = 1) -> None:
        """Count something that happened on the wire."""
        key = f"wire.{what}"
        self.source.counters[key] = min(self.source.counters[key] + n, COUNT_MAX)

    def replayed(self, told: Replayed) -> None:
        """A recovery is over, or a conversation of it failed."""
        tracing = self._ingest.tracing
        if self.open and tracing is not None and tracing.samples():
            seconds = self._ingest.clock.now() - told.began_at
            tracing.replay(self.source.descriptor.id, told.first, told.last, told.result, seconds)

    def warn(self, warning: str | None, *, key: str) -> None:
        """Set or take back a lasting remark."""
        if warning is None:
            self.source.warnings.pop(key, None)
        else:
            self.source.warnings[key] = warning


def _events_of(source: SourceIndex) -> int:
    return sum(source.counters[kind] for kind in EVENT_KINDS)


def _log_fault(error: Exception) -> None:
    """Where it happened, and nothing of what the event held."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    log.error(
        "an event was skipped: %s in %s, line %s",
        type(error).__name__,
        frame.name,
        frame.lineno,
        extra=about("event_skipped"),
    )


def _ignore(_: SourceIndex) -> None:
    """Nobody reads yet."""


def _ignore_happening(_: SourceIndex, _happening: Happening) -> None:
    """Nobody reads yet."""


def _ignore_restart(_: SourceIndex, _reason: RestartReason, _before: int) -> None:
    """Nobody reads yet."""
