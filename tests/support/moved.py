"""Which test has each metric move, from the list in the code. A metric that is added belongs in one of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from indexer.metric_texts import ADVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IN_MEMORY: Final = (
    "kvindexer_source_state",
    "kvindexer_source_lag_seconds",
    "kvindexer_source_last_message_timestamp_seconds",
    "kvindexer_source_bound",
    "kvindexer_ghosts_dropped_total",
    "kvindexer_gaps_total",
    "kvindexer_batches_lost_total",
    "kvindexer_replays_total",
    "kvindexer_restarts_total",
    "kvindexer_orphans",
    "kvindexer_events_total",
    "kvindexer_events_skipped_total",
    "kvindexer_blocks",
    "kvindexer_limit_reached_total",
    "kvindexer_access_reloads_total",
    "kvindexer_false_hit_tokens_total",
    "kvindexer_lost_hit_tokens_total",
    "kvindexer_feedback_total",
    "kvindexer_answers",
    "kvindexer_answers_bytes",
    "kvindexer_answers_forgotten_total",
    "kvindexer_routed_total",
    "kvindexer_receipts_total",
    "kvindexer_speculative_blocks",
    "kvindexer_recommendations_total",
    "kvindexer_event_loop_lag_seconds",
    "kvindexer_build_info",
)
"""`tests/unit/node/test_metrics_move.py`: a node without a store, and what happens to its sources."""

ON_A_STORE: Final = (
    "kvindexer_redis_up",
    "kvindexer_redis_failures_total",
    "kvindexer_partitions_owned",
    "kvindexer_partitions_standby",
    "kvindexer_standby_bytes",
    "kvindexer_standby_dropped_total",
    "kvindexer_takeovers_total",
    "kvindexer_handovers_total",
    "kvindexer_replicas",
    "kvindexer_journal_lag_seconds",
    "kvindexer_journal_pending_bytes",
    "kvindexer_hints_total",
)
"""`tests/contract/store/test_metrics_move.py`: two replicas on a real store."""

OF_CHOSEN_MODELS: Final = ("kvindexer_followed_sources", "kvindexer_sources_passed_over")
"""`tests/e2e/cluster/test_sidecar.py`: a replica that follows one of two models."""

OF_DISCOVERY: Final = (
    "kvindexer_discovery_watching",
    "kvindexer_discovery_sources",
    "kvindexer_discovery_heard_age_seconds",
    "kvindexer_discovery_errors_total",
    "kvindexer_discovery_removals_waiting",
)
"""`tests/unit/discovery/test_keeper.py`: a node whose discoverer is heard, fails, and tells of more that are gone than
may go."""

ASKED_IN_TEXT: Final = (
    "kvindexer_lookup_duration_seconds",
    "kvindexer_lookups_total",
    "kvindexer_texts_total",
    "kvindexer_text_duration_seconds",
    "kvindexer_text_cache_bytes",
)
"""`tests/e2e/test_texts.py`: a service that is asked over HTTP, with prompts as text."""

TRACED: Final = ("kvindexer_spans_total",)
"""`tests/e2e/test_telemetry.py`: a service that sends spans to a collector."""

PICKED: Final = ("kvindexer_epp_picks_total", "kvindexer_epp_served_total")
"""`tests/e2e/epp/test_command.py`: a service that picks endpoints."""

SENT: Final = ("kvindexer_metric_exports_total",)
"""`tests/e2e/test_otlp_metrics.py`: one that sends metrics there."""

OF_ENGINES: Final = ("kvindexer_engine_load", "kvindexer_engine_scrapes_total")
"""`tests/unit/node/test_loads.py`: a node whose engine's metrics are read."""

MOVED_IN: Final = {
    "IN_MEMORY": "tests/unit/node/test_metrics_move.py",
    "ON_A_STORE": "tests/contract/store/test_metrics_move.py",
    "OF_CHOSEN_MODELS": "tests/e2e/cluster/test_sidecar.py",
    "OF_DISCOVERY": "tests/unit/discovery/test_keeper.py",
    "ASKED_IN_TEXT": "tests/e2e/test_texts.py",
    "TRACED": "tests/e2e/test_telemetry.py",
    "PICKED": "tests/e2e/epp/test_command.py",
    "SENT": "tests/e2e/test_otlp_metrics.py",
    "OF_ENGINES": "tests/unit/node/test_loads.py",
}
"""Which file has the metrics of each of these move, and looks at their labels."""


def samples_of(exposition: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and value of each sample, by metric as METRICS names it."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = [
            (sample.labels, sample.value)
            for sample in family.samples
            if not sample.name.endswith(("_created", "_bucket", "_sum"))
        ]
    return found


def moved(exposition: bytes, metric: str) -> bool:
    """Whether it says that something was so, or happened."""
    return any(value > 0 for _, value in samples_of(exposition).get(metric, ()))


def check_moved(expositions: Sequence[bytes], metrics: Iterable[str]) -> None:
    """At one place at least, and with the labels that are written down wherever it is told."""
    for metric in metrics:
        assert any(moved(each, metric) for each in expositions), metric
        for labels, _ in (sample for each in expositions for sample in samples_of(each)[metric]):
            assert labels.keys() == ADVICE[metric].labels.keys(), metric
