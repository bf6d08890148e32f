"""The staleness report: how each source is doing, how old what is known of it was, and what went wrong. No I/O.

Sampled once a second, in slices. A source is seen from its registration in this process on; what is told of ages is as
this replica saw them, also of sources that another one owns.
"""

from __future__ import annotations

from collections import Counter, deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from indexer.index.counts import ENDED_WAITING, Counts, counts_of
from indexer.model import TIER_NAMES
from indexer.moments import utc_text
from indexer.reports.windows import Ages
from indexer.source_views import since_of
from indexer.source_words import listed_warnings, reason_in_words
from schemas.reports import (
    AgePercentiles,
    AgeReport,
    ClearReport,
    GapReport,
    OrphanReport,
    ReplayReport,
    StalenessReport,
    StalenessRow,
    TierReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.lookup_view import FleetView, Prepared
    from indexer.model import SourceId
    from indexer.ports import Clock
    from indexer.store.counts import StoredCounts

Remark = Literal["tier_silent", "no_removals", "clear_storm"]
"""What the report alone can tell."""
MINUTE_S: Final = 60
SLOT_S: Final = 10
"""Clears are counted in steps of so long, for an hour."""
SLOTS_KEPT: Final = 3_600 // SLOT_S
SILENT_S: Final = 600.0
"""A tier that holds blocks, of which nothing came for so long while the engine spoke of others."""
NO_REMOVALS_FROM: Final = 1_000
"""Blocks held in a tier, of which not one was ever taken back: its producer seems to announce none."""
STORM: Final = 6
"""Clears of an engine within a minute."""
BROKEN: Final = ("undecodable", "event_malformed", "event_too_large", "stored_malformed", "removed_malformed")
"""Reasons for which an event or a batch was skipped as one that cannot be read."""


class Watched:
    """What is kept of one source over time."""

    __slots__ = ("clears", "event_age", "lag", "source")

    def __init__(self, source: SourceIndex) -> None:
        self.source = source
        self.lag, self.event_age = Ages(), Ages()
        self.clears: deque[tuple[int, int]] = deque(maxlen=SLOTS_KEPT + 1)
        """Slots, each with the number of the engine's clears before it."""

    def sample(self, second: int, view: Prepared) -> None:
        """Once a second."""
        self.lag.sample(second, view.lag_ms)
        self.event_age.sample(second, view.event_age_ms)
        slot = second // SLOT_S
        if not self.clears or self.clears[-1][0] != slot:
            self.clears.append((slot, self.source.counters["cleared"]))

    def clears_at(self, second: int, counters: Counter[str], *, here: bool) -> ClearReport:
        """Clears ever and of late; of a source that another replica applies nobody told which were lately."""
        return ClearReport(
            engine=counters["cleared"],
            operator=counters["cleared_by_operator"],
            minute=self.cleared_within(60, second) if here else None,
            ten_minutes=self.cleared_within(600, second) if here else None,
            hour=self.cleared_within(3_600, second) if here else None,
        )

    def cleared_within(self, window_s: int, second: int) -> int:
        """The engine's clears in the last so many seconds, to a slot."""
        first = (second - window_s) // SLOT_S
        count = self.source.counters["cleared"]
        return count - next((before for slot, before in self.clears if slot > first), count)


class Staleness:
    """Samples all sources, and reports."""

    def __init__(
        self,
        registry: Registry,
        view: FleetView,
        clock: Clock,
        *,
        owner: Callable[[SourceId], str | None],
        follows: Callable[[SourceId], bool],
        journal_age_s: Callable[[SourceId], float | None],
        expected_s: Callable[[SourceIndex], float],
    ) -> None:
        self._registry = registry
        self._view = view
        self._clock = clock
        self._owner = owner
        self._follows = follows
        self._journal_age_s = journal_age_s
        self._expected_s = expected_s
        self._watched: dict[SourceId, Watched] = {}
        self._began = clock.now()

    def sample(self) -> Generator[None, None, None]:
        """One sample of every source. Between its steps others may run."""
        gone = [key for key in self._watched if key not in self._registry.sources]
        for key in gone:
            del self._watched[key]
        for key in list(self._registry.sources):
            source = self._registry.sources.get(key)
            if source is not None:
                now = self._clock.now()
                self._watch(source).sample(int(now), self._view.prepared(source, now))
            yield

    def _watch(self, source: SourceIndex) -> Watched:
        watched = self._watched.get(source.descriptor.id)
        if watched is None or watched.source is not source:
            watched = self._watched[source.descriptor.id] = Watched(source)
        return watched

    def report(
        self,
        *,
        pod: str | None,
        model: str | None,
        state: str | None,
        tenant: str | None,
        told: Mapping[SourceId, StoredCounts] = MappingProxyType({}),
    ) -> Generator[None, None, StalenessReport]:
        """All that match, by pod and rank. A generator that returns it; between its steps others may run.

        `told`: what was counted of sources that other replicas apply.
        """
        rows: list[StalenessRow] = []
        for key in sorted(self._registry.sources):
            yield
            source = self._registry.sources.get(key)
            if source is None or tenant not in {None, source.descriptor.tenant}:
                continue
            if pod not in {None, source.descriptor.pod} or model not in {None, source.model}:
                continue
            view = self._view.prepared(source, self._clock.now())
            if state in {None, view.state}:
                rows.append(self._row(source, view, told.get(key)))
        counts = Counter(row.state for row in rows)
        return StalenessReport(
            at=utc_text(self._clock.wall_us() / 1e6),
            seen_s=int(self._clock.now() - self._began),
            states=dict(sorted(counts.items())),
            sources=rows,
        )

    def _row(self, source: SourceIndex, view: Prepared, told: StoredCounts | None) -> StalenessRow:
        described, key = source.descriptor, source.descriptor.id
        watched, second = self._watch(source), int(self._clock.now())
        followed = self._follows(key)
        counts, age_s = (counts_of(source), 0.0) if not followed else told or (Counts(), None)
        counters = counts.counters
        untold = followed and source.told_holdings is None
        journal_s = self._journal_age_s(key)
        return StalenessRow(
            pod=described.pod,
            dp_rank=described.dp_rank,
            model=source.model,
            tenant=described.tenant,
            state=view.state,
            since=since_of(source, view, self._clock),
            why=reason_in_words(source.facts, view, followed=followed),
            bound=view.bound,
            generation=view.generation,
            sequence=view.sequence,
            lag_ms=_age(view.lag_ms, watched.lag, second),
            event_age_ms=_age(view.event_age_ms, watched.event_age, second),
            counted=age_s is not None,
            counts_age_ms=None if age_s is None else int(age_s * 1_000),
            gaps=GapReport(
                noticed=max(counters["wire.gaps"], counters["gaps"]),
                unhealed=counters["gaps"],
                healed=max(0, counters["wire.gaps"] - counters["gaps"] - source.facts.syncing),
                batches_lost=counters["batches_lost"],
            ),
            replays=ReplayReport(
                ok=counters["wire.replays_ok"],
                partial=counters["wire.replays_partial"],
                failed=counters["wire.replays_failed"],
                timeout=counters["wire.replays_timeout"],
                foreign=counters["wire.replays_foreign"],
            ),
            restarts=counters["restarts"],
            reconnects=counters["wire.reconnects"],
            clears=watched.clears_at(second, counters, here=not followed),
            orphans=OrphanReport(
                parked=counters["orphaned"],
                healed=counters["healed"],
                expired=counters[ENDED_WAITING],
                refused=counters["skipped.orphans"],
                waiting=source.holdings.waiting,
            ),
            removals_unknown=counters["removed_unknown"],
            duplicates=counters["wire.duplicates"],
            events_unknown=counters["skipped.unknown_kind"],
            decode_errors=sum(counters[f"skipped.{reason}"] for reason in BROKEN),
            expired=counters["expired"],
            ghosts_dropped=counters["ghosts_dropped"],
            tiers=dict(self._tiers(source, counts, untold=untold)),
            copies=None if untold else source.holdings.copies,
            owner=self._owner(key),
            journal_lag_ms=None if journal_s is None else int(journal_s * 1_000),
            expected_for_ms=int(self._expected_s(source) * 1_000),
            warnings=[
                *listed_warnings(source, self._registry).values(),
                *(text for _, text in self._remarks(source, counts, watched, second)),
            ],
        )

    def _tiers(self, source: SourceIndex, counts: Counts, *, untold: bool) -> Iterator[tuple[str, TierReport]]:
        """Tiers that events named, or in which something is held."""
        now = self._clock.now()
        for name, events, blocks in zip(TIER_NAMES, counts.tiers, source.holdings.blocks, strict=True):
            if events.last_at is None and not blocks:
                continue
            yield (
                name,
                TierReport(
                    stored_events=events.stored,
                    stored_blocks=events.stored_blocks,
                    removed_events=events.removed,
                    removed_blocks=events.removed_blocks,
                    blocks=None if untold else blocks,
                    event_age_ms=None if events.last_at is None else int((now - events.last_at) * 1_000),
                ),
            )

    def _remarks(
        self, source: SourceIndex, counts: Counts, watched: Watched, second: int
    ) -> Iterator[tuple[Remark, str]]:
        """What the report alone can tell: it looks back."""
        now = self._clock.now()
        newest = max((events.last_at for events in counts.tiers if events.last_at is not None), default=now)
        for name, events, blocks in zip(TIER_NAMES, counts.tiers, source.holdings.blocks, strict=True):
            if events.last_at is not None and blocks and newest - events.last_at >= SILENT_S:
                minutes = int((newest - events.last_at) // MINUTE_S)
                text = (
                    f"tier {name} silent: {blocks} blocks, and no event of it for {minutes} minutes while others came"
                )
                yield "tier_silent", text
            meaning = None if events.removed else _without_removals(source, name, blocks)
            if meaning is not None:
                seen = f"no removals seen in tier {name}: {blocks} blocks are held there, none was ever taken back"
                yield "no_removals", f"{seen}; {meaning}"
        clears = watched.cleared_within(MINUTE_S, second)
        if clears >= STORM:
            yield "clear_storm", f"clear storm: the engine emptied its cache {clears} times within a minute"


def _without_removals(source: SourceIndex, tier: str, blocks: int) -> str | None:
    """What it may mean that none came of a tier; None where there was no need of any.

    What is held now counts: what ended with a life of the engine was not to be taken back.
    """
    if blocks < NO_REMOVALS_FROM:
        return None
    if tier != TIER_NAMES[0]:
        return "where its producer announces no removals, entries have to end by staleness.entry_ttl_s"
    told = source.descriptor.blocks_total or source.engine_blocks
    if told is None:
        return "it is not full yet, or they are not announced: blocks_total would tell"
    if blocks < told:
        return None
    return f"it is full by its blocks_total of {told}: they are not announced, or that is too low"


def _age(now: int | None, ages: Ages, second: int) -> AgeReport:
    minute, ten_minutes, hour = (
        AgePercentiles(p50=told.p50, p95=told.p95, p99=told.p99)
        for told in (ages.over(window_s, second) for window_s in (60, 600, 3_600))
    )
    return AgeReport(now=now, minute=minute, ten_minutes=ten_minutes, hour=hour)
