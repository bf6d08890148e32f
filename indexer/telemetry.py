"""Every metric this service shows, with unit and meaning.

Reads facts when they are asked for, by a scrape or an export; the hot path only counts.

`prometheus_client` writes the exposition; what is counted lives where it happens (source counters, ingest totals), so
that a series of a source goes with the source. Lookup durations are kept in our own buckets: one bisect a lookup
instead of a Python loop over buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.index.plan import EVENT_KINDS
from indexer.index.states import bound_of, state_of
from indexer.model import TIER_NAMES
from indexer.prometheus_parts import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from indexer.index.source import SourceIndex
    from indexer.index.states import StateLimits
    from indexer.model import SourceId
    from indexer.ports import Clock, ExportResult, SpanResult

BUCKETS_S: Final = (5e-5, 1e-4, 2e-4, 3.5e-4, 5e-4, 7.5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0)

SOURCES_A_PIECE: Final = 16
"""Of the exposition; about a millisecond."""
HISTOGRAMS_A_PIECE: Final = 8
FAMILY: Final = b"\n# HELP "
"""Begins a metric; no label holds a line's end."""

METRICS: Final[dict[str, str]] = {
    "kvindexer_lookup_duration_seconds": "Time from a request's last byte to its answer, by api, input and code.",
    "kvindexer_lookups_total": "Lookups answered, by api and answer state.",
    "kvindexer_recommendations_total": "Recommendations and picks ranked, by strategy and by where loads came from.",
    "kvindexer_texts_total": "Prompts told as text, by who makes their tokens and what came of it.",
    "kvindexer_text_duration_seconds": "Time to make the tokens of a text that was not known, by who makes them.",
    "kvindexer_text_cache_bytes": "Held by the tokens of texts that were tokenized before.",
    "kvindexer_source_state": "1 for the state a source is in, by source and state.",
    "kvindexer_source_lag_seconds": "Age of the newest proof that nothing of this source is missing.",
    "kvindexer_source_last_message_timestamp_seconds": "Unix time of the newest message that came live.",
    "kvindexer_source_bound": "1 for the bound of what is claimed about a source, by source and bound.",
    "kvindexer_ghosts_dropped_total": "Entries from before a kept gap dropped because their parent is not held.",
    "kvindexer_gaps_total": "Gaps noticed in the sequence of a source, healed or not.",
    "kvindexer_batches_lost_total": "Batches that no replay could bring back.",
    "kvindexer_replays_total": "Replay conversations, by result.",
    "kvindexer_restarts_total": "Restarts of engines noticed.",
    "kvindexer_orphans": "Blocks parked because their parent or their tokens are not known yet.",
    "kvindexer_events_total": "Events applied, by kind.",
    "kvindexer_events_skipped_total": "Events or batches that could not be used, by reason.",
    "kvindexer_blocks": "Distinct blocks held, by source and tier; shown by the replica that applies its events.",
    "kvindexer_limit_reached_total": "Times a limit was reached, by limit.",
    "kvindexer_routed_total": "Reports that a request was routed to a pod, by result.",
    "kvindexer_epp_picks_total": "Requests for which Envoy had an endpoint picked, by what came of it.",
    "kvindexer_epp_served_total": "Such requests of which it was told who served them, by who that was.",
    "kvindexer_receipts_total": "Routed prompts whose event came (`confirmed`) or did not within 10 s (`expired`).",
    "kvindexer_speculative_blocks": "Blocks expected of sources since prompts were routed to them.",
    "kvindexer_hints_total": "What replicas tell each other of routed prompts, by result; no series in memory mode.",
    "kvindexer_engine_load": "Requests at an engine as recommendations count them, by source and kind.",
    "kvindexer_engine_scrapes_total": "Readings of engines' own metrics, by result.",
    "kvindexer_access_reloads_total": "Changed files of tokens or certificates read anew, by file and result.",
    "kvindexer_discovery_watching": "1 where this process looks for engines, 0 where it would if it had to.",
    "kvindexer_discovery_sources": "Sources in the latest picture, by discoverer; of the process that watches.",
    "kvindexer_discovery_heard_age_seconds": "Since an orchestrator or name server was heard last, by discoverer.",
    "kvindexer_discovery_errors_total": "How often it could not be heard, by discoverer and reason.",
    "kvindexer_discovery_removals_waiting": "Sources that are gone and not removed yet (limits.max_clears_per_minute).",
    "kvindexer_redis_up": "1 while the store answers, 0 while it does not; no series in memory mode.",
    "kvindexer_redis_failures_total": "Calls to the store that failed for good, by kind.",
    "kvindexer_partitions_owned": "Partitions of the store that this replica writes.",
    "kvindexer_partitions_standby": "Partitions whose engines this replica listens to without applying, to take over.",
    "kvindexer_standby_bytes": "Messages kept unread of engines that this replica only listens to.",
    "kvindexer_standby_dropped_total": "Such messages that found no room: a takeover has to ask for them.",
    "kvindexer_takeovers_total": "Partitions that this replica came to own, by cause.",
    "kvindexer_handovers_total": "Partitions that this replica gave to another in order.",
    "kvindexer_replicas": "Replicas of the deployment that this one knows, by state.",
    "kvindexer_followed_sources": "Sources of the models that a replica of chosen ones follows, by model.",
    "kvindexer_sources_passed_over": "Registered sources of models that this replica does not follow.",
    "kvindexer_journal_lag_seconds": "Age of the newest journal entry written or applied here, by partition.",
    "kvindexer_journal_pending_bytes": "Changes that wait to be written to the store, by partition.",
    "kvindexer_spans_total": "Spans that ended, by what came of them: sent, refused by the collector, or dropped.",
    "kvindexer_false_hit_tokens_total": "Tokens said to be reusable that the engine computed all the same.",
    "kvindexer_lost_hit_tokens_total": "Tokens that the engine reused and that were not known.",
    "kvindexer_feedback_total": "Reports of what engines really reused, by what became of them.",
    "kvindexer_answers": "Answers that are remembered, for reports to be joined to.",
    "kvindexer_answers_bytes": "Held by these.",
    "kvindexer_answers_forgotten_total": "Answers that were forgotten before their time.",
    "kvindexer_metric_exports_total": "Exports of metrics to the collector, by what came of them.",
    "kvindexer_event_loop_lag_seconds": "Longest delay of the event loop since the last scrape, or export.",
    "kvindexer_build_info": "1, with version, hash scheme and store layout.",
}

_REPLAYS: Final = ("ok", "partial", "failed", "timeout", "foreign")


class LookupTimes:
    """Durations and outcomes of lookups."""

    def __init__(self) -> None:
        self.durations: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}
        self.states: Counter[tuple[str, str]] = Counter()

    def observe(self, api: str, form: str, code: int, state: str, seconds: float) -> None:
        """One lookup; `form` is the input form, `state` empty for a refused one."""
        key = (api, form, str(code))
        counts = self.durations.get(key)
        if counts is None:
            counts = self.durations[key] = ([0] * (len(BUCKETS_S) + 1), [0.0])
        counts[0][bisect_left(BUCKETS_S, seconds)] += 1
        counts[1][0] += seconds
        if state:
            self.states[api, state] += 1


class TextCounts:
    """Texts that were to be tokenized (texts/making.py)."""

    def __init__(self, limits_reached: Counter[str]) -> None:
        self.results: Counter[tuple[str, str]] = Counter()
        self.durations: dict[str, tuple[list[int], list[float]]] = {}
        self.cache_bytes = 0
        """Set before each scrape."""
        self._limits_reached = limits_reached

    def came(self, source: str, result: str) -> None:
        """One text: who was to read it, and what came of that."""
        self.results[source, result] += 1

    def took(self, source: str, seconds: float) -> None:
        """So long it took to make the tokens of one."""
        counts = self.durations.setdefault(source, ([0] * (len(BUCKETS_S) + 1), [0.0]))
        counts[0][bisect_left(BUCKETS_S, seconds)] += 1
        counts[1][0] += seconds

    def limit(self, name: str) -> None:
        """A limit was reached."""
        self._limits_reached[name] += 1


class ReceiptCounts:
    """What came of reports that requests were routed, and of what they led to."""

    def __init__(self) -> None:
        self.routed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.hints: Counter[str] = Counter()
        self.speculative_blocks = 0
        """Set before each scrape."""


@dataclass(frozen=True, slots=True)
class FeedbackCounts:
    """Reports of reuse, by result, and what came of those that were compared; and answers that are remembered."""

    results: Mapping[str, int] = field(default_factory=dict)
    false_tokens: int = 0
    lost_tokens: int = 0
    answers: int = 0
    answers_bytes: int = 0
    answers_forgotten: int = 0


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How the store and this replica on it are doing.

    `lags_s` and `pending_bytes` by partition; `failures` by kind, ever. `standby`: partitions listened along to, with
    what is kept of their engines, and `standby_dropped` messages that found no room, ever. `takeovers` by cause, ever;
    `handovers`, ever; `replicas` by state, as far as the store told. Where chosen models are followed:
    `followed` sources by model, and registered ones that are `passed_over`.
    """

    up: bool
    owned: int
    lags_s: Mapping[int, float]
    pending_bytes: Mapping[int, int]
    failures: Mapping[str, int]
    standby: int = 0
    standby_bytes: int = 0
    standby_dropped: int = 0
    takeovers: Mapping[str, int] = field(default_factory=dict)
    handovers: int = 0
    replicas: Mapping[str, int] = field(default_factory=dict)
    followed: Mapping[str, int] = field(default_factory=dict)
    passed_over: int = 0


class DiscoveryHealth(NamedTuple):
    """How discovery is going in this process.

    `sources` of the latest picture and `heard_age_s`, both by discoverer and of a process that watches; `failures` by
    discoverer and reason, ever. `waiting`: sources that are gone and not removed yet. `remarks` by pod, for people.
    """

    watching: bool
    sources: Mapping[str, int]
    heard_age_s: Mapping[str, float]
    failures: Mapping[tuple[str, str], int]
    waiting: int
    remarks: Mapping[str, str]


class Telemetry:
    """Collects when it is asked; `departed` keeps totals of sources that left."""

    def __init__(self, clock: Clock, limits: StateLimits, version: str, *, per_source: bool) -> None:
        self.lookups = LookupTimes()
        self.recommendations: Counter[tuple[str, str]] = Counter()
        """By strategy, and by where loads came from."""
        self.limits_reached: Counter[str] = Counter()
        self.texts = TextCounts(self.limits_reached)
        self.reloads: Counter[tuple[str, str]] = Counter()
        """Of files that say who may call, by file and result."""
        self.spans: Counter[SpanResult] = Counter()
        """By what came of them; empty where nothing is traced."""
        self.exports: Counter[ExportResult] = Counter()
        """Of metrics; empty where none are sent."""
        self.receipts = ReceiptCounts()
        self.picks: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        """Of the endpoint picker; both empty where there is none."""
        self.departed: Counter[str] = Counter()
        self.nobodys: Counter[str] = Counter()
        """What came on bound sockets and could be given to no source."""
        self.loop_lag_s = self.sent_loop_lag_s = 0.0
        """The most since the last scrape, and since the last export."""
        self.store: StoreHealth | None = None
        """Set before each scrape by who has a store; None in memory mode."""
        self.discovery: DiscoveryHealth | None = None
        """Set before each scrape where engines are looked for."""
        self.feedback = FeedbackCounts()
        """Set before each scrape."""
        self.feedback_refused = 0
        self.scrapes: Counter[str] = Counter()
        """Readings of engines' metrics, by what came of them."""
        self.load_of: Callable[[SourceId], Mapping[str, float]] = lambda _: {}
        """What is known of a source's load, by kind."""
        self.follows: Callable[[SourceId], bool] = lambda _: False
        """Whether another replica applies a source's events: then its blocks are not counted here."""
        self._clock = clock
        self._state_limits = limits
        self._version = version
        self.per_source = per_source

    def limit_reached(self, limit: str) -> None:
        """Count it."""
        self.limits_reached[limit] += 1

    def recommended(self, strategy: str, loads: str) -> None:
        """One answer says where to send a request."""
        self.recommendations[strategy, loads] += 1

    def lagged(self, seconds: float) -> None:
        """So late the event loop was."""
        self.loop_lag_s = max(self.loop_lag_s, seconds)
        self.sent_loop_lag_s = max(self.sent_loop_lag_s, seconds)

    def text(self, sources: list[SourceIndex]) -> Generator[None, None, bytes]:
        """A generator that returns the exposition for these sources.

        Between its steps others may run: a large fleet's takes longer than the loop may be held.
        """
        lag_s, self.loop_lag_s = self.loop_lag_s, 0.0
        families: dict[bytes, list[bytes]] = {}
        for family in (yield from self.families(sources, lag_s)):
            _add_exposition((family,), families)
            yield
        for first in range(0, len(sources) if self.per_source else 0, SOURCES_A_PIECE):
            _add_exposition(self.source_families(sources[first : first + SOURCES_A_PIECE]), families)
            yield
        return b"".join(b"\n".join([head, *samples]) for head, samples in families.items())[1:] + b"\n"

    def families(self, sources: list[SourceIndex], lag_s: float) -> Generator[None, None, Iterator[Metric]]:
        """A generator that returns all that is told of no single source. One with many series may come in pieces."""
        totals, waiting = self.departed + self.nobodys, 0
        for source in sources:
            totals.update(source.counters)
            waiting += source.holdings.waiting
            yield
        return chain(
            self._lookup_metrics(),
            _text_metrics(self.texts),
            _receipt_metrics(self.receipts),
            self._event_metrics(totals, waiting),
            _feedback_metrics(self.feedback, self.feedback_refused),
            _store_metrics(self.store),
            _discovery_metrics(self.discovery),
            self._own_metrics(lag_s),
        )

    def _own_metrics(self, lag_s: float) -> Iterator[Metric]:
        yield _by_label(_counter("kvindexer_spans", "result"), self.spans.items())
        yield _by_label(_counter("kvindexer_metric_exports", "result"), self.exports.items())
        yield _by_label(_counter("kvindexer_epp_picks", "result"), self.picks.items())
        yield _by_label(_counter("kvindexer_epp_served", "by"), self.served.items())
        yield _by_label(_counter("kvindexer_engine_scrapes", "result"), self.scrapes.items())
        lag = _gauge("kvindexer_event_loop_lag_seconds")
        lag.add_metric([], lag_s)
        yield lag
        info = _gauge("kvindexer_build_info", "version", "hash_scheme", "layout")
        info.add_metric([self._version, "kvi1", "1"], 1)
        yield info

    def _lookup_metrics(self) -> Iterator[Metric]:
        name = "kvindexer_lookup_duration_seconds"
        known = list(self.lookups.durations.items())
        for first in range(0, max(1, len(known)), HISTOGRAMS_A_PIECE):
            durations = HistogramMetricFamily(name, METRICS[name], labels=("api", "input", "code"))
            for labels, (counts, total) in known[first : first + HISTOGRAMS_A_PIECE]:
                durations.add_metric(list(labels), _cumulative(counts), total[0])
            yield durations
        states = _counter("kvindexer_lookups", "api", "state")
        for labels2, count in self.lookups.states.items():
            states.add_metric(list(labels2), count)
        yield states
        recommendations = _counter("kvindexer_recommendations", "strategy", "loads")
        for labels2, count in self.recommendations.items():
            recommendations.add_metric(list(labels2), count)
        yield recommendations

    def _event_metrics(self, totals: Counter[str], waiting: int) -> Iterator[Metric]:
        for name, key in (
            ("kvindexer_gaps", "wire.gaps"),
            ("kvindexer_batches_lost", "batches_lost"),
            ("kvindexer_restarts", "restarts"),
            ("kvindexer_ghosts_dropped", "ghosts_dropped"),
        ):
            plain = _counter(name)
            plain.add_metric([], totals[key])
            yield plain
        events = _counter("kvindexer_events", "kind")
        for kind in EVENT_KINDS:
            events.add_metric([kind], totals[kind])
        yield events
        skipped = _counter("kvindexer_events_skipped", "reason")
        for key, count in sorted(totals.items()):
            if key.startswith("skipped."):
                skipped.add_metric([key.removeprefix("skipped.")], count)
        skipped.add_metric(["frames_malformed"], totals["wire.frames_malformed"])
        yield skipped
        replays = _counter("kvindexer_replays", "result")
        for result in _REPLAYS:
            replays.add_metric([result], totals[f"wire.replays_{result}"])
        yield replays
        reached = _counter("kvindexer_limit_reached", "limit")
        for limit, count in (*self.limits_reached.items(), ("events.lane_bytes", totals["wire.lane_overflows"])):
            reached.add_metric([limit], count)
        reached.add_metric(["limits.orphans"], totals["skipped.orphans"])
        yield reached
        reloads = _counter("kvindexer_access_reloads", "file", "result")
        for (file, result), count in list(self.reloads.items()):
            reloads.add_metric([file, result], count)
        yield reloads
        orphans = _gauge("kvindexer_orphans")
        orphans.add_metric([], waiting)
        yield orphans

    def source_families(self, sources: Sequence[SourceIndex]) -> Iterator[Metric]:
        """What is told of each of these sources; only where `per_source` says so."""
        now, wall = self._clock.now(), self._clock.wall_us() / 1e6
        state = _gauge("kvindexer_source_state", "source", "state")
        bound = _gauge("kvindexer_source_bound", "source", "bound")
        lag = _gauge("kvindexer_source_lag_seconds", "source")
        last = _gauge("kvindexer_source_last_message_timestamp_seconds", "source")
        blocks = _gauge("kvindexer_blocks", "source", "tier")
        load = _gauge("kvindexer_engine_load", "source", "kind")
        for source in sources:
            name, facts = source_label(source.descriptor.id), source.facts
            state.add_metric([name, state_of(facts, now, self._state_limits)], 1)
            bound.add_metric([name, bound_of(facts)], 1)
            if facts.proof_at is not None:
                lag.add_metric([name], now - facts.proof_at)
            if facts.message_at is not None:
                last.add_metric([name], wall - (now - facts.message_at))
            for kind, count in self.load_of(source.descriptor.id).items():
                load.add_metric([name, kind], count)
            if self.follows(source.descriptor.id):
                continue
            for tier, count in blocks_by_tier(source).items():
                blocks.add_metric([name, tier], count)
        yield from (state, bound, lag, last, blocks, load)


def _text_metrics(texts: TextCounts) -> Iterator[Metric]:
    results = _counter("kvindexer_texts", "source", "result")
    for labels, count in texts.results.items():
        results.add_metric(list(labels), count)
    yield results
    name = "kvindexer_text_duration_seconds"
    durations = HistogramMetricFamily(name, METRICS[name], labels=("source",))
    for source, (counts, total) in texts.durations.items():
        durations.add_metric([source], _cumulative(counts), total[0])
    yield durations
    cached = _gauge("kvindexer_text_cache_bytes")
    cached.add_metric([], texts.cache_bytes)
    yield cached


def _receipt_metrics(receipts: ReceiptCounts) -> Iterator[Metric]:
    yield _by_label(_counter("kvindexer_routed", "result"), receipts.routed.items())
    yield _by_label(_counter("kvindexer_receipts", "result"), receipts.ended.items())
    yield _by_label(_counter("kvindexer_hints", "result"), receipts.hints.items())
    blocks = _gauge("kvindexer_speculative_blocks")
    blocks.add_metric([], receipts.speculative_blocks)
    yield blocks


def _cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Counts by bucket as the exposition wants them: each with all below it."""
    edges = (*map(str, BUCKETS_S), "+Inf")
    return list(zip(edges, map(float, accumulate(counts)), strict=True))


def _feedback_metrics(feedback: FeedbackCounts, refused: int) -> Iterator[Metric]:
    for name, count in (
        ("kvindexer_false_hit_tokens", feedback.false_tokens),
        ("kvindexer_lost_hit_tokens", feedback.lost_tokens),
        ("kvindexer_answers_forgotten", feedback.answers_forgotten),
    ):
        plain = _counter(name)
        plain.add_metric([], count)
        yield plain
    for name, value in (
        ("kvindexer_answers", feedback.answers),
        ("kvindexer_answers_bytes", feedback.answers_bytes),
    ):
        gauge = _gauge(name)
        gauge.add_metric([], value)
        yield gauge
    yield _by_label(_counter("kvindexer_feedback", "result"), {**feedback.results, "refused": refused}.items())


def _store_metrics(store: StoreHealth | None) -> Iterator[Metric]:
    if store is None:
        return
    for name, value in (
        ("kvindexer_redis_up", store.up),
        ("kvindexer_partitions_owned", store.owned),
        ("kvindexer_partitions_standby", store.standby),
        ("kvindexer_sources_passed_over", store.passed_over),
        ("kvindexer_standby_bytes", store.standby_bytes),
    ):
        plain = _gauge(name)
        plain.add_metric([], value)
        yield plain
    for name, count in (
        ("kvindexer_standby_dropped", store.standby_dropped),
        ("kvindexer_handovers", store.handovers),
    ):
        ever = _counter(name)
        ever.add_metric([], count)
        yield ever
    yield _by_label(_counter("kvindexer_redis_failures", "kind"), store.failures.items())
    yield _by_label(_counter("kvindexer_takeovers", "cause"), store.takeovers.items())
    yield _by_label(_gauge("kvindexer_replicas", "state"), store.replicas.items())
    yield _by_label(_gauge("kvindexer_followed_sources", "model"), store.followed.items())
    for name, by_partition in (
        ("kvindexer_journal_lag_seconds", store.lags_s),
        ("kvindexer_journal_pending_bytes", store.pending_bytes),
    ):
        gauge = _gauge(name, "partition")
        for partition, amount in sorted(by_partition.items()):
            gauge.add_metric([str(partition)], amount)
        yield gauge


def _discovery_metrics(discovery: DiscoveryHealth | None) -> Iterator[Metric]:
    if discovery is None:
        return
    for name, value in (
        ("kvindexer_discovery_watching", discovery.watching),
        ("kvindexer_discovery_removals_waiting", discovery.waiting),
    ):
        plain = _gauge(name)
        plain.add_metric([], value)
        yield plain
    yield _by_label(_gauge("kvindexer_discovery_sources", "discoverer"), discovery.sources.items())
    yield _by_label(_gauge("kvindexer_discovery_heard_age_seconds", "discoverer"), discovery.heard_age_s.items())
    errors = _counter("kvindexer_discovery_errors", "discoverer", "reason")
    for labels, count in sorted(discovery.failures.items()):
        errors.add_metric(list(labels), count)
    yield errors


def source_label(source: SourceId) -> str:
    """The pod, and `#rank` unless that is 0; always where the name holds a `#`, so that no two sources share series."""
    return f"{source.pod}#{source.dp_rank}" if source.dp_rank or "#" in source.pod else source.pod


def blocks_by_tier(source: SourceIndex) -> dict[str, int]:
    """Distinct blocks a source holds in each tier."""
    return dict(zip(TIER_NAMES, source.holdings.blocks, strict=True))


class _Families:
    """What prometheus_client asks for metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _add_exposition(metrics: Iterable[Metric], families: dict[bytes, list[bytes]]) -> None:
    """Their samples to those that there are already, by what heads them."""
    piece = b"\n" + generate_latest(_Families(metrics)).rstrip()
    for family in piece.split(FAMILY)[1:]:
        helped, typed, *samples = family.split(b"\n", 2)
        families.setdefault(FAMILY + helped + b"\n" + typed, []).extend(samples)


def _by_label(
    family: CounterMetricFamily | GaugeMetricFamily, counts: Iterable[tuple[str, float]]
) -> CounterMetricFamily | GaugeMetricFamily:
    """Filled with them, of one label each."""
    for label, count in sorted(counts):
        family.add_metric([label], count)
    return family


def _counter(name: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, METRICS[f"{name}_total"], labels=labels)


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, METRICS[name], labels=labels)
