"""What a metric's labels are, and what to do when it moves: METRICS.md is made of it (`make metrics`). Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = "pod, `#rank` unless 0; none with `metrics.per_source: false`"


class Advice(NamedTuple):
    """`labels` and what they hold; `todo`: what an operator does, or sees it by."""

    todo: str
    labels: Mapping[str, str] = MappingProxyType({})


ADVICE: Final[dict[str, Advice]] = {
    "kvindexer_lookup_duration_seconds": Advice(
        "p99 above some milliseconds: look at `kvindexer_event_loop_lag_seconds` and at the core's load; add replicas.",
        {
            "api": "rest, batch, recommend, pick, epp, grpc, dynamo, mooncake, picker, llm-d",
            "input": "json, msgpack, bytes, hashes, text, unknown",
            "code": "status of the answer",
        },
    ),
    "kvindexer_lookups_total": Advice(
        "Many `degraded` or `no_signal`: `kvindexer report staleness` says which sources are not exact, and why.",
        {"api": "as above", "state": "exact, degraded, no_signal"},
    ),
    "kvindexer_recommendations_total": Advice(
        "Many with loads `none`: nothing tells how busy engines are; let the service read their metrics, or report "
        "`/v1/routed`.",
        {"strategy": "blend, prefix, load", "loads": "request, metrics, receipts, none"},
    ),
    "kvindexer_texts_total": Advice(
        "Other results than `made` and `cached`: the source's tokenizer; `kvindexer sources` has a remark.",
        {"source": "file or engine: who makes the tokens", "result": "made, cached, refused, late, failed"},
    ),
    "kvindexer_text_duration_seconds": Advice(
        "Above `limits.text_timeout_ms`: raise `limits.text_threads`, or have callers send ids.",
        {"source": "as above"},
    ),
    "kvindexer_text_cache_bytes": Advice("Full is normal: `limits.text_cache_bytes` bounds it."),
    "kvindexer_source_state": Advice(
        "Alert on `down` and `suspect` that last: `kvindexer sources` says why.",
        {"source": SOURCE, "state": "new, syncing, live, suspect, stale, down"},
    ),
    "kvindexer_source_lag_seconds": Advice(
        "Grows beyond `events.probe_interval_s`: the replay endpoint does not answer. Of an idle engine without one it "
        "grows all the time: nothing proves that no message was lost.",
        {"source": SOURCE},
    ),
    "kvindexer_source_last_message_timestamp_seconds": Advice(
        "Stands still while the engine works: its events do not arrive. An idle engine sends nothing.",
        {"source": SOURCE},
    ),
    "kvindexer_source_bound": Advice(
        "Not `exact` for long: a restart of the engine, a clear by it or a full replay makes it exact again.",
        {"source": SOURCE, "bound": "exact, lower, upper, estimate"},
    ),
    "kvindexer_ghosts_dropped_total": Advice("Follows unhealed gaps: give the engine a replay endpoint."),
    "kvindexer_gaps_total": Advice("Rises: messages are lost; look at the network and the engine's send queue."),
    "kvindexer_batches_lost_total": Advice(
        "Any: what the replay could not bring back. Give the engine a replay endpoint, or a longer buffer."
    ),
    "kvindexer_replays_total": Advice(
        "`timeout` and `failed`: the replay endpoint does not answer. `partial`: its buffer is too short. `foreign`: "
        "it is another engine's; correct the address.",
        {"result": "ok, partial, failed, timeout, foreign"},
    ),
    "kvindexer_restarts_total": Advice("Beside the engines' own restarts: two engines that share an address."),
    "kvindexer_orphans": Advice("Grows and stays: what they wait for was lost; `limits.orphans` bounds it a source."),
    "kvindexer_events_total": Advice(
        "No `removed` while engines are full: removals do not arrive.", {"kind": "stored, removed, cleared"}
    ),
    "kvindexer_events_skipped_total": Advice(
        "Any: events that this version does not read; compare the engine's version.", {"reason": "why"}
    ),
    "kvindexer_blocks": Advice(
        "Above the engine's capacity: removals were lost.",
        {"source": SOURCE, "tier": "gpu, cpu, storage, remote, unknown"},
    ),
    "kvindexer_limit_reached_total": Advice(
        "The limit's name is its setting (SETTINGS.md), or the place: raise it, or ask less.", {"limit": "its name"}
    ),
    "kvindexer_engine_load": Advice(
        "Much more at one than at others of its model for long: do callers take the recommended order? No series: its "
        "metrics are not read and nothing is known to have been sent there.",
        {"source": SOURCE, "kind": "running, waiting, unseen (routed there since its metrics were read)"},
    ),
    "kvindexer_engine_scrapes_total": Advice(
        "Many `failed` or `no_load`: `kvindexer sources` says of which engine; `loads.interval_s` sets how often.",
        {"result": "ok, no_load (an answer without requests running or waiting), failed"},
    ),
    "kvindexer_access_reloads_total": Advice(
        "`failed`: the changed file is not in force; the log says why.",
        {"file": "tokens, tls", "result": "ok, failed"},
    ),
    "kvindexer_routed_total": Advice(
        "Many `refused`: their pods, models or lookups are not known here. `not_placed`: a block size is not known.",
        {"result": "expected, held (all of it, already), repeated (its request id), not_placed, refused"},
    ),
    "kvindexer_epp_picks_total": Advice(
        "`no_endpoint`: no pod may serve it, or none of the subset. `nobody`: whoever could serve it is not known "
        "here, or not its address, or this is not ready. `fault`: the log says why.",
        {"result": "prefix, load, nobody, no_endpoint (503), overload (429), fault"},
    ),
    "kvindexer_epp_served_total": Advice(
        "Many `fallback`: the first endpoint does not answer. `other`, `unknown`: the gateway does not follow picks.",
        {"by": "first, fallback, other, unknown"},
    ),
    "kvindexer_receipts_total": Advice(
        "Many `expired`: routers report what engines do not then store; compare pod names.",
        {"result": "confirmed, expired; those that a restart or clear of the engine ended are neither"},
    ),
    "kvindexer_speculative_blocks": Advice("Near `limits.speculative_blocks`: the oldest go before their event comes."),
    "kvindexer_hints_total": Advice(
        "No `taken` while others send: replicas do not hear each other's hints. `dropped`: the store is away.",
        {"result": "sent, dropped, taken, unknown (of another generation or source), late, damaged"},
    ),
    "kvindexer_false_hit_tokens_total": Advice("Rises against tokens said: `kvindexer report consistency` has causes."),
    "kvindexer_lost_hit_tokens_total": Advice("As above: a history is incomplete, or a tier sends no events."),
    "kvindexer_feedback_total": Advice(
        "Many that join no answer: they come too late (`feedback.answers_s`), or at another replica.",
        {"result": "joined, unjoined, repeated, failed (nothing to compare), refused"},
    ),
    "kvindexer_answers": Advice("Follows the rate of lookups times `feedback.answers_s`."),
    "kvindexer_answers_bytes": Advice("At `feedback.answers_bytes` the oldest answers go early."),
    "kvindexer_answers_forgotten_total": Advice("Rises: raise `feedback.answers_bytes`, or report sooner."),
    "kvindexer_discovery_watching": Advice(
        "0 at all replicas: nobody looks for engines; the store, or replicas that are not set up to (`discovery`)."
    ),
    "kvindexer_discovery_sources": Advice(
        "Fewer than you run: the log says what was left out, and why; so does `kvindexer doctor`.",
        {"discoverer": "kubernetes, dns"},
    ),
    "kvindexer_discovery_heard_age_seconds": Advice(
        "Grows: the orchestrator or name server does not answer; what stands goes on, new engines are not seen.",
        {"discoverer": "as above"},
    ),
    "kvindexer_discovery_errors_total": Advice(
        "Rises: by its reason, rights, the network, or the other side.",
        {"discoverer": "as above", "reason": "of failure"},
    ),
    "kvindexer_discovery_removals_waiting": Advice(
        "Stays above 0: more pods went than `limits.max_clears_per_minute`; has a selector become wrong?"
    ),
    "kvindexer_redis_up": Advice("0: lookups go on from memory, and age; bring the store back."),
    "kvindexer_redis_failures_total": Advice(
        "Rises: the log says which call; look at the store.", {"kind": "of failure"}
    ),
    "kvindexer_partitions_owned": Advice(
        "The sum over replicas is `redis.partitions`: less, and some are not applied."
    ),
    "kvindexer_partitions_standby": Advice("0 at all replicas: a takeover has to ask for what it missed."),
    "kvindexer_standby_bytes": Advice("Near `redis.standby_bytes`: the owner's writes lag behind."),
    "kvindexer_standby_dropped_total": Advice("Rises: raise `redis.standby_bytes`."),
    "kvindexer_takeovers_total": Advice(
        "`lease_expired`: a replica died, or could not reach the store for `redis.lease_s`.", {"cause": "why"}
    ),
    "kvindexer_handovers_total": Advice("Rises without replicas coming or going: they lose sight of each other."),
    "kvindexer_replicas": Advice("Fewer `live` than you run: look at those `silent`.", {"state": "of the replica"}),
    "kvindexer_followed_sources": Advice(
        "0: no source of a followed model is registered; look at `models.follow`.", {"model": "of `models.follow`"}
    ),
    "kvindexer_sources_passed_over": Advice("Says how much is not followed (`models.follow`); needs no action."),
    "kvindexer_journal_lag_seconds": Advice(
        "Above a second: the store is slow, or this replica's loop is.", {"partition": "its number"}
    ),
    "kvindexer_journal_pending_bytes": Advice(
        "Grows: the store does not take what is written; beyond its limit the partition is written anew.",
        {"partition": "its number"},
    ),
    "kvindexer_spans_total": Advice(
        "`dropped`, `refused`: the collector of traces; nothing else suffers.", {"result": "sent, refused, dropped"}
    ),
    "kvindexer_metric_exports_total": Advice(
        "`failed`: the collector cannot be reached; `refused`: it did not take all. The next export tells all anew.",
        {"result": "sent, refused, failed"},
    ),
    "kvindexer_event_loop_lag_seconds": Advice("Above some milliseconds: lookups wait so long; add replicas or cores."),
    "kvindexer_build_info": Advice(
        "Differs between replicas: an upgrade under way.",
        {"version": "of the service", "hash_scheme": "of token hashes", "layout": "of the store"},
    ),
}
