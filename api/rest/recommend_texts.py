"""What the fields of `/v1/recommend` mean, beside those of a lookup: a part of field_texts.py."""

from __future__ import annotations

from typing import Final

from api.rest.value_texts import LOAD_SOURCES, listed

OPTION_TEXTS: Final = {
    "loads": "How busy pods are, by any of their names; what is told of a pod holds for each of its ranks. A "
    "candidate that is not among them stands where the mean of those does. Left out, or naming no candidate: what the "
    "service knows of loads.",
    "strategy": "`blend`: prefix and load; `prefix` or `load`: that alone. Left out: `recommend.strategy`.",
    "weights": "How much each term counts. Left out: `recommend.weights`.",
    "session": "Of equal totals the first is the same for all requests of a session. Never logged.",
    "exclude": "Pods that are no picks, by any of their names.",
}
_PICK: Final = {
    "pod": "The pod, under the name by which the caller called it, else its own.",
    "dp_rank": "Data-parallel rank of the engine process.",
    "total": "What the order follows: the sum of the terms, less the penalty.",
    "terms": "What the total is made of.",
}

RECOMMEND_TEXTS: Final[dict[str, dict[str, str]]] = {
    "RecommendOptions": OPTION_TEXTS,
    "GivenLoad": {
        "running": "Requests that it computes.",
        "waiting": "Requests that wait there.",
        "kv_usage": "Share of its KV cache that these take; from 0.9 on it is a penalty.",
    },
    "GivenWeights": {
        "prefix": "Of the lookup's score.",
        "load": "Of the headroom: 1 for the least busy candidate, 0 for the most busy.",
        "speculative": "Of the share of the prompt that is expected there and not held yet.",
    },
    "RecommendAnswer": {
        "request_id": "The caller's, else one of ours: `/v1/routed` takes it as `of`.",
        "state": "Of the lookup: how far what is said of prefixes can be taken.",
        "picks": "Best first. With `decode` those that take the prompt, else those that do all of it.",
        "load": "Which loads it was made with.",
        "decode": "Best first: those that make the answer, where engines for prefill alone are there and more of the "
        "prompt is to be computed than `recommend.non_cached_tokens`. Else null.",
    },
    "RecommendedPod": _PICK,
    "PickTerms": {
        "prefix": "Score times its weight.",
        "load": "Headroom times its weight; 0 where nothing is known of loads.",
        "speculative": "Share of the prompt that is expected, times its weight.",
        "penalty": "What is taken off: of a stale engine its load's term; of a nearly full KV cache up to the load's "
        "weight; where nothing is known of loads, of a pod that got more than twice its share of this prefix's "
        "recommendations in 30 s, all that terms can be.",
    },
    "LoadsUsed": {
        "source": f"Who told them.{listed(LOAD_SOURCES)}",
        "age_ms": "Of the oldest reading of metrics that was used; 0 for loads of the question, null for what is "
        "counted here, which is of now, and where there were none.",
    },
}
