"""The closed list of what an explanation can say, each with what to do about it. Text only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Code = Literal[
    "complete",
    "last_token",
    "hybrid_group",
    "evicted",
    "expired",
    "given_up",
    "other_adapter",
    "other_salt",
    "waiting",
    "syncing",
    "stale",
    "gap",
    "in_doubt",
    "cleared",
    "restarted",
    "history_truncated",
    "not_indexed",
    "never_stored",
    "start_differs",
    "tier_only",
    "speculative",
    "below_block_size",
    "lookahead",
    "other_block_size",
    "block_size_unknown",
    "adapter_unknown",
    "no_events_yet",
    "down",
    "not_ready",
    "cordoned",
    "lagging",
    "deadline",
    "approximate",
    "other_model",
    "model_unknown",
    "filtered",
    "pod_unknown",
]

CODES: Final[Mapping[Code, str]] = {
    "complete": "every whole block of the prompt is held",
    "last_token": "every whole block is held, and the last one is computed again all the same: an engine always "
    "computes the last token of a prompt",
    "hybrid_group": "some of the model's cache groups hold the block and others do not, a window group holds too "
    "little of the end, or the rule of a group is not known",
    "evicted": "the engine had the block and removed it; `removed` says when",
    "expired": "the block's time to live was over, in a tier whose producer announces no removals",
    "given_up": "this service gave the block up: after a loss it could not be told from a block that is gone",
    "other_adapter": "the same tokens are held under another adapter, or under none",
    "other_salt": "the same tokens are held without the cache salt that was asked with; or what is held begins with "
    "other salts than the question, and it cannot be known whether that is the same prompt",
    "waiting": "the block was announced and cannot be placed: the block before it, or its own tokens, never came",
    "syncing": "a replay, a probe or a load from the store is under way: more may be known in a moment",
    "stale": "nothing was heard of the engine for a while: what it stored since is not known",
    "gap": "batches were lost for good in this life of the engine: the block may have been in one of them",
    "in_doubt": "something else that was received may not have been understood, or claims may be false",
    "cleared": "what it held was dropped by a clear: by the engine, an operator, or this service",
    "restarted": "the engine restarted lately: the block may have been held before, and then it is gone",
    "history_truncated": "this service joined in the middle of the engine's life, or lost a part of what it knew: the "
    "block may have been announced before",
    "not_indexed": "the engine announced blocks that could not be indexed: this one may be among them",
    "never_stored": "the engine has not announced the block in this life",
    "start_differs": "it holds blocks, and none that begins like this prompt",
    "tier_only": "some of what is matched lies outside GPU memory",
    "speculative": "a prompt with this beginning was routed there, and its blocks are expected soon",
    "below_block_size": "the prompt is shorter than one block",
    "lookahead": "its hashes cover tokens beyond a block's end: the prompt is too short, or hashes alone do not do",
    "other_block_size": "the block hashes asked by are of another block size than the engine's",
    "block_size_unknown": "it has announced no block yet that tells its block size",
    "adapter_unknown": "no source has announced a block of this adapter",
    "no_events_yet": "nothing was heard of it yet",
    "down": "no sign of life for so long that it is not scored",
    "not_ready": "whoever runs it says that no requests may go there: its pod is not ready, or is no more",
    "cordoned": "an operator has taken it out of the scores",
    "lagging": "it lags more than `max_lag_ms` allows",
    "deadline": "the deadline passed before the question could be answered for it",
    "approximate": "its engine announces nothing: what it may hold is known by what was routed there alone",
    "other_model": "it serves another model than the one asked about",
    "model_unknown": "nobody serves the model that was named",
    "filtered": "`pod_roles`, or an empty `pods`, leaves it out",
    "pod_unknown": "no source goes by that name, or has that rank",
}
"""What each means, for whoever reads of them."""

ADVICE: Final[Mapping[Code, str]] = {
    "complete": "Nothing: route here.",
    "last_token": "Nothing: that is how engines work. Set `partial` where the prompt goes on.",
    "hybrid_group": "Nothing on a router's side: reuse ends where every group's rule still holds. Where a rule is not "
    "known, `matched_tokens` is an upper bound.",
    "evicted": "The cache is too small for what is asked of it: give the engine more KV-cache memory or an offload "
    "tier, or send prompts with this beginning to fewer engines, and sooner after one another.",
    "expired": "Raise `staleness.entry_ttl_s` of this tier if its store keeps blocks longer; without removals nothing "
    "else tells.",
    "given_up": "Give the source a replay endpoint, so that losses heal, and `blocks_total`, so that what is gone is "
    "told apart.",
    "other_adapter": "Ask with the adapter that the request will be served with: as `model`, or in `lora_name`.",
    "other_salt": "Send the salt the engine's requests carry, or none; blocks of different salts are never shared.",
    "waiting": "Give the source a replay endpoint: the announcement that is missing was lost or came before this "
    "service listened. See `limits.orphans` where many wait.",
    "syncing": "Ask again in a moment.",
    "stale": "Look at the connection to the engine: `kvindexer sources`, `kvindexer report staleness`.",
    "gap": "Give the source a replay endpoint (vLLM: `replay_endpoint`), or a larger buffer there. A clear or restart "
    "of the engine ends the doubt.",
    "in_doubt": "Look at the source's `why` and `warnings`: `kvindexer sources`.",
    "cleared": "Nothing where the engine cleared: it fills again. After an operator's clear the engine may still hold "
    "the block, and will not announce it again.",
    "restarted": "Nothing if the prompt was served before the restart: it fills again as it is used. Else what is said "
    "beside this, and of `never_stored`.",
    "history_truncated": "Give the source a replay endpoint that reaches back to the engine's start, start this "
    "service before the engine, or keep what is known in a store (`redis.url`).",
    "not_indexed": "Look at the source's `why` and counters: `kvindexer sources`.",
    "never_stored": "Nothing if the prompt is new. Else see that the engine caches prefixes, and that the tokens are "
    "those it computed.",
    "start_differs": "See that the tokens are made as the engine makes them: chat template and its variables, "
    "tokenizer version, special tokens at the beginning, a date in the system prompt; and that cache salt, adapter and "
    "images are those of the request.",
    "tier_only": "Nothing: loading is cheaper than computing. Weights of tiers in the score are `models.weights`.",
    "speculative": "Nothing: ask again once the engine's events tell.",
    "below_block_size": "Nothing: engines share whole blocks only.",
    "lookahead": "Ask by token ids, and with the tokens that follow.",
    "other_block_size": "Hash at the engine's block size (`POST /v1/hash`), or ask by token ids.",
    "block_size_unknown": "Wait for its first announcement, or see that its events are on "
    "(`enable_kv_cache_events`) and prefix caching, too.",
    "adapter_unknown": "Nothing if the adapter is new here. Else compare the name with the engine's own.",
    "no_events_yet": "See that its endpoint can be reached and its events are on: `kvindexer sources`.",
    "down": "See whether the engine runs and its endpoint can be reached: `kvindexer sources history POD`.",
    "not_ready": "Wait for its pod.",
    "cordoned": "`kvindexer sources uncordon POD` puts it back.",
    "lagging": "Raise `max_lag_ms`, or give the source a replay endpoint: without one an idle engine proves nothing.",
    "deadline": "Allow more time (`timeout_ms`), or ask without `min_sequence`.",
    "approximate": "Turn the engine's events on: then what it holds is known, and not guessed.",
    "other_model": "Ask about the model it serves.",
    "model_unknown": "See `nearest_model`, and the models of `kvindexer sources`; aliases are `models.aliases`.",
    "filtered": "Ask without `pod_roles`.",
    "pod_unknown": "See the names in `kvindexer sources`; a further one can be registered as an alias.",
}
"""What to do."""
