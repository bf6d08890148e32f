"""Which test has each metric move, from the list in the code. A metric that is added belongs in one of these."""

from __future__ import annotations

from typing import Final

from prometheus_client.parser import text_string_to_metric_families

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

BY_OTHERS: Final = {
    "kvindexer_lookup_duration_seconds": "tests/e2e/test_texts.py::test_texts_are_counted_and_never_shown",
    "kvindexer_lookups_total": "tests/e2e/test_texts.py::test_texts_are_counted_and_never_shown",
    "kvindexer_texts_total": "tests/e2e/test_texts.py::test_texts_are_counted_and_never_shown",
    "kvindexer_text_duration_seconds": "tests/e2e/test_texts.py::test_texts_are_counted_and_never_shown",
    "kvindexer_text_cache_bytes": "tests/e2e/test_texts.py::test_texts_are_counted_and_never_shown",
    "kvindexer_routed_total": "tests/e2e/api/test_routed.py::test_an_event_confirms_what_was_routed",
    "kvindexer_receipts_total": "tests/e2e/api/test_routed.py::test_an_event_confirms_what_was_routed",
    "kvindexer_speculative_blocks": "tests/e2e/api/test_routed.py::test_an_event_confirms_what_was_routed",
    "kvindexer_spans_total": "tests/e2e/test_telemetry.py::test_what_was_sent_is_counted",
}
"""A test that asks for the metric by its name."""


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
