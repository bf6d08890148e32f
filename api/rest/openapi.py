"""The OpenAPI 3.1 document, made from the types that decode and encode: it cannot promise what the code does not do.

Made once, at start. What the types cannot say (exactly one of two keys, which header carries what) is added here by
hand.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from api.rest.field_texts import FIELD_TEXTS, HASHED
from api.rest.header_options import HEADER_MS_MAX, SALT_HEADER
from api.rest.lookup_request import HASH_BLOCKS_MAX, PARAMETERS, PROMPT_FIELDS
from api.rest.media import ANSWER_TYPES
from api.rest.prompt_text import ONLY_WITH_TEXT
from indexer import happenings, model
from indexer.explain import codes
from schemas import explain, feedback, history, receipts, reports, rest
from schemas.lookup import LookupAnswer
from schemas.receipts import REPORTS_MAX

Json = dict[str, Any]

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
    "are ignored. 204 says: balance as you would without this service. That is the answer to whatever is not "
    "understood, not known or not ready in time, and where nobody holds anything of the prompt and it was routed to "
    "nobody of late; where it was, pods with `speculative_tokens` are named, with score 0. Below `/v1/pick/` (Envoy's "
    "ext_authz with this as its path prefix) every method and path is answered so, and always with 200."
)

_ROUTED: Final = (
    f"At most {REPORTS_MAX} reports. Of an array each is taken or refused by itself; one that comes alone is refused "
    "as any request is. A `request_id` counts once of a pod and rank within a minute (`of` may come again: it is the "
    "lookup's). `results` tells what became of those that were taken: `expected`, `held` already, `repeated`, or "
    "`not_placed`: its blocks cannot be known. Lookups show what is expected as `speculative_tokens`, "
    "until the engine's events tell or twice the time they usually take is over. In MessagePack "
    "`token_ids` may also be one bin of little-endian u32, and `block_hashes` one of little-endian u64."
)

_FEEDBACK: Final = (
    f"At most {REPORTS_MAX} reports. Of an array each is taken or refused by itself; one that comes alone is refused "
    "as any request is. A report counts once for a request and source, and only where the lookup that it is about was "
    "answered by this replica, of late, and could count the source: `joined`. `results` tells what became of all that "
    "were taken, also `unjoined`, `repeated`, and `failed` where nothing is to be compared. Without `request_id`, "
    "or where it is not known, the newest lookup of the same prompt, model and tenant is meant; a report without it "
    "counts each time it is sent, and says nothing of drift. In MessagePack "
    "`token_ids` may also be one bin of little-endian u32, and `block_hashes` one of little-endian u64."
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
REF: Final = "#/components/schemas/"
ROOTS: Final = (
    rest.LookupBody,
    rest.BatchBody,
    LookupAnswer,
    rest.HashAnswer,
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
        "components": {"schemas": _schemas(), "responses": {"Problem": _problem()}, "securitySchemes": _SCHEMES},
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
    schemas["RoutedBody"]["oneOf"] = _routed_forms()
    schemas["ExplainBody"] = _explain_body(body)
    schemas["FeedbackBody"]["allOf"] = _feedback_rules()
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


def _list_of(schema: str) -> Json:
    return {"type": "array", "items": {"$ref": REF + schema}, "maxItems": REPORTS_MAX}


def _routed_forms() -> list[Json]:
    """A report tells its prompt in one way; by hashes with their block size, by `of` with nothing else of it."""
    of_hashes, of_prompts = ("block_size", "scheme"), ("lora_name", "cache_salt", "mm_items")
    forms = {
        "token_ids": ("array", ("block_hashes", "of", *of_hashes)),
        "block_hashes": ("array", ("token_ids", "of")),
        "of": ("string", ("token_ids", "block_hashes", *of_hashes, *of_prompts)),
    }
    return [
        {
            "required": [name, "block_size"] if name == "block_hashes" else [name],
            "properties": {
                name: {"type": kind},
                **({"block_size": {"type": "integer"}} if name == "block_hashes" else {}),
                **{other: {"type": "null"} for other in others},
            },
        }
        for name, (kind, others) in forms.items()
    ]


def _feedback_rules() -> list[Json]:
    """A report names its request, or a pod and the prompt, or all; and what was reused, unless the request failed."""
    nothing: Json = {"type": "null"}
    forms: tuple[dict[str, str], ...] = (
        {"request_id": "string", "token_ids": "null", "block_hashes": "null", "block_size": "null", "scheme": "null"},
        {"pod": "string", "token_ids": "array", "block_hashes": "null", "block_size": "null", "scheme": "null"},
        {"pod": "string", "block_hashes": "array", "block_size": "integer", "token_ids": "null"},
    )
    told = [
        {
            "required": [name for name, kind in form.items() if kind != "null"],
            "properties": {name: nothing if kind == "null" else {"type": kind} for name, kind in form.items()},
        }
        for form in forms
    ]
    counted = {"required": ["cached_tokens"], "properties": {"cached_tokens": {"type": "integer"}}}
    failed = {"required": ["ok"], "properties": {"ok": {"const": False}}}
    return [{"oneOf": told}, {"anyOf": [counted, failed]}]


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
    properties["block_size"] = _without_null(properties["block_size"])
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


def _explain_body(lookup_body: Json) -> Json:
    _, schemas = msgspec.json.schema_components([explain.ExplainTarget], ref_template=REF + "{name}")
    return lookup_body | {
        "title": "ExplainBody",
        "description": "Body of `POST /v1/explain`: a lookup's, and whom it is about.",
        "properties": lookup_body["properties"] | schemas["ExplainTarget"]["properties"],
    }


def _without_null(schema: Json) -> Json:
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return {key: value for key, value in schema.items() if key != "default"}
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _paths() -> Json:
    rank = _query_parameters(rest.RankFilter)
    pod = [_path_parameter("pod", "A pod's name, percent-encoded (it may hold `:`, `/`, `[`, `]`).")]
    block = [
        *pod,
        _path_parameter(
            "hash", "Engine hash or token hash: 1..16 hexadecimal digits.", pattern="^(0[xX])?[0-9a-fA-F]{1,16}$"
        ),
    ]
    return {
        "/v1/lookup": {
            "post": _operation(
                "lookup",
                "lookup",
                "Which engine holds how much of this prompt's prefix",
                _answers("LookupAnswer"),
                body=_prompt_body("LookupBody"),
                parameters=[*_query_parameters(PARAMETERS[False]), *_prompt_headers()],
                description=_GIVEN_TWICE,
            )
        },
        "/v1/lookup/batch": {
            "post": _operation(
                "lookup_batch",
                "lookup",
                "Several lookups at once, each answered or refused by itself",
                _answers("BatchAnswer"),
                body=_body({"$ref": REF + "BatchBody"}),
                parameters=_prompt_headers(),
                description=_BATCH,
            )
        },
        "/v1/pick": {
            "post": _operation(
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
            "post": _operation(
                "hash",
                "lookup",
                "The token hashes of a prompt's whole blocks",
                _answers("HashAnswer")
                | {"504": _problem("A text that has no tokens by the deadline: nothing is known.")},
                body=_prompt_body("HashBody"),
                parameters=[
                    *(p for p in _query_parameters(PARAMETERS[True]) if p["name"] in HASHED),
                    *_prompt_headers(),
                ],
                description=_GIVEN_TWICE,
            )
        },
        "/v1/explain": {
            "post": _operation(
                "explain",
                "lookup",
                "Why engines hold no more of this prompt: the first missing block, what became of it, what to do",
                _answers("ExplainAnswer"),
                body=_prompt_body("ExplainBody"),
                parameters=[
                    *_query_parameters(PARAMETERS[False]),
                    *_query_parameters(explain.ExplainTarget),
                    *_prompt_headers(),
                ],
                description=_EXPLAIN,
            )
        },
        "/v1/sources": {
            "get": _operation(
                "list_sources",
                "sources",
                "Sources and what is known of them",
                _answers("SourceList"),
                parameters=_query_parameters(rest.SourceFilters),
            ),
            "post": _operation(
                "add_source",
                "sources",
                "Register one source (scope admin; until `auth.endpoints` is set, from loopback only)",
                _command_answers("SourceRegistered") | _answers("SourceRegistered", "201", "New."),
                body=_body({"$ref": REF + "SourceBody"}),
            ),
            "put": _operation(
                "replace_sources",
                "sources",
                "Make this the whole set of sources registered by callers (scope admin; as to register)",
                _command_answers("SourcesReplaced"),
                body=_body(
                    {"oneOf": [{"type": "array", "items": {"$ref": REF + "SourceBody"}}, {"$ref": REF + "SourceSet"}]}
                ),
                parameters=_query_parameters(rest.ReplaceOptions),
            ),
        },
        "/v1/sources/{pod}": {
            "parameters": pod,
            "delete": _operation(
                "remove_source",
                "sources",
                "Forget a pod's sources (scope admin)",
                _command_answers("SourcesTouched"),
                parameters=rank,
            ),
            "patch": _operation(
                "cordon_source",
                "sources",
                "Take a pod out of the scores, or back (scope admin)",
                _command_answers("SourcesTouched"),
                body=_body({"$ref": REF + "CordonBody"}),
                parameters=rank,
            ),
        },
        "/v1/sources/{pod}/clear": {
            "parameters": pod,
            "post": _operation(
                "clear_source",
                "sources",
                "Start a new generation: nothing announced before counts (scope admin)",
                _command_answers("SourcesTouched"),
                parameters=rank,
            ),
        },
        "/v1/sources/{pod}/history": {
            "parameters": pod,
            "get": _operation(
                "source_history",
                "sources",
                "What happened to a pod's sources, the newest first",
                _answers("HistoryList"),
                parameters=_query_parameters(history.HistoryFilters),
            ),
        },
        "/v1/sources/{pod}/blocks/{hash}": {
            "parameters": block,
            "get": _operation(
                "find_block",
                "sources",
                "A block's entry, by either hash (scope admin)",
                _answers("BlockList"),
                parameters=rank,
            ),
        },
        "/v1/reports/staleness": {
            "get": _operation(
                "report_staleness",
                "reports",
                "How each source is doing, how old what is known of it was, and what went wrong",
                _report_answers("StalenessReport"),
                parameters=_query_parameters(reports.StalenessFilters),
                description="As this replica saw it. CSV has a line a source and a header; nested fields are named by "
                "their path, as `lag_ms.1m.p99`.",
            )
        },
        "/v1/reports/consistency": {
            "get": _operation(
                "report_consistency",
                "reports",
                "What was answered beside what engines really reused, as `/v1/feedback` told",
                _report_answers("ConsistencyReport"),
                parameters=_query_parameters(reports.ConsistencyFilters),
                description="As this replica saw it. CSV has a line a source and window, with all ages and causes; "
                "JSON leaves out those of which there is nothing.",
            )
        },
        "/v1/routed": {
            "post": _operation(
                "report_routed",
                "reports",
                "This request was sent to that pod: its blocks are expected there (scope report)",
                _answers("RoutedTaken", "202", "Taken, or told one by one why not."),
                body=_body({"oneOf": [{"$ref": REF + "RoutedBody"}, _list_of("RoutedBody")]}),
                description=_ROUTED,
            )
        },
        "/v1/feedback": {
            "post": _operation(
                "report_feedback",
                "reports",
                "What engines really reused: compared with what was answered (scope report)",
                _answers("FeedbackTaken", "202", "Taken, or told one by one why not."),
                body=_body({"oneOf": [{"$ref": REF + "FeedbackBody"}, _list_of("FeedbackBody")]}),
                description=_FEEDBACK,
            )
        },
        "/v1/partitions": {
            "get": _operation(
                "list_partitions",
                "service",
                "Who owns and who follows what of the store, and which replicas there are",
                _answers("PartitionList"),
            )
        },
        "/v1/replicas/{name}/drain": {
            "parameters": [_path_parameter("name", "A replica's name, as `GET /v1/partitions` tells it.")],
            "post": _operation(
                "drain_replica",
                "service",
                "Have a replica hand over all partitions that it owns (scope admin)",
                _answers("ReplicaDrained")
                | _answers("ReplicaDrained", "202", "Under way.")
                | {"503": {"$ref": "#/components/responses/Problem"}},
                description="Ends with the replica's process: one that is started again owns as before.",
            ),
            "delete": _operation(
                "undrain_replica",
                "service",
                "Let it own partitions again (scope admin)",
                _answers("ReplicaDrained") | {"503": {"$ref": "#/components/responses/Problem"}},
            ),
        },
        "/v1/config": {
            "get": _operation(
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
        "/v1/version": {"get": _operation("version", "service", "What runs here", _answers("VersionAnswer"))},
        "/healthz": {"get": _operation("healthz", "service", "Alive", _answers("Health"))},
        "/readyz": {
            "get": _operation(
                "readyz",
                "service",
                "Whether lookups may be sent here, and the progress",
                _answers("Readiness") | _answers("Readiness", "503", "Not yet, or no longer."),
            )
        },
        "/metrics": {
            "get": _operation("metrics", "service", "Metrics for Prometheus", _plain("text/plain", {"type": "string"}))
        },
        "/openapi.json": {
            "get": _operation("openapi", "service", "This document", _plain("application/json", {"type": "object"}))
        },
    }


def _operation(
    name: str,
    tag: str,
    summary: str,
    responses: Json,
    *,
    body: Json | None = None,
    parameters: list[Json] | None = None,
    description: str | None = None,
) -> Json:
    operation: Json = {"operationId": name, "tags": [tag], "summary": summary}
    if description is not None:
        operation["description"] = description
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = body
    operation["responses"] = responses | {"default": {"$ref": "#/components/responses/Problem"}}
    return operation


def _answers(schema: str, status: str = "200", description: str = "The answer.") -> Json:
    content = {name.decode(): {"schema": {"$ref": REF + schema}} for name in ANSWER_TYPES.values()}
    return {status: {"description": description, "content": content}}


def _report_answers(schema: str) -> Json:
    answers = _answers(schema)
    answers["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}
    return answers


def _command_answers(schema: str) -> Json:
    late = "Recorded; not seen to be in force yet."
    return _answers(schema) | _answers(schema, "202", late) | {"503": {"$ref": "#/components/responses/Problem"}}


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
        _header("x-kvindexer-pods", pods, "Only these, separated by commas, by any of their names."),
        _header("x-kvindexer-truncated", {"enum": ["true", "false"]}, "The body was cut: what is complete is used."),
        *_prompt_headers(),
    ]


def _plain(media_type: str, schema: Json) -> Json:
    return {"200": {"description": "The answer.", "content": {media_type: {"schema": schema}}}}


def _problem(description: str = "Refused; `code` and `errors` say why.") -> Json:
    content = {"application/problem+json": {"schema": {"$ref": REF + "Problem"}}}
    return {"description": description, "content": content}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {name.decode(): {"schema": schema} for name in ANSWER_TYPES.values()}}


def _prompt_body(schema: str) -> Json:
    body = _body({"$ref": REF + schema})
    body["description"] = (
        "In MessagePack `token_ids` may also be one bin of little-endian u32, and `block_hashes` one of little-endian "
        "u64."
    )
    token_bytes = {
        "type": "string",
        "format": "binary",
        "description": "Token ids as little-endian u32; the options are query parameters, the salt a header.",
    }
    body["content"]["application/octet-stream"] = {"schema": token_bytes}
    return body


def _prompt_headers() -> list[Json]:
    milliseconds = {"type": "integer", "minimum": 0, "maximum": HEADER_MS_MAX}
    salt = {"type": "string", "minLength": 1, "maxLength": 512}
    return [
        _header(SALT_HEADER.decode(), salt, "`cache_salt` where the body cannot carry it: it is never in a URL."),
        _header("x-kvindexer-timeout-ms", milliseconds, "Deadline; the smallest of all that are given holds."),
        _header("x-envoy-expected-rq-timeout-ms", milliseconds, "As above, set by Envoy; 0 = none."),
        _header("x-request-id", {"type": "string"}, "Repeated as `request_id` where it is 1..128 plain characters."),
    ]


def _header(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def _path_parameter(name: str, description: str, **schema: str) -> Json:
    kind = {"type": "string", "minLength": 1, **schema}
    return {"name": name, "in": "path", "required": True, "schema": kind, "description": description}


def _query_parameters(kind: type[msgspec.Struct]) -> list[Json]:
    """One parameter a field: lists by repeating the key, objects and lists of objects as JSON text."""
    _, schemas = msgspec.json.schema_components([kind], ref_template=REF + "{name}")
    texts = FIELD_TEXTS.get(kind.__name__, FIELD_TEXTS["LookupBody"])
    return [
        _query_parameter(name, _without_null(schema), texts[name])
        for name, schema in schemas[kind.__name__]["properties"].items()
    ]


def _query_parameter(name: str, schema: Json, text: str) -> Json:
    parameter: Json = {"name": name, "in": "query", "required": False, "description": text}
    as_json = schema.get("type") == "object" or "$ref" in schema.get("items", {})
    return parameter | ({"content": {"application/json": {"schema": schema}}} if as_json else {"schema": schema})
