"""Which test has each event of the log happen. `tests/conftest.py` looks, each time that test runs, that it did."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from indexer.log_lines import line_of

if TYPE_CHECKING:
    from indexer.log_lines import Event

PARTS: Final = ("kvindexer", "indexer", "api")
"""Loggers of ours begin so."""

_SHARING: Final = "tests/contract/store/test_replica_sharing.py"
_FOLLOWED: Final = "tests/unit/partitions/test_followed_partition.py"
_STORE: Final = "tests/contract/store/"
_DISCOVERY: Final = "tests/unit/discovery/test_keeper.py::"
_NODE: Final = "tests/unit/node/"
_COLLECT: Final = "tests/e2e/collect/"
_BOUND: Final = "tests/e2e/collect/test_bound.py"
_TLS: Final = "tests/e2e/api/test_tls.py"
_TELEMETRY: Final = "tests/e2e/test_telemetry.py"
_METRICS: Final = "tests/unit/otlp/test_metric_sending.py"
_SENDING: Final = "tests/unit/otlp/test_sending.py"

LOGGED_BY: Final[dict[Event, str]] = {
    "caller_gone": "tests/e2e/rpc/test_answers_not_taken.py::test_who_shows_no_valid_token_counts_by_its_address",
    "certificate_read": f"{_TLS}::test_a_callers_authority_that_is_taken_away_counts_for_resumed_sessions_too",
    "certificate_unusable": f"{_TLS}::test_a_broken_renewal_leaves_the_certificate_in_force_and_is_said_once",
    "clears_refused": f"{_NODE}test_source_sets.py::test_few_go_without_asking",
    "command_unreadable": f"{_STORE}test_damaged.py::test_while_it_runs[valkey-a command]",
    "discovery_failing": f"{_DISCOVERY}test_a_trouble_that_lasts_is_told_once",
    "discovery_handed_over": f"{_STORE}test_discovered.py::test_who_loses_the_first_partition_watches_no_more[valkey]",
    "discovery_remark": f"{_DISCOVERY}test_what_is_done_is_in_the_log",
    "discovery_watching": f"{_DISCOVERY}test_what_is_done_is_in_the_log",
    "discovery_works": f"{_DISCOVERY}test_a_trouble_that_lasts_is_told_once",
    "event_skipped": "tests/unit/ingest/test_ingest.py::test_a_fault_of_ours_costs_one_event",
    "files_limited": f"{_COLLECT}test_fleet.py::test_open_files_are_allowed_as_far_as_the_hard_limit_goes",
    "lines_left_out": f"{_NODE}test_source_log.py::test_a_large_fleet_does_not_flood_the_log",
    "partition_asserted": f"{_SHARING}::test_an_emptied_store_gives_nothing_to_anybody_else",
    "partition_lost": f"{_SHARING}::test_an_emptied_store_gives_nothing_to_anybody_else",
    "partition_owned": f"{_SHARING}::test_three_share_the_partitions",
    "partition_reread": f"{_FOLLOWED}::test_a_journal_that_does_not_go_on_is_followed_anew[5-3-fields0-hole]",
    "partition_trouble": f"{_STORE}test_replica_odd.py::test_loads_that_fail_leave_nothing_behind",
    "replica_drained": f"{_SHARING}::test_the_log_tells_how_a_replica_went",
    "replica_undrained": f"{_SHARING}::test_the_log_tells_how_a_replica_went",
    "replicas_changed": f"{_STORE}test_replica_lost.py::test_a_segment",
    "replicas_differ": f"{_STORE}test_replica_configured.py::test_a_change_from_replica_to_replica",
    "request_failed": "tests/unit/api/faces/test_query.py::test_a_fault_of_ours_is_no_prompt_of_theirs",
    "requests_refused": f"{_NODE}test_source_log.py::test_refusals_for_who_asks_are_one_line_a_second",
    "source_appeared": f"{_NODE}test_slices.py::test_what_leaves_meanwhile_is_not_shown",
    "source_cleared": f"{_NODE}test_source_sets.py::test_a_pod_counts_once_however_many_ranks_it_has",
    "source_cordoned": f"{_NODE}test_source_sets.py::test_a_changed_registration_keeps_an_operators_cordon",
    "source_damaged": f"{_STORE}test_damaged.py::test_at_the_start[valkey-facts]",
    "source_discovered": f"{_DISCOVERY}test_what_is_done_is_in_the_log",
    "source_rediscovered": f"{_DISCOVERY}test_what_is_done_is_in_the_log",
    "source_registered": f"{_NODE}test_source_log.py::test_commands_of_callers_are_told",
    "source_removed": f"{_NODE}test_source_log.py::test_a_life_is_told_line_by_line",
    "source_restarted": f"{_NODE}test_source_log.py::test_a_life_is_told_line_by_line",
    "source_rewritten": f"{_STORE}test_replica_lost.py::test_too_much_waits",
    "source_state": f"{_NODE}test_source_log.py::test_a_life_is_told_line_by_line",
    "source_uncordoned": f"{_NODE}test_source_log.py::test_commands_of_callers_are_told",
    "source_undiscovered": f"{_DISCOVERY}test_what_is_done_is_in_the_log",
    "source_warning": "tests/unit/texts/test_asking.py::test_no_hub_is_reached",
    "sources_replaced": f"{_NODE}test_source_sets.py::test_few_go_without_asking",
    "store_answers": f"{_STORE}test_replica_fitness.py::test_a_policy_that_evicts",
    "store_failing": f"{_STORE}test_replica_fitness.py::test_a_policy_that_evicts",
    "store_key_taken": f"{_STORE}test_replica_lost.py::test_something_else_at_a_key",
    "store_ready": f"{_STORE}test_replica_lost.py::test_a_segment",
    "store_unwritten": f"{_STORE}test_replica_odd.py::test_a_stop_while_the_lease_is_over_says_what_is_left",
    "tokenizer_failing": "tests/unit/texts/test_asking.py::test_sources_whose_engine_cannot_be_asked_say_so",
    "tokenizer_works": "tests/unit/texts/test_asking.py::test_a_source_says_while_its_engine_fails_to_make_tokens",
    "tokens_read": "tests/unit/access/test_tokens.py::test_a_changed_file_counts",
    "tokens_unusable": "tests/unit/access/test_tokens.py::test_a_broken_file_keeps_the_tokens_of_before",
    "topics_refused": f"{_BOUND}::test_publishers_beyond_the_limit_are_refused_and_not_asked_about_each_time",
}
"""Each time that test runs, with all its parameters unless some are named, it is looked at whether it came."""

ASKED_BY: Final[dict[Event, str]] = {
    "listening": f"{_TELEMETRY}::test_all_that_a_service_writes_are_objects",
    "settings_remark": f"{_TELEMETRY}::test_all_that_a_service_writes_are_objects",
    "stopped": f"{_TELEMETRY}::test_all_that_a_service_writes_are_objects",
    "stopping": f"{_TELEMETRY}::test_all_that_a_service_writes_are_objects",
    "library": f"{_NODE}test_log_format.py::test_a_record_of_somebody_else_is_a_librarys",
    "metrics_failing": f"{_METRICS}::test_an_export_that_fails_is_counted_and_told_of_once",
    "metrics_taken": f"{_METRICS}::test_an_export_that_fails_is_counted_and_told_of_once",
    "traces_failing": f"{_SENDING}::test_a_collector_in_trouble_is_asked_again_and_told_of_once",
    "traces_taken": f"{_SENDING}::test_a_collector_in_trouble_is_asked_again_and_told_of_once",
}
"""Of another process, or no line of a log yet: the test asks for it by its name."""


def events_of(test: str) -> set[Event]:
    """What a test has happen."""
    return {event for event, named in LOGGED_BY.items() if named in {test, test.partition("[")[0]}}


class Events(logging.Handler):
    """Notes which came, at any level, while this lasts."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.seen: set[Event] = set()
        self._levels = {name: logging.getLogger(name).level for name in PARTS}

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.add(line_of(record).event)

    def __enter__(self) -> set[Event]:
        logging.getLogger().addHandler(self)
        for name in self._levels:
            logging.getLogger(name).setLevel(logging.DEBUG)
        return self.seen

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
