"""What `/v1/reports/staleness` and `/v1/reports/consistency` take and give. Shapes only."""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.rest import Name, StateName, Text


class StalenessFilters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of `GET /v1/reports/staleness`."""

    format: Literal["json", "csv"] | None = None
    pod: Name | None = None
    model: Name | None = None
    state: StateName | None = None


class AgePercentiles(msgspec.Struct, kw_only=True):
    """Milliseconds that half, 95 and 99 of a hundred seconds of the window did not exceed; null: none was seen."""

    p50: int | None
    p95: int | None
    p99: int | None


class AgeReport(msgspec.Struct, kw_only=True, rename={"minute": "1m", "ten_minutes": "10m", "hour": "1h"}):
    """An age now, and how it was distributed over the last minute, ten minutes and hour."""

    now: int | None
    minute: AgePercentiles
    ten_minutes: AgePercentiles
    hour: AgePercentiles


class GapReport(msgspec.Struct, kw_only=True):
    """Gaps noticed in the numbers of its batches.

    `healed`: brought back by replay; `unhealed`: lost for good, with `batches_lost` batches; the rest is under way.
    """

    noticed: int
    healed: int
    unhealed: int
    batches_lost: int


class ReplayReport(msgspec.Struct, kw_only=True):
    """Conversations with its replay endpoint, by result; `foreign`: it answered for another engine."""

    ok: int
    partial: int
    failed: int
    timeout: int
    foreign: int


class ClearReport(msgspec.Struct, kw_only=True, rename={"minute": "1m", "ten_minutes": "10m", "hour": "1h"}):
    """Clears since it was registered, by who made them, and of the engine's own those of late.

    Those are null where another replica applies its events.
    """

    engine: int
    operator: int
    minute: int | None
    ten_minutes: int | None
    hour: int | None


class OrphanReport(msgspec.Struct, kw_only=True):
    """Blocks whose parent was not known when they were announced.

    `parked` ever; of these `healed` were placed later, `expired` were taken back, or forgotten with all else, before
    their parent came, `refused` found no room, and `waiting` wait now.
    """

    parked: int
    healed: int
    expired: int
    refused: int
    waiting: int


class TierReport(msgspec.Struct, kw_only=True):
    """One memory tier: events that named it and their blocks, ever; blocks held now; age of the last event."""

    stored_events: int
    stored_blocks: int
    removed_events: int
    removed_blocks: int
    blocks: int | None
    event_age_ms: int | None


class StalenessRow(msgspec.Struct, kw_only=True):
    """How one source is doing, and how it was.

    Counts are of its whole registration. Where another replica applies its events they are as that one told them,
    `counts_age_ms` ago; not `counted`: it did not, or the store is away. Ages are as seen from here.
    """

    pod: str
    dp_rank: int
    model: str | None
    tenant: str
    state: StateName
    since: str | None
    why: str | None
    bound: str
    generation: str
    sequence: int | None
    lag_ms: AgeReport
    event_age_ms: AgeReport
    counted: bool
    counts_age_ms: int | None
    gaps: GapReport
    replays: ReplayReport
    restarts: int
    reconnects: int
    clears: ClearReport
    orphans: OrphanReport
    removals_unknown: int
    duplicates: int
    events_unknown: int
    decode_errors: int
    expired: int
    ghosts_dropped: int
    tiers: dict[str, TierReport]
    copies: int | None
    owner: str | None
    journal_lag_ms: int | None
    expected_for_ms: int
    warnings: list[str]


class StalenessReport(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/reports/staleness`, ordered by pod and rank.

    `at`: when it was made, UTC. `seen_s`: for how long this process has been looking; percentiles over longer windows
    are of so many seconds. `states`: how many sources are in each.
    """

    at: str
    seen_s: int
    states: dict[str, int]
    sources: list[StalenessRow]


WindowName = Literal["1m", "10m", "1h", "24h"]


class ConsistencyFilters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of `GET /v1/reports/consistency`."""

    format: Literal["json", "csv"] | None = None
    pod: Name | None = None
    model: Name | None = None
    tenant: Text | None = None
    window: WindowName | None = None


class AgeFigures(msgspec.Struct, kw_only=True):
    """Answers given while the newest proof was of one age."""

    samples: int
    false_hit_tokens: int
    lost_hit_tokens: int


class CauseFigures(msgspec.Struct, kw_only=True):
    """Answers that were wrong for one cause, and by how many tokens."""

    samples: int
    tokens: int


class ConsistencyFigures(msgspec.Struct, kw_only=True):
    """What was said beside what came of it, over one window.

    `exact`: answers that were right to the token, `exact_share` of `samples`. `false_hit_tokens`: said to be reusable
    and computed all the same; `lost_hit_tokens`: reused and not known. `regret_tokens`: how many more the best source
    was said to reuse than the one that was chosen. `unjoined`: reports of which no answer is known, in no other figure;
    `failed`: of requests that failed.
    """

    samples: int
    exact: int
    exact_share: float | None
    predicted_tokens: int
    real_tokens: int
    false_hit_tokens: int
    lost_hit_tokens: int
    regret_tokens: int
    unjoined: int
    failed: int
    by_age: dict[str, AgeFigures]
    causes: dict[str, CauseFigures]


class ConsistencyTrend(msgspec.Struct, kw_only=True):
    """The last hour beside the last day; null where nothing was reported."""

    exact_share_1h: float | None
    exact_share_24h: float | None
    change: float | None


class ConsistencyRow(msgspec.Struct, kw_only=True):
    """One source. `drifted`: it is suspect because it kept reusing something else than was said."""

    pod: str
    dp_rank: int
    model: str | None
    tenant: str
    state: StateName
    drifted: bool
    trend: ConsistencyTrend
    windows: dict[WindowName, ConsistencyFigures]


class ConsistencyTotal(msgspec.Struct, kw_only=True):
    """All listed sources of one model and tenant."""

    model: str | None
    tenant: str
    trend: ConsistencyTrend
    windows: dict[WindowName, ConsistencyFigures]


class AnswersKept(msgspec.Struct, kw_only=True):
    """What is remembered of answers, for `horizon_s` at most: a report is joined to these.

    `bytes` and `forgotten_early` are of all tenants, and null where one alone is told of.
    """

    count: int
    bytes: int | None
    horizon_s: float
    oldest_s: float
    forgotten_early: int | None


class ConsistencyReport(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/reports/consistency`, ordered by pod and rank.

    Sources of which nothing was reported are not in it. `seen_s`: for how long this process has been looking.
    """

    at: str
    seen_s: int
    answers: AnswersKept
    totals: list[ConsistencyTotal]
    sources: list[ConsistencyRow]
