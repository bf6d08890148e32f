"""Rows of reports, for faces whose node is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.reports.consistency import figures_of
from indexer.reports.feedback import WIDTH
from schemas.explain import Finding, MissingBlock, PodExplanation, RemovedBlock
from schemas.reports import (
    AgePercentiles,
    AgeReport,
    ClearReport,
    ConsistencyRow,
    ConsistencyTrend,
    GapReport,
    OrphanReport,
    ReplayReport,
    StalenessRow,
    TierReport,
)

if TYPE_CHECKING:
    from indexer.model import Descriptor
    from schemas.rest import SourceView


def staleness_row(view: SourceView) -> StalenessRow:
    """Of a source of which nothing but this is known."""
    some = AgePercentiles(p50=1, p95=2, p99=None)
    age = AgeReport(now=view.lag_ms, minute=some, ten_minutes=some, hour=some)
    return StalenessRow(
        pod=view.pod,
        dp_rank=view.dp_rank,
        model=view.model,
        tenant=view.tenant,
        state=view.state,
        since=view.since,
        why=view.why,
        bound=view.bound,
        generation=view.generation,
        sequence=view.sequence,
        lag_ms=age,
        event_age_ms=age,
        counted=True,
        counts_age_ms=0,
        gaps=GapReport(noticed=3, healed=1, unhealed=2, batches_lost=4),
        replays=ReplayReport(ok=1, partial=0, failed=0, timeout=0, foreign=0),
        restarts=0,
        reconnects=0,
        clears=ClearReport(engine=0, operator=0, minute=0, ten_minutes=0, hour=0),
        orphans=OrphanReport(parked=0, healed=0, expired=0, refused=0, waiting=0),
        removals_unknown=0,
        duplicates=0,
        events_unknown=0,
        decode_errors=0,
        expired=0,
        ghosts_dropped=0,
        tiers={
            "gpu": TierReport(
                stored_events=1, stored_blocks=2, removed_events=3, removed_blocks=4, blocks=5, event_age_ms=6
            )
        },
        copies=view.copies,
        owner=view.owner,
        journal_lag_ms=None,
        expected_for_ms=10_000,
        warnings=["one", "two"],
    )


def consistency_row(source: Descriptor) -> ConsistencyRow:
    """Each number of it differs from its neighbours."""
    figures = figures_of(range(1, WIDTH + 1))
    return ConsistencyRow(
        pod=source.pod,
        dp_rank=source.dp_rank,
        model=source.model,
        tenant=source.tenant,
        state="live",
        drifted=False,
        trend=ConsistencyTrend(exact_share_1h=0.5, exact_share_24h=1.0, change=-0.5),
        windows={"1m": figures, "1h": figures},
    )


def explained_pod(pod: str) -> PodExplanation:
    """A source that holds one of two blocks."""
    missing = MissingBlock(block=1, first_token=16, end_token=32, hash="00f3c0de00000002")
    removed = RemovedBlock(at="2026-11-30T00:00:00.000+00:00", ago_ms=1_500, tier="gpu", group=0)
    return PodExplanation(
        pod=pod,
        dp_rank=0,
        state="live",
        bound="exact",
        lag_ms=3,
        generation="5f3a9c0d12e4",
        sequence=7,
        block_size=16,
        prompt_blocks=2,
        matched_tokens=16,
        reusable_tokens=16,
        missing=missing,
        code="evicted",
        why="block 1 went",
        advice="More memory.",
        removed=removed,
        further=[Finding(code="stale", why="silent", advice="Look.")],
    )
