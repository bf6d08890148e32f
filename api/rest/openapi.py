"""The OpenAPI 3.1 document, made from the types that decode and encode: it cannot promise what the code does not do.

Made once, at start. What the types cannot say (exactly one of two keys, which header carries what) is added here by
hand.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from api.rest.field_texts import FIELD_TEXTS, HASHED
from api.rest.lookup_request import HASH_BLOCKS_MAX, PARAMETERS, PROMPT_FIELDS
from api.rest.media import ANSWER_TYPES
from api.rest.openapi_parts import (
    REF,
    Json,
    answers,
    beside_lookup,
    header_parameter,
    operation,
    path_parameter,
    plain_answer,
    problem_answer,
    prompt_body,
    prompt_headers,
    query_parameters,
    request_body,
    without_null,
)
from api.rest.openapi_recommend import recommend_path, recommend_schemas
from api.rest.openapi_reports import feedback_rules, report_paths, routed_forms
from api.rest.prompt_text import ONLY_WITH_TEXT
from indexer import happenings, model
from indexer.explain import codes
from schemas import explain, feedback, history, receipts, recommend, reports, rest
from schemas.lookup import LookupAnswer

_GIVEN_TWICE: Final = (
    "An option that is given twice: the body counts before the query string, and that before a header. Of deadlines "
    "the smallest holds. A salt in the header must be the body's, if both are given."
)

_WITH_HASHES: Final = ("block_size", "prompt_tokens", "scheme")
"""Options that stand only beside `block_hashes`."""
_BATCH: Final = (
    "One item that is refused fails no other. Headers hold for every item. The prompts together may be as long as one "
    "prompt may be; items are asked in their order, those that wait for events or a tokenizer all at once. An item "
    "whose deadline passes before its turn is answered `no_signal`, `reason: deadline`."
)

_EXPLAIN: Final = (
    "Takes what a lookup takes. It costs more than a lookup and is meant for people. Entries stand in the order of the "
    "lookup's, and say the same of what is held; `code` is of what decides, `further` has what else should be known. "
    "Another replica's source is explained as far as its journal and history tell. " + _GIVEN_TWICE
)

_PICK: Final = (
    "The body is a request for `/v1/completions` or `/v1/chat/completions` exactly as the client sent it; unknown keys "
    "are ignored. Pods are ranked as by `/v1/recommend`, engines for prefill alone left out; the first counts as sent "
    "the request. Of whatever is not understood, not known or not ready in time the load decides. 204 says: balance as "
    "you would without this service. That is the answer where nothing is known of loads and nobody holds anything of "
    "the prompt, or is expected to. Below `/v1/pick/` (Envoy's ext_authz with this as its path prefix) every method "
    "and path is answered so, and always with 200."
)


_SCHEMES: Final[Json] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "Where `auth.tokens_file` is set, all but `/healthz`, `/readyz` and `/metrics` take a token: of "
        "scope `lookup`, or `report` or `admin` where it says so. Without it callers elsewhere than on loopback change "
        "no source.",
    }
}
ROOTS: Final = (
    rest.LookupBody,
    rest.BatchBody,
    LookupAnswer,
    rest.HashAnswer,
    recommend.RecommendAnswer,
    explain.ExplainAnswer,
    rest.SourceBody,
    rest.SourceSet,
    rest.CordonBody,
    rest.SourceRegistered,
    rest.SourcesReplaced,
    rest.SourcesTouched,
    rest.SourceList,
    rest.BlockList,
    history.HistoryList,
    reports.StalenessReport,
    reports.ConsistencyReport,
    receipts.RoutedBody,
    receipts.RoutedTaken,
    feedback.FeedbackBody,
    feedback.FeedbackTaken,
    rest.PartitionList,
    rest.ReplicaDrained,
    rest.Readiness,
    rest.Health,
    rest.VersionAnswer,
    rest.Problem,
)


def openapi_document(version: str) -> bytes:
    """The document as JSON."""
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "kvindexer",
            "version": version,
            "description": "Which engine already holds how much of a prompt's prefix, and how far that answer can be "
            "trusted. Bodies and answers are JSON or MessagePack; every refusal is application/problem+json. "
            "HEAD is answered wherever GET is. A body without Content-Type is taken for JSON; `null` means the same as "
            "leaving a key out, and integers are written without fraction or exponent. Block hashes leave as 16 "
            "hexadecimal digits, `generation` as hexadecimal without padding. Not described here: `/register`, "
            "`/unregister`, `/workers`, `/query`, `/query_by_hash` and `/lookup`, which are spoken as Dynamo, Mooncake "
            "and production-stack's picker define them, refusals included. Beside `auth.tokens_file` these are closed "
            "(404), unless `compat.anonymous` is set.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": "lookup"}, {"name": "sources"}, {"name": "reports"}, {"name": "service"}],
        "paths": _paths(),
        "components": {"schemas": _schemas(), "responses": {"Problem": problem_answer()}, "securitySchemes": _SCHEMES},
        "security": [{"bearer": []}, {}],
    }
    return msgspec.json.encode(document)


def _schemas() -> Json:
    _, schemas = msgspec.json.schema_components(ROOTS, ref_template=REF + "{name}")
    body = schemas["LookupBody"]
    body["oneOf"] = [_told_by(name, _WITH_HASHES) for name in PROMPT_FIELDS]
    with_hashes = body["oneOf"][PROMPT_FIELDS.index("block_hashes")]
    with_hashes["required"].append("block_size")
    with_hashes["properties"] |= {"block_size": {"type": "integer"}}
    schemas["HashBody"] = _hash_body(body)
    schemas["RoutedBody"]["oneOf"] = routed_forms()
    schemas["ExplainBody"] = beside_lookup(
        body, explain.ExplainTarget, "ExplainBody", "Body of `POST /v1/explain`: a lookup's, and whom it is about."
    )
    schemas |= recommend_schemas(body)
    schemas["FeedbackBody"]["allOf"] = feedback_rules()
    schemas["BatchAnswer"] = _batch_answer()
    for name in ("PodExplanation", "Finding"):
        schemas[name]["properties"]["code"] = {"enum": list(get_args(codes.Code))}
    entry = schemas["PodEntry"]["properties"]
    for name, kind in (("state", model.SourceState), ("bound", model.Bound)):
        entry[name] = {"enum": list(get_args(kind))}
    entry["reason"] = {"enum": [*get_args(model.Reason), None]}
    schemas["StalenessRow"]["properties"]["bound"] = {"enum": list(get_args(model.Bound))}
    item = schemas["HistoryItem"]["properties"]
    item["what"] = {"enum": list(get_args(happenings.What))}
    item["cause"] = {"enum": [*get_args(happenings.Cause), None]}
    answer = schemas["LookupAnswer"]["properties"]
    answer["state"] = {"enum": list(get_args(model.AnswerState))}
    answer["pods"] = {"type": "array", "items": {"$ref": REF + "PodEntry"}}  # as read; encoded in pieces
    for name, schema in schemas.items():
        for field, kind in schema["properties"].items():
            schema["properties"][field] = _described(kind, FIELD_TEXTS[name][field])
    return dict(schemas)


def _told_by(name: str, only_elsewhere: tuple[str, ...] = ()) -> Json:
    """A body whose prompt that field tells: the others, and what stands only beside those, are null."""
    others = {other for other in PROMPT_FIELDS if other != name}
    others |= {option for option, beside in ONLY_WITH_TEXT.items() if name not in beside}
    others |= set() if name == "block_hashes" else set(only_elsewhere)
    told = {name: {"type": "string" if name == "prompt" else "array"}}
    return {"required": [name], "properties": told | {other: {"type": "null"} for other in sorted(others)}}


def _batch_answer() -> Json:
    items = [{"$ref": REF + name} for name in ("LookupAnswer", "Problem")]
    return {
        "title": "BatchAnswer",
        "description": "Answer of `POST /v1/lookup/batch`. A problem is told by its `status` and `code`.",
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"oneOf": items}}},
        "required": ["items"],
    }


def _described(schema: Json, text: str) -> Json:
    """With what the field means; its own description is the form of its values, and comes second."""
    form = schema.get("description")
    return schema | {"description": text if form is None else f"{text} Form: {form}."}


def _hash_body(lookup_body: Json) -> Json:
    properties = dict(lookup_body["properties"])
    for name in ("block_hashes", "prompt_tokens", "scheme"):
        properties[name] = {"type": "null"}
    properties["block_size"] = without_null(properties["block_size"])
    description = f"Body of `POST /v1/hash`: a lookup's with the block size; at most {HASH_BLOCKS_MAX} whole blocks."
    return {
        "title": "HashBody",
        "description": description,
        "type": "object",
        "properties": properties,
        "required": ["block_size"],
        "additionalProperties": False,
        "oneOf": [_told_by(name) for name in PROMPT_FIELDS if name != "block_hashes"],
    }


def _paths() -> Json:
    rank = query_parameters(rest.RankFilter)
    pod = [path_parameter("pod", "A pod's name, percent-encoded (it may hold `:`, `/`, `[`, `]`).")]
    block = [
        *pod,
        path_parameter(
            "hash", "Engine hash or token hash: 1..16 hexadecimal digits.", pattern="^(0[xX])?[0-9a-fA-F]{1,16}$"
        ),
    ]
    return {
        "/v1/lookup": {
            "post": operation(
                "lookup",
                "lookup",
                "Which engine holds how much of this prompt's prefix",
                answers("LookupAnswer"),
                body=prompt_body("LookupBody"),
                parameters=[*query_parameters(PARAMETERS[False]), *prompt_headers()],
                description=_GIVEN_TWICE,
            )
        },
        "/v1/lookup/batch": {
            "post": operation(
                "lookup_batch",
                "lookup",
                "Several lookups at once, each answered or refused by itself",
                answers("BatchAnswer"),
                body=request_body({"$ref": REF + "BatchBody"}),
                parameters=prompt_headers(),
                description=_BATCH,
            )
        },
        "/v1/pick": {
            "post": operation(
                "pick",
                "lookup",
                "For scripts in gateways: which pods to send this OpenAI request to",
                _pick_answers(),
                body=_pick_body(),
                parameters=_pick_headers(),
                description=_PICK,
            )
        },
        "/v1/hash": {
            "post": operation(
                "hash",
                "lookup",
                "The token hashes of a prompt's whole blocks",
                answers("HashAnswer")
                | {"504": problem_answer("A text that has no tokens by the deadline: nothing is known.")},
                body=prompt_body("HashBody"),
                parameters=[
                    *(p for p in query_parameters(PARAMETERS[True]) if p["name"] in HASHED),
                    *prompt_headers(),
                ],
                description=_GIVEN_TWICE,
            )
        },
        **recommend_path(_GIVEN_TWICE),
        "/v1/explain": {
            "post": operation(
                "explain",
                "lookup",
                "Why engines hold no more of this prompt: the first missing block, what became of it, what to do",
                answers("ExplainAnswer"),
                body=prompt_body("ExplainBody"),
                parameters=[
                    *query_parameters(PARAMETERS[False]),
                    *query_parameters(explain.ExplainTarget),
                    *prompt_headers(),
                ],
                description=_EXPLAIN,
            )
        },
        "/v1/sources": {
            "get": operation(
                "list_sources",
                "sources",
                "Sources and what is known of them",
                answers("SourceList"),
                parameters=query_parameters(rest.SourceFilters),
            ),
            "post": operation(
                "add_source",
                "sources",
                "Register one source (scope admin; until `auth.endpoints` is set, from loopback only)",
                _command_answers("SourceRegistered") | answers("SourceRegistered", "201", "New."),
                body=request_body({"$ref": REF + "SourceBody"}),
            ),
            "put": operation(
                "replace_sources",
                "sources",
                "Make this the whole set of sources registered by callers (scope admin; as to register)",
                _command_answers("SourcesReplaced"),
                body=request_body(
                    {"oneOf": [{"type": "array", "items": {"$ref": REF + "SourceBody"}}, {"$ref": REF + "SourceSet"}]}
                ),
                parameters=query_parameters(rest.ReplaceOptions),
            ),
        },
        "/v1/sources/{pod}": {
            "parameters": pod,
            "delete": operation(
                "remove_source",
                "sources",
                "Forget a pod's sources; discovered ones come back as long as they are told of (scope admin)",
                _command_answers("SourcesTouched"),
                parameters=rank,
            ),
            "patch": operation(
                "cordon_source",
                "sources",
                "Take a pod out of the scores, or back (scope admin)",
                _command_answers("SourcesTouched"),
                body=request_body({"$ref": REF + "CordonBody"}),
                parameters=rank,
            ),
        },
        "/v1/sources/{pod}/clear": {
            "parameters": pod,
            "post": operation(
                "clear_source",
                "sources",
                "Start a new generation: nothing announced before counts (scope admin)",
                _command_answers("SourcesTouched"),
                parameters=rank,
            ),
        },
        "/v1/sources/{pod}/history": {
            "parameters": pod,
            "get": operation(
                "source_history",
                "sources",
                "What happened to a pod's sources, the newest first",
                answers("HistoryList"),
                parameters=query_parameters(history.HistoryFilters),
            ),
        },
        "/v1/sources/{pod}/blocks/{hash}": {
            "parameters": block,
            "get": operation(
                "find_block",
                "sources",
                "A block's entry, by either hash (scope admin)",
                answers("BlockList") | {"503": {"$ref": "#/components/responses/Problem"}},
                parameters=rank,
            ),
        },
        **report_paths(),
        "/v1/partitions": {
            "get": operation(
                "list_partitions",
                "service",
                "Who owns and who follows what of the store, and which replicas there are",
                answers("PartitionList"),
            )
        },
        "/v1/replicas/{name}/drain": {
            "parameters": [path_parameter("name", "A replica's name, as `GET /v1/partitions` tells it.")],
            "post": operation(
                "drain_replica",
                "service",
                "Have a replica hand over all partitions that it owns (scope admin)",
                answers("ReplicaDrained")
                | answers("ReplicaDrained", "202", "Under way.")
                | {"503": {"$ref": "#/components/responses/Problem"}},
                description="Ends with the replica's process: one that is started again owns as before.",
            ),
            "delete": operation(
                "undrain_replica",
                "service",
                "Let it own partitions again (scope admin)",
                answers("ReplicaDrained") | {"503": {"$ref": "#/components/responses/Problem"}},
            ),
        },
        "/v1/config": {
            "get": operation(
                "config",
                "service",
                "The effective settings, secrets masked (scope admin)",
                {
                    "200": {
                        "description": "By section and key, as `kvindexer config` prints them.",
                        "content": {name.decode(): {"schema": {"type": "object"}} for name in ANSWER_TYPES.values()},
                    }
                },
            )
        },
        "/v1/version": {"get": operation("version", "service", "What runs here", answers("VersionAnswer"))},
        "/healthz": {"get": operation("healthz", "service", "Alive", answers("Health"))},
        "/readyz": {
            "get": operation(
                "readyz",
                "service",
                "Whether lookups may be sent here, and the progress",
                answers("Readiness") | answers("Readiness", "503", "Not yet, or no longer."),
            )
        },
        "/metrics": {
            "get": operation(
                "metrics", "service", "Metrics for Prometheus", plain_answer("text/plain", {"type": "string"})
            )
        },
        "/openapi.json": {
            "get": operation(
                "openapi", "service", "This document", plain_answer("application/json", {"type": "object"})
            )
        },
    }


def _command_answers(schema: str) -> Json:
    late = "Recorded; not seen to be in force yet."
    return answers(schema) | answers(schema, "202", late) | {"503": {"$ref": "#/components/responses/Problem"}}


def _pick_answers() -> Json:
    headers = {
        "x-gateway-destination-endpoint": "HOST:PORT of these pods, best first, as far as they are known.",
        "x-kvindexer-state": "The answer's state; `no_signal` where nobody is named.",
        "x-kvindexer-reason": "Where nobody is named, why: a reason of answers, `not_scored`, `not_understood`, "
        "or the code of what `/v1/lookup` would refuse it for (`prompt.no_tokenizer`).",
        "x-kvindexer-matched-tokens": "Of the first pod.",
        "x-kvindexer-request-id": "The request's id.",
    }
    told = {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}
    text = "A line a pod, best first, at most 3: `POD SCORE MATCHED_TOKENS STATE`. What ends a word is percent-encoded."
    schema = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "200": {"description": text, "headers": told, "content": schema},
        "204": {"description": "No preference.", "headers": told},
    }


def _pick_body() -> Json:
    schema = {"type": "object", "description": "A completions or chat completions request."}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _pick_headers() -> list[Json]:
    pods = {"type": "string", "maxLength": 16_384}
    return [
        header_parameter("x-kvindexer-pods", pods, "Only these, separated by commas, by any of their names."),
        header_parameter(
            "x-kvindexer-truncated", {"enum": ["true", "false"]}, "The body was cut: what is complete is used."
        ),
        *prompt_headers(),
    ]
