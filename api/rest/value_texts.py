"""What each state, bound and reason means, for the OpenAPI document: by value. A test holds that none is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from indexer.happenings import Cause, What
from indexer.loads.known import LoadSource
from indexer.model import AnswerState, Bound, Reason, SourceState
from indexer.reports.causes import MismatchCause
from schemas.rest import PartitionState, ReplicaState

Value = TypeVar("Value", bound=str)

SOURCE_STATES: Final[Mapping[SourceState, str]] = {
    "new": "nothing was heard of the engine yet; not scored",
    "syncing": "a replay or probe is under way; what is loaded is scored",
    "live": "followed message by message; scored",
    "suspect": "something claimed may be false, for example after a loss that no replay healed; scored times "
    "`events.suspect_weight`",
    "stale": "no sign of life for `staleness.stale_after_s`; still scored",
    "down": "no sign of life for `staleness.score_ttl_s`; listed with score 0",
}
BOUNDS: Final[Mapping[Bound, str]] = {
    "exact": "every batch since the engine's start or last clear was applied: this is what it holds",
    "lower": "the beginning of its history, or some of it, is not known: it may hold more",
    "upper": "it may reuse less: the hit rule of a hybrid model is not known, or blocks lie in a tier without removals",
    "estimate": "messages were lost for good, or not understood: either way",
}
REASONS: Final[Mapping[Reason, str]] = {
    "no_match": "it holds no block from the prompt's start",
    "below_block_size": "the prompt is shorter than one of its blocks",
    "no_events_yet": "nothing was heard of it yet, or there is no source at all",
    "model_unknown": "nobody serves the model that was named; `nearest_model` may say which was meant",
    "other_model": "it was named in `pods` and serves another model; of a whole answer: the model is followed by other "
    "replicas, and not by this one (`models.follow`)",
    "adapter_unknown": "no source has shown blocks of this adapter",
    "other_block_size": "`block_hashes` are of another block size than its own",
    "block_size_unknown": "it has announced no block yet that tells the size",
    "lookahead": "its hashes cover tokens beyond a block's end: the prompt is too short, or hashes alone do not do",
    "hybrid_window": "the hit rule of one of its cache groups is not known: the numbers are an upper bound",
    "syncing": "a replay or probe is under way, and what is loaded does not match",
    "lagging": "it lags more than `max_lag_ms` allows",
    "stale": "no sign of life for a while; not given in this version, which scores such a source",
    "down": "no sign of life for so long that it is not scored",
    "not_ready": "whoever runs it says that no requests may go there: its pod is not ready, or is no more",
    "cordoned": "an operator has taken it out of the scores",
    "filtered": "`pod_roles`, or an empty `pods`, leaves it out",
    "pod_unknown": "no source goes by the name in `pods`",
    "approximate": "its engine announces nothing (`models.approximate`): what was routed there is all that is known",
    "deadline": "before the deadline the sequence in `min_sequence` was not applied, or a prompt told as text had no "
    "tokens: its engines could not be asked, failed or were late (their sources' `warnings` say how), or its turn in a "
    "batch did not come",
}
ANSWER_STATES: Final[Mapping[AnswerState, str]] = {
    "exact": "every candidate is live with bound `exact`; take the order given",
    "degraded": "some are not; take the order given, or filter by `pods[].state`",
    "no_signal": "nothing is known; balance as if you had not asked",
}
LOAD_SOURCES: Final[Mapping[LoadSource, str]] = {
    "request": "the question itself",
    "metrics": "the engines' own metrics, and what was sent there since",
    "receipts": "what was sent there in the last 30 s: by picks, and by reports of what was routed",
    "none": "nobody: prefixes alone decide, and no pod gets more than twice its share of one prefix in 30 s",
}
PARTITION_STATES: Final[Mapping[PartitionState, str]] = {
    "waiting": "nothing of it is here: nobody owns it yet, another may still own it, or the store does not answer",
    "loading": "it is being read from the store; what is there is scored",
    "live": "written or followed entry by entry",
    "asserting": "the store lost something of it, or what waited was too much: its maps are being written anew",
    "stale": "the store, or the owner, was not heard of for a while; answers come from what is in memory",
}
REPLICA_STATES: Final[Mapping[ReplicaState, str]] = {
    "live": "it is there",
    "draining": "an operator has it give up what it owns; it goes on following, and answering",
    "leaving": "it stops, and gives up what it owns",
    "silent": "nothing was heard of it for `redis.lease_s`: others take over what it owned",
}
HAPPENINGS: Final[Mapping[What, str]] = {
    "registered": "it was registered, or registered otherwise",
    "joined": "the first batch of a life of its engine was applied",
    "gap": "batches were lost for good",
    "restart": "a new life of its engine was noticed: nothing of before counts",
    "clear": "an operator had it forget what it held",
    "cleared_by_engine": "its engine announced that it dropped all blocks",
    "forgotten": "what was known of it was given up",
    "doubt": "from here on something claimed of it may be false, and nothing will tell",
    "dropped": "its messages found no room; it ended when they were replayed, or reported as a gap",
    "replay_differs": "its replay endpoint has other batches than arrived, as another engine's has",
    "takeover": "a replica began to apply its events",
    "handover": "a replica gave it to another one",
    "reassertion": "the store lacked something of it: its map was written anew from memory",
    "cordoned": "an operator took it out of the scores",
    "uncordoned": "an operator put it back into the scores",
    "ready": "discovery says that requests may go there again",
    "not_ready": "discovery says that no requests may go there: its pod is not ready, or is no more",
    "removed": "it is no longer followed",
}
CAUSES: Final[Mapping[Cause, str]] = {
    "flag": "`registered`: by a flag",
    "config": "`registered`: by the configuration",
    "api": "`registered`: by a caller",
    "discovery": "`registered`: by discovery",
    "topic": "`registered`: its engine connected to a bound socket",
    "from_the_start": "`joined`: at batch 0, so all is known of it",
    "in_the_middle": "`joined`: at a later batch, so it may hold more",
    "kept": "`gap`: what is known stays, in doubt",
    "cleared": "`gap`: what was known is forgotten (`events.gap_policy: clear`)",
    "sequence_went_back": "`restart`: its numbers began anew",
    "probe_differs": "`restart`: after a reconnect its replay endpoint had another batch in the place of the last one",
    "reconnect_jump": "`restart`: its numbers jumped after an absence long enough to start anew",
    "registration_differs": "`restart`: it was registered otherwise",
    "replay_differs": "`restart`: what was replayed turned out to be another engine's",
    "life_differs": "`restart`: discovery told of another process of it",
    "process_unproven": "`doubt`: its numbers went on after an absence in which it may have started anew",
    "drift": "`doubt`: it kept reusing something else than was claimed of it (`/v1/reports/consistency`)",
    "begun": "`dropped`, `replay_differs`: from here on",
    "ended": "`dropped`, `replay_differs`: up to here",
    "first": "`takeover`: nobody had it before",
    "again": "`takeover`: it had it before, and nobody else since, as after an outage of the store",
    "same_name": "`takeover`: by a new process of the same replica",
    "lease_expired": "`takeover`: the owner before was not heard of",
    "handed_over": "`takeover`: the owner before gave it",
    "rebalanced": "`handover`: another replica is to own it",
    "drained": "`handover`: the replica is being drained",
    "stopped": "`handover`: the replica stopped",
    "store_lost": "`reassertion`: keys were gone or damaged",
    "store_went_back": "`reassertion`: the store was emptied, restored, or lost its latest writes",
    "part_missing": "`reassertion`: a part of its map was gone when it was loaded",
    "too_much_waited": "`reassertion`: more waited for the store than `redis.pending_bytes`",
    "collected_alone": "`reassertion`: it was collected while the store did not answer",
    "gone_too_long": "`forgotten`, `removed`: no sign of life for `staleness.retain_s`",
    "damaged": "`forgotten`: what the store had of it could not be read",
    "by_command": "`removed`: by a caller",
    "not_configured": "`removed`: it no longer stands in flags or configuration",
    "not_discovered": "`removed`: discovery told of it no more",
}


MISMATCHES: Final[Mapping[MismatchCause, str]] = {
    "template": "the engine's prompt had another length: it was rendered or cut otherwise than the one asked about",
    "adapter": "the request was of another adapter than the lookup",
    "salt": "the request had another `cache_salt` than the lookup",
    "block_size": "what was reused is no whole number of the source's blocks",
    "last_token": "they differ by the block of the prompt's last token, which one of them counts",
    "restart": "the engine restarted between answer and request (at a replica that only follows it: or was cleared)",
    "clear": "what it held was cleared between answer and request",
    "approximate": "the engine announces nothing (`models.approximate`): what was routed there was expected of it",
    "gap": "messages were lost for good, before or since: what is claimed may be false",
    "tier": "it reused what lay in GPU memory, and not what lay in other tiers",
    "unannounced": "some of it lay in a tier whose producers announce no removals, and was gone",
    "stale": "the source was stale or syncing when it was answered, which the answer said",
    "incomplete": "the beginning of its history was not known (bound `lower`): it held more",
    "hybrid_rule": "the hit rule of one of its groups is not known (bound `upper`): it reused less",
    "eviction_in_flight": "it gave up blocks between answer and report (at a mere follower of it: messages came)",
    "store_in_flight": "it stored blocks between answer and report (at a mere follower of it: messages came)",
    "unknown": "nothing that is known explains it",
}


def listed(texts: Mapping[Value, str]) -> str:
    """As a list in Markdown, which readers of OpenAPI show as one."""
    return "\n\n" + "\n".join(f"* `{value}`: {text}" for value, text in texts.items())
