"""Of the OpenAPI document the path that recommends. As openapi.py."""

from __future__ import annotations

from typing import Final

import msgspec

from api.rest.lookup_request import PARAMETERS
from api.rest.openapi_parts import (
    REF,
    Json,
    answers,
    beside_lookup,
    operation,
    prompt_body,
    prompt_headers,
    query_parameters,
)
from schemas import recommend

_RECOMMEND: Final = (
    "Takes what a lookup takes; `limit` and `group` are of the picks. A pick's total is the sum of its terms, less the "
    "penalty. Of equal totals the first is the same at every replica: by `session` where one is given, else by the "
    "prompt. Pods that are down or cordoned are no picks; one that is named and not registered is, and holds nothing. "
    "`no_signal` says that nothing is known of prefixes: loads alone decide. What goes to a pod is to be reported "
    "(`/v1/routed`): a recommendation by itself counts to no load."
)


def recommend_path(given_twice: str) -> Json:
    """`given_twice`: what is said of options that are."""
    return {
        "/v1/recommend": {
            "post": operation(
                "recommend",
                "lookup",
                "Where to send this request: prefix and load in one number, term by term",
                answers("RecommendAnswer"),
                body=prompt_body("RecommendBody"),
                parameters=[
                    *query_parameters(PARAMETERS[False]),
                    *query_parameters(recommend.RecommendOptions),
                    *prompt_headers(),
                ],
                description=f"{_RECOMMEND} {given_twice}",
            )
        }
    }


def recommend_schemas(lookup_body: Json) -> Json:
    """What its body is made of."""
    _, schemas = msgspec.json.schema_components(
        [recommend.GivenLoad, recommend.GivenWeights], ref_template=REF + "{name}"
    )
    description = "Body of `POST /v1/recommend`: a lookup's, what is known of loads, and how to rank."
    body = beside_lookup(lookup_body, recommend.RecommendOptions, "RecommendBody", description)
    return {**schemas, "RecommendBody": body}
