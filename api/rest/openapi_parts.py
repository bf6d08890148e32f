"""What the OpenAPI document is put together of: operations, answers, bodies, parameters. As openapi.py."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from api.rest.field_texts import FIELD_TEXTS
from api.rest.header_options import HEADER_MS_MAX, SALT_HEADER
from api.rest.media import ANSWER_TYPES

Json = dict[str, Any]

REF: Final = "#/components/schemas/"
BINS: Final = (
    "In MessagePack `token_ids` may also be one bin of little-endian u32, and `block_hashes` one of little-endian u64."
)


def operation(
    name: str,
    tag: str,
    summary: str,
    responses: Json,
    *,
    body: Json | None = None,
    parameters: list[Json] | None = None,
    description: str | None = None,
) -> Json:
    """One method of a path."""
    told: Json = {"operationId": name, "tags": [tag], "summary": summary}
    if description is not None:
        told["description"] = description
    if parameters:
        told["parameters"] = parameters
    if body is not None:
        told["requestBody"] = body
    told["responses"] = responses | {"default": {"$ref": "#/components/responses/Problem"}}
    return told


def answers(schema: str, status: str = "200", description: str = "The answer.") -> Json:
    """With what it is answered: that schema, in either encoding."""
    content = {name.decode(): {"schema": {"$ref": REF + schema}} for name in ANSWER_TYPES.values()}
    return {status: {"description": description, "content": content}}


def plain_answer(media_type: str, schema: Json) -> Json:
    """It is answered with that, in one media type."""
    return {"200": {"description": "The answer.", "content": {media_type: {"schema": schema}}}}


def problem_answer(description: str = "Refused; `code` and `errors` say why.") -> Json:
    """It is answered with a problem."""
    content = {"application/problem+json": {"schema": {"$ref": REF + "Problem"}}}
    return {"description": description, "content": content}


def request_body(schema: Json) -> Json:
    """It takes that schema, in either encoding."""
    return {"required": True, "content": {name.decode(): {"schema": schema} for name in ANSWER_TYPES.values()}}


def prompt_body(schema: str) -> Json:
    """It takes that schema, or token ids as they are."""
    body = request_body({"$ref": REF + schema})
    body["description"] = BINS
    token_bytes = {
        "type": "string",
        "format": "binary",
        "description": "Token ids as little-endian u32; the options are query parameters, the salt a header.",
    }
    body["content"]["application/octet-stream"] = {"schema": token_bytes}
    return body


def beside_lookup(lookup_body: Json, options: type[msgspec.Struct], title: str, description: str) -> Json:
    """The schema of a body that has a lookup's fields and those options."""
    _, schemas = msgspec.json.schema_components([options], ref_template=REF + "{name}")
    properties = lookup_body["properties"] | schemas[options.__name__]["properties"]
    return lookup_body | {"title": title, "description": description, "properties": properties}


def prompt_headers() -> list[Json]:
    """Headers beside a prompt."""
    milliseconds = {"type": "integer", "minimum": 0, "maximum": HEADER_MS_MAX}
    salt = {"type": "string", "minLength": 1, "maxLength": 512}
    return [
        header_parameter(
            SALT_HEADER.decode(), salt, "`cache_salt` where the body cannot carry it: it is never in a URL."
        ),
        header_parameter("x-kvindexer-timeout-ms", milliseconds, "Deadline; the smallest of all that are given holds."),
        header_parameter("x-envoy-expected-rq-timeout-ms", milliseconds, "As above, set by Envoy; 0 = none."),
        header_parameter(
            "x-request-id", {"type": "string"}, "Repeated as `request_id` where it is 1..128 plain characters."
        ),
    ]


def header_parameter(name: str, schema: Json, description: str) -> Json:
    """A header that may be given."""
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def path_parameter(name: str, description: str, **schema: str) -> Json:
    """A part of the path."""
    kind = {"type": "string", "minLength": 1, **schema}
    return {"name": name, "in": "path", "required": True, "schema": kind, "description": description}


def query_parameters(kind: type[msgspec.Struct]) -> list[Json]:
    """One parameter a field: lists by repeating the key, objects and lists of objects as JSON text."""
    _, schemas = msgspec.json.schema_components([kind], ref_template=REF + "{name}")
    texts = FIELD_TEXTS.get(kind.__name__, FIELD_TEXTS["LookupBody"])
    return [
        _query_parameter(name, without_null(schema), texts[name])
        for name, schema in schemas[kind.__name__]["properties"].items()
    ]


def _query_parameter(name: str, schema: Json, text: str) -> Json:
    parameter: Json = {"name": name, "in": "query", "required": False, "description": text}
    as_json = schema.get("type") == "object" or "$ref" in schema or "$ref" in schema.get("items", {})
    return parameter | ({"content": {"application/json": {"schema": schema}}} if as_json else {"schema": schema})


def without_null(schema: Json) -> Json:
    """The schema of what is given: there is no null in a URL."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return {key: value for key, value in schema.items() if key != "default"}
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
