"""What each field means, for the OpenAPI document: by schema, then field.

Beside the types and not in them: there a description would become the rule that an error about bad input shows. A test
holds that every field of every schema is described, and nothing else.
"""

from __future__ import annotations

from typing import Final

from api.rest.recommend_texts import OPTION_TEXTS, RECOMMEND_TEXTS
from api.rest.report_texts import RANK, REPORT_TEXTS
from api.rest.value_texts import (
    ANSWER_STATES,
    BOUNDS,
    CAUSES,
    HAPPENINGS,
    PARTITION_STATES,
    REASONS,
    REPLICA_STATES,
    SOURCE_STATES,
    listed,
)
from indexer.explain.codes import CODES

_POD = "The pod's name, as registered."
_EFFECT = "With 202 `accepted`: recorded, in force as soon as the owner of the source comes to it. Left out: done."
_ANSWERED_POD = "The pod, under the name by which the caller called it, else its own."

_LOOKUP: Final = {
    "model": "Model, configured alias, or adapter. Left out: every source of the tenant.",
    "lora_name": "Adapter whose blocks are meant, where `model` does not name it.",
    "cache_salt": "The request's cache salt: only blocks stored with the same one match. Never logged.",
    "tenant": "Owner of the sources that are asked about; `default` where left out.",
    "mm_items": "Multimodal items of the prompt. Items lie side by side.",
    "pods": "Only these pods, by any of their names; each is listed, also where it is no candidate.",
    "pod_roles": "Only sources of these roles; a source of role `both` is of each.",
    "max_lag_ms": "Sources that lag more are listed with 0 and `reason: lagging`.",
    "partial": "The prompt goes on: its last token need not be computed, so `reusable_tokens` may be all of it.",
    "limit": "At most so many entries, best first; 0 = all.",
    "group": "`rank`: one entry a rank; `pod`: one a pod, its best rank.",
    "min_sequence": "By pod: answer once this sequence is applied, or say `reason: deadline` at the deadline.",
    "request_id": "Repeated in the answer; the header `x-request-id` does the same.",
    "timeout_ms": "Deadline, of which the smallest given holds; a wait for `min_sequence` ends at 60 s at the latest.",
    "block_size": "Tokens a block of `block_hashes`.",
    "prompt_tokens": "Length of the prompt that `block_hashes` are of; at least all their blocks.",
    "scheme": "What `block_hashes` are: `kvi1` chained token hashes, `dynamo` local hashes.",
    "token_ids": "The prompt.",
    "prompt": "Instead of `token_ids`: the prompt as text, which the model's tokenizer reads here. Never logged.",
    "messages": "Instead of `token_ids`: the messages of a chat request, which the model's template makes a prompt "
    "of. Never logged.",
    "tools": "Beside `messages`: the tools that the template is given.",
    "documents": "Beside `messages`: the documents that the template is given.",
    "chat_template_kwargs": "Beside `messages`: further variables of the template.",
    "add_generation_prompt": "Beside `messages`: whether the beginning of an answer ends the prompt; true where left "
    "out.",
    "continue_final_message": "Beside `messages`: whether the last message is to be gone on with.",
    "add_special_tokens": "Beside `prompt` or `messages`: whether the tokenizer adds its special tokens. Left out: as "
    "the engines do, yes for `prompt` and no for `messages`.",
    "block_hashes": "Instead of `token_ids`: hashes of the prompt's whole blocks from its start; at most 131,072.",
}

_TARGET: Final = {
    "pod": "Only this pod, by any of its names; not beside `pods`.",
    "dp_rank": "Only sources of this rank.",
}

TEXTS: Final = frozenset(
    {
        *("prompt", "messages", "tools", "documents", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
    }
)
"""What tells a prompt as text; never a query parameter."""
HASHED: Final = frozenset({"token_ids", "block_size", "lora_name", "cache_salt", "mm_items", "request_id"})
"""What a request to hash is about; all else that a lookup may carry is taken there and changes nothing."""

_PROBLEM: Final = {
    "type": "`about:blank`: `title` and `code` say it.",
    "title": "The status in words.",
    "status": "The HTTP status.",
    "code": "Stable, for programs.",
    "detail": "For people.",
    "errors": "What is wrong with which field.",
    "request_id": "The caller's, else one of ours.",
}
_ROUTED: Final = {
    "pod": "Where the request was sent, by any of the pod's names.",
    "dp_rank": "Of its engine processes; left out: its only one.",
    "request_id": "The request's: within a minute it counts once of a pod and rank. Left out: each report counts.",
    "of": "Instead of a prompt: the `request_id` of a lookup that this replica answered a few seconds ago.",
    "model": "As in a lookup; left out beside `of`: as in that one.",
    "lora_name": _LOOKUP["lora_name"],
    "cache_salt": "The request's cache salt. Never logged.",
    "tenant": "Owner of the pod; `default` where left out.",
    "mm_items": _LOOKUP["mm_items"],
    "block_size": _LOOKUP["block_size"],
    "scheme": _LOOKUP["scheme"],
    "token_ids": "The prompt.",
    "block_hashes": _LOOKUP["block_hashes"],
}

FIELD_TEXTS: Final[dict[str, dict[str, str]]] = {
    "LookupBody": _LOOKUP,
    "BatchBody": {"items": "Lookups, at most 256 unless `limits.batch` says otherwise."},
    "BatchAnswer": {"items": "In the order of the lookups."},
    "HashBody": _LOOKUP
    | dict.fromkeys(_LOOKUP.keys() - HASHED - TEXTS, "Without effect here: a lookup's options may stay in the body.")
    | {"block_size": "Tokens a block: one hash for each whole one."}
    | {
        "model": "Whose tokenizer reads `prompt` or `messages`; else without effect.",
        "tenant": "Of the sources among which `model` is looked for; else without effect.",
        "timeout_ms": "Deadline for the tokens of a text; else without effect.",
    }
    | dict.fromkeys(("block_hashes", "prompt_tokens", "scheme"), "Not here: hashes are what is asked for."),
    "RecommendBody": _LOOKUP | OPTION_TEXTS,
    **RECOMMEND_TEXTS,
    "ExplainBody": _LOOKUP | _TARGET,
    "ExplainTarget": _TARGET,
    "ExplainAnswer": {
        "request_id": "The caller's, else one of ours.",
        "model": "Base model that was asked about.",
        "lora_name": "Adapter that was asked about.",
        "resolved_by": "What `model` turned out to be; null = none was named, or nobody knows it.",
        "tokenizer": "Only where the prompt was told as text: what tokenized it.",
        "nearest_model": "Only where the model is unknown: the known name most like it.",
        "prompt_tokens": "Length of the prompt.",
        "state": "Of the lookup's answer.",
        "reason": "Of the lookup's answer.",
        "pods": "One entry a source, in the order of the lookup's answer.",
        "took_us": "Microseconds from the whole request to the answer.",
    },
    "PodExplanation": {
        "pod": _ANSWERED_POD,
        "dp_rank": RANK,
        "state": "Of the source, at this moment.",
        "bound": "Which way its numbers may err.",
        "lag_ms": "Age of the newest proof that nothing is missing.",
        "generation": "Which life of the engine.",
        "sequence": "The engine's last applied batch: the entry is true at this number.",
        "block_size": "Tokens a block of this engine; null = not known yet.",
        "prompt_blocks": "Whole blocks that the prompt has there; null where that is not known or does not matter.",
        "matched_tokens": "As in a lookup.",
        "reusable_tokens": "As in a lookup.",
        "missing": "The first block that it does not hold; null = none is, or it does not matter.",
        "code": f"What decides.{listed(CODES)}",
        "why": "The same in a sentence, with its numbers.",
        "advice": "What to do about it.",
        "removed": "Where that block was removed in this life: when.",
        "further": "What else should be known, each once.",
    },
    "MissingBlock": {
        "block": "Its index, from 0.",
        "first_token": "Its first token's index.",
        "end_token": "Index of the token behind its last.",
        "hash": "Its token hash.",
    },
    "RemovedBlock": {
        "at": "When, by our clock: UTC, RFC 3339.",
        "ago_ms": "How long ago, to a tenth of a second.",
        "tier": "From which memory tier it went last.",
        "group": "Of which KV-cache group.",
    },
    "Finding": {"code": "As above.", "why": "In a sentence, with its numbers.", "advice": "What to do about it."},
    "MmItemBody": {
        "hash": "Content hash, as the engine names it.",
        "offset": "First token of the prompt that stands for it.",
        "length": "Number of such tokens.",
    },
    "LookupAnswer": {
        "request_id": "The caller's, else one of ours.",
        "model": "Base model that was asked about.",
        "lora_name": "Adapter that was asked about.",
        "resolved_by": "What `model` turned out to be; null = none was named, or nobody knows it.",
        "tokenizer": "Only where the prompt was told as text: what tokenized it.",
        "nearest_model": "Only where the model is unknown: the known name most like it.",
        "prompt_tokens": "Length of the prompt.",
        "state": f"How far the order can be taken.{listed(ANSWER_STATES)}",
        "reason": "Why nobody holds anything, where nobody does: the reason that all entries have, else the one that "
        "all sources of the model have, else `no_match` (`deadline` where the question came to nothing in time). "
        f"null = somebody holds something.{listed(REASONS)}",
        "pods": "One entry a source, best first; equal scores in an order that every replica gives.",
        "shards": "Parts of the index that answered.",
        "took_us": "Microseconds from the whole request to the answer.",
    },
    "TokenizerUsed": {
        "source": "A file of this service, or the engine's own `/tokenize`.",
        "name": "The model whose tokenizer it is, as configured.",
        "tokens": "How many tokens came out.",
        "cached": "Whether the same text had been tokenized before.",
    },
    "PodEntry": {
        "pod": _ANSWERED_POD,
        "dp_rank": RANK,
        "block_size": "Tokens a block of this engine; null = not known yet.",
        "matched_tokens": "Longest unbroken run of whole blocks from the prompt's start, in any known tier.",
        "reusable_tokens": "What the engine would really skip: the last token is always computed, and hybrid models "
        "have rules of their own.",
        "tiers": "The matched tokens by each block's best tier.",
        "prefix": "Longest prefix wholly in a tier or a faster one.",
        "speculative_tokens": "Tokens that hints say will be held soon; never part of the score.",
        "score": "0..1: share of the prompt that is matched, each block weighed by its best tier. No hit is 0.",
        "state": f"Of the source, at this moment.{listed(SOURCE_STATES)}",
        "bound": f"What the numbers are.{listed(BOUNDS)}",
        "lag_ms": "Age of the newest proof that nothing is missing, on our clock.",
        "event_age_ms": "Since the engine's last message that came live; null before the first. Informative.",
        "generation": "Which life of the engine: hexadecimal, grows with each restart or clear.",
        "sequence": "The engine's last applied batch: the entry is true at this number.",
        "reason": f"Why it counts for nothing or less, where it does; else null.{listed(REASONS)}",
    },
    "TierTokens": {
        "gpu": "Tokens of blocks whose best tier is GPU memory.",
        "cpu": "The same for host memory.",
        "storage": "The same for disks.",
        "remote": "The same for memory or storage of other machines.",
        "unknown": "The same for media that are not known; they weigh nothing.",
    },
    "PrefixTokens": {
        "gpu": "Wholly in GPU memory.",
        "cpu": "Wholly in GPU or host memory.",
        "storage": "Wholly in GPU or host memory or storage.",
        "remote": "Wholly in any of the four tiers.",
    },
    "Shards": {"answered": "Parts that answered.", "total": "Parts there are; one in memory mode."},
    "HashAnswer": {
        "scheme": "Name of the hash scheme.",
        "block_size": "Tokens a block.",
        "hashes": "16 hexadecimal digits for each whole block.",
        "prompt_tokens": "Length of the prompt.",
        "tokenizer": "Only where the prompt was told as text: what tokenized it.",
    },
    "SourceBody": {
        "pod": "The name that scores are given under.",
        "endpoint": "Where the engine publishes its events; a data-parallel rank has its own. Left out only where "
        "`models.approximate` has its model.",
        "dp_rank": RANK,
        "replay_endpoint": "Where it replays them: without, losses cannot be healed.",
        "model": "What it serves. Events never say.",
        "lora_name": "Adapter it serves.",
        "tenant": "Owner of the source; `default` where left out.",
        "role": "Which requests it takes: `prefill`, `decode`, `both`.",
        "address": "IP:PORT at which routers reach it, IPv6 in brackets: a further name of the pod.",
        "aliases": "Further names: a URL, a replica's id, a pod's name.",
        "labels": "Free, shown in lists.",
        "engine": "The dialect of its events; `vllm` where left out.",
        "blocks_total": "Its capacity in blocks (vLLM: num_gpu_blocks), where known: after a gap that no replay "
        "heals it tells blocks that are gone from blocks that are held.",
    },
    "SourceSet": {"sources": "All that callers register; others of theirs go."},
    "CordonBody": {"cordoned": "Listed with score 0 while it is true; it goes on learning."},
    "SourceRegistered": {
        "pod": _POD,
        "dp_rank": RANK,
        "result": "`created`, or `same`: nothing changed.",
        "effect": _EFFECT,
        "warnings": "What should be looked at, in sentences, as far as the registration tells: no replay endpoint, "
        "capacity unknown, an endpoint that another has, no model among others. Left out where there is nothing.",
    },
    "SourcesReplaced": {
        "added": "Sources that came, or came back changed.",
        "kept": "Sources that stayed as they were, with what they hold.",
        "removed": "Sources that went.",
        "effect": _EFFECT,
    },
    "SourcesTouched": {"pod": "As the path named it.", "sources": "Ranks that were reached.", "effect": _EFFECT},
    "SourceList": {
        "sources": "In the order of pod and rank.",
        "next": "For `after` of the next request; null = all.",
        "models_followed": "Of a replica that follows sources of these models alone (`models.follow`); else left out.",
    },
    "SourceView": {
        "pod": _POD,
        "dp_rank": RANK,
        "state": f"At this moment.{listed(SOURCE_STATES)}",
        "since": "When that began: UTC, RFC 3339.",
        "why": "What made it so, in a sentence.",
        "bound": f"What its numbers are.{listed(BOUNDS)}",
        "generation": "Which life of the engine: hexadecimal.",
        "sequence": "Last applied batch.",
        "lag_ms": "Age of the newest proof that nothing is missing.",
        "event_age_ms": "Since its last message that came live; null before the first.",
        "counters": "What happened since it was registered.",
        "blocks": "Distinct blocks held, by tier; empty where another replica applies its events and has not told yet.",
        "copies": "Announced copies over all tiers; null where another replica applies its events and told none yet.",
        "blocks_total": "The engine's capacity in blocks, where known.",
        "owner": "Replica that applies its events; null in memory mode.",
        "origin": "Who registered it: `flag`, `config`, `api`, `discovery`, `topic`.",
        "endpoint": "Where its events come from; null = from a bound socket, or nowhere (`models.approximate`).",
        "replay_endpoint": "Where they are replayed.",
        "model": "What it serves.",
        "lora_name": "Adapter it serves.",
        "engine": "Dialect of its events.",
        "block_size": "Tokens a block; null = not known yet.",
        "groups": "KV-cache groups it has shown.",
        "role": "Which requests it takes.",
        "tenant": "Its owner.",
        "address": "IP:PORT at which routers reach it.",
        "aliases": "Its further names.",
        "labels": "As registered.",
        "cordoned": "Listed with score 0 by an operator.",
        "ready": "Whether requests may go there, as discovery says. Where not: listed with score 0; see `why`.",
        "warnings": "What an operator should look at.",
        "load": "How busy its engine is; null = nothing is known of that.",
    },
    "SourceLoad": {
        "source": "`metrics`: its own; `receipts`: what was routed there in 30 s, and not reported as over, is all "
        "that is known.",
        "running": "Requests that it works on; null where its metrics were not read.",
        "waiting": "Requests in its queue; null where its metrics were not read.",
        "kv_usage": "Share of its KV cache in use, 0..1, where it tells.",
        "unseen": "Requests known to have been routed there since, and not reported as over: added to those.",
        "age_ms": "Since its metrics were read, on this replica's clock. Above 5,000, or three intervals where those "
        "are longer, they do not count.",
    },
    "GroupView": {
        "group": "Index of the group, as the engine counts.",
        "kind": "Its kind of attention, where the engine names it.",
        "window": "Tokens of its window, where it has one.",
    },
    "BlockList": {"blocks": "Entries under the hash; never empty."},
    "BlockView": {
        "pod": _POD,
        "dp_rank": RANK,
        "engine_hash": "The engine's own hash.",
        "token_hash": "Hash of the content and all before it; null while the parent is not known.",
        "group": "KV-cache group.",
        "tiers": "Where it lies.",
        "copies": "Announced copies, by tier.",
        "parent": "The engine's hash of the block before, where it is kept.",
    },
    "RoutedBody": _ROUTED,
    "FeedbackBody": {
        "pod": "Which engine computed it, by any of the pod's names; left out: where `/v1/routed` said.",
        "dp_rank": "Of its engine processes; left out: its only one.",
        "request_id": "Of the lookup: the one that was answered last under that name is meant.",
        "prompt_tokens": "Length of the prompt as the engine had it; left out: as in the lookup.",
        "cached_tokens": "How many of its tokens the engine did not compute; required unless `ok` is false.",
        "ok": "Whether the request came to its prompt's end; false: there is nothing to compare.",
        "model": "As in a lookup; left out: the source's.",
        "lora_name": _LOOKUP["lora_name"],
        "cache_salt": "The request's cache salt. Never logged.",
        "tenant": "Owner of the pod; `default` where left out.",
        "mm_items": _LOOKUP["mm_items"],
        "block_size": _LOOKUP["block_size"],
        "scheme": _LOOKUP["scheme"],
        "token_ids": "The prompt, where the lookup is not named, or may not be known by its name.",
        "block_hashes": "The same by hashes, where the lookup was asked by these.",
    },
    "FeedbackTaken": {
        "accepted": "How many were taken.",
        "joined": "Of these, how many were compared with an answer.",
        "items": "Those that were not taken, with why.",
        "results": "What became of those taken: `joined`, `unjoined`: no answer to it is known, `repeated`, `failed`.",
    },
    "RoutedTaken": {
        "accepted": "How many were taken.",
        "items": "Those that were not, with why.",
        "results": "What became of those taken: `expected`, `held` by the engine already, `repeated`, `not_placed`.",
    },
    "ItemProblem": _PROBLEM | {"index": "Which of the array, from 0."},
    "HistoryList": {
        "pod": "As the path named it.",
        "items": "The newest first, in the order in which they were written down.",
        "next": "For `after` of the next request; null = that was all.",
        "complete": "False where the store did not answer, or has entries of another version: the items are what this "
        "replica saw itself, or could read.",
    },
    "HistoryItem": {
        "at": "When, by the clock of the replica that saw it, or when the first of `count` was: UTC, RFC 3339.",
        "dp_rank": RANK,
        "what": f"What happened.{listed(HAPPENINGS)}",
        "cause": f"Why, or how; null where there is only one way.{listed(CAUSES)}",
        "count": "The same, so often within a second: `first` is of the first, `last` of the last.",
        "numbers": "What it is about; what says nothing of it is left out.",
        "replica": "The replica that saw it; null in memory mode.",
    },
    "HistoryNumbers": {
        "first": "First batch that it is about.",
        "last": "Last one.",
        "lost": "Batches that were lost for good.",
        "sequence": "Batch applied last before it happened; of `joined`, the first one.",
        "generation": "Generation since: hexadecimal.",
        "generation_before": "Generation that it ended.",
        "epoch": "Of the ownership that began or ended.",
    },
    "PartitionList": {
        "mode": "`redis`, or `memory`: there is no store, and what is known ends with the process.",
        "trouble": "Why the store cannot be used now; then what is told of others is of before. Else null.",
        "partitions": "In their order; empty in mode `memory`.",
        "replicas": "All replicas that are known of, in the order of their names; empty in mode `memory`.",
    },
    "PartitionView": {
        "partition": "Its number, from 0.",
        "role": "What this replica does with it: `owner` (it writes), `standby` (it follows, and "
        "listens along to take over), `follower` (it reads), `none`.",
        "state": f"As this replica sees it.{listed(PARTITION_STATES)}",
        "owner": "The replica that writes it, where known.",
        "standby": "The replica that listens along and would take it over, or to which it is about to move.",
        "epoch": "Of that ownership; it only grows.",
        "position": "Newest entry of its journal written or applied here, as EPOCH-NUMBER.",
        "age_ms": "How old that is, on this replica's own clock.",
        "pending_bytes": "What waits to be written, here or as the owner told last; null = not known.",
        "sources": "Sources registered in it.",
        "standby_bytes": "Messages of its engines kept here unread; null where this replica does not listen along.",
        "standby_batches": "How many those are.",
        "standby_dropped": "How many found no room.",
    },
    "ReplicaView": {
        "name": "Its `redis.replica`, else host name and port.",
        "address": "Where it answers, as far as it knows; empty = not known.",
        "state": f"As this replica sees it.{listed(REPLICA_STATES)}",
        "owned": "Partitions that it owns.",
        "standby": "Partitions that it would take over.",
        "age_ms": "Since it was heard of.",
        "me": "Whether it is the one that answers.",
    },
    "ReplicaDrained": {
        "name": "As the path named it.",
        "draining": "Whether it is to own nothing.",
        "owned": "Partitions that it owns still.",
        "effect": "`accepted`: it still owns some, and hands them over one after the other. Else `done`.",
    },
    "Readiness": {
        "ready": "Whether lookups may be sent here.",
        "detail": "The progress: sources by state; with a store also `redis` and `partitions`.",
    },
    "Health": {"status": "`ok` as long as it is answered."},
    "VersionAnswer": {
        "version": "Of the service.",
        "hash_scheme": "Of its token hashes.",
        "layout": "Of what it stores.",
    },
    "Problem": _PROBLEM,
    "ProblemItem": {
        "field": "Path of the field, or the header, parameter or setting.",
        "rule": "What would be right.",
        "got": "What came, cut short; never a prompt, a salt or a secret.",
        "hint": "What to do, or the nearest known name.",
    },
    "SourceFilters": {
        "state": "Only sources in this state.",
        "model": "Only sources of this model.",
        "limit": "At most so many; 0 = all.",
        "after": "The `next` of the answer before.",
    },
    "HistoryFilters": {
        "dp_rank": "Only this rank; left out: all.",
        "limit": "At most so many items; 100 where left out.",
        "after": "The `next` of the answer before.",
    },
    "RankFilter": {"dp_rank": "Only this rank; left out: all."},
    "ReplaceOptions": {
        "max_removals": "At most so many sources (each rank is one) may be removed or registered anew; more are "
        "refused with 409, and nothing is changed. 0: the list may only add. Given, it takes the place of "
        "`limits.max_clears_per_minute`: for a list that is meant to exchange most of a fleet."
    },
} | REPORT_TEXTS
