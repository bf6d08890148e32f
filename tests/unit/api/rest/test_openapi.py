"""The OpenAPI document: valid, complete, and made of the types that decode."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from fastapi.openapi.models import OpenAPI

from api.access.gates import open_gates
from api.faces.doors import FACE_PATHS
from api.rest.app import create_app
from api.rest.field_texts import FIELD_TEXTS
from api.rest.lookup_request import HASH_BLOCKS_MAX
from api.rest.openapi import openapi_document
from api.rest.value_texts import (
    ANSWER_STATES,
    BOUNDS,
    CAUSES,
    HAPPENINGS,
    LOAD_SOURCES,
    MISMATCHES,
    PARTITION_STATES,
    REASONS,
    SOURCE_STATES,
)
from indexer.explain.codes import CODES, Code
from indexer.happenings import Cause, What
from indexer.loads.known import LoadSource
from indexer.model import AnswerState, Bound, Reason, SourceState
from indexer.reports.causes import MismatchCause
from tests.support.fake_node import FakeNode

DOCUMENT: dict[str, Any] = json.loads(openapi_document("1.2.3"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def _refs(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from _refs(value)
    elif isinstance(part, list):
        for value in part:
            yield from _refs(value)


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method.upper(), operation


def test_is_an_openapi_document() -> None:
    """By the model that FastAPI has of one."""
    assert "kvindexer" == OpenAPI.model_validate(DOCUMENT).info.title
    assert "1.2.3" == DOCUMENT["info"]["version"]


def test_every_reference_leads_somewhere() -> None:
    """And every schema is led to."""
    found = set(_refs(DOCUMENT))
    known = {f"#/components/schemas/{name}" for name in SCHEMAS} | {"#/components/responses/Problem"}

    assert found == known


def test_lists_exactly_what_is_served() -> None:
    """Paths and methods of the application, no more and no fewer. The faces are documented by whose they are.

    Nor is there what stands below `/v1/pick/`: any path and any method, which that one's text says.
    """
    app = create_app(FakeNode(), gates=open_gates()._replace(faces=False))
    served = {(route.path, method) for route in app._app.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]

    served = {(path, method) for path, method in served if not path.startswith("/v1/pick/")}

    assert served | {("/v1/lookup", "POST")} == {(path, method) for path, method, _ in _operations()}


def test_names_the_paths_that_others_describe() -> None:
    """All of them."""
    app = create_app(FakeNode(), gates=open_gates())
    served = {route.path for route in app._app.routes}  # type: ignore[attr-defined]
    named = {word for word in DOCUMENT["info"]["description"].split("`") if word.startswith("/")}

    assert FACE_PATHS == named == {path for path in served - set(DOCUMENT["paths"]) if not path.startswith("/v1/pick/")}


def test_every_operation_has_a_name_of_its_own_and_says_what_a_refusal_looks_like() -> None:
    """For clients made from the document."""
    operations = list(_operations())

    assert len(operations) == len({operation["operationId"] for *_, operation in operations})
    assert all("default" in operation["responses"] for *_, operation in operations)


def test_path_parameters_are_declared() -> None:
    """Each name in braces."""
    for path, item in DOCUMENT["paths"].items():
        named = {part.strip("{}") for part in path.split("/") if part.startswith("{")}
        assert named == {parameter["name"] for parameter in item.get("parameters", [])}


@pytest.mark.parametrize("name", ["LookupBody", "HashBody", "SourceBody", "SourceSet", "CordonBody", "MmItemBody"])
def test_bodies_take_no_unknown_keys(name: str) -> None:
    """As the decoder."""
    assert SCHEMAS[name]["additionalProperties"] is False


def test_limits_are_those_of_the_decoder() -> None:
    """In numbers; what types cannot say, in words."""
    properties = SCHEMAS["LookupBody"]["properties"]

    assert 4_096 == properties["pods"]["anyOf"][0]["maxItems"]
    assert 64 == properties["min_sequence"]["anyOf"][0]["maxProperties"]
    assert str(HASH_BLOCKS_MAX) in SCHEMAS["HashBody"]["description"]


def test_the_salt_is_no_query_parameter() -> None:
    """A header instead: URLs are logged."""
    for path in ("/v1/lookup", "/v1/hash"):
        places = {p["name"]: p["in"] for p in DOCUMENT["paths"][path]["post"]["parameters"]}
        assert "cache_salt" not in places
        assert "header" == places["x-kvindexer-cache-salt"]


def test_every_field_and_parameter_is_described() -> None:
    """And no text is left over from a field that has gone."""
    for name, schema in SCHEMAS.items():
        assert set(FIELD_TEXTS[name]) == set(schema["properties"]), name
        assert all(
            kind["description"].startswith(FIELD_TEXTS[name][field]) for field, kind in schema["properties"].items()
        )
    assert set(FIELD_TEXTS) - set(SCHEMAS) == {
        "SourceFilters",
        "RankFilter",
        "ReplaceOptions",
        "HistoryFilters",
        "StalenessFilters",
        "ConsistencyFilters",
        "ExplainTarget",
        "RecommendOptions",
    }
    parameters = [parameter for _, _, operation in _operations() for parameter in operation.get("parameters", [])]
    assert len(parameters) > 20
    assert all(parameter["description"] for parameter in parameters)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (SOURCE_STATES, SourceState),
        (BOUNDS, Bound),
        (REASONS, Reason),
        (ANSWER_STATES, AnswerState),
        (HAPPENINGS, What),
        (CAUSES, Cause),
        (MISMATCHES, MismatchCause),
        (CODES, Code),
        (LOAD_SOURCES, LoadSource),
    ],
)
def test_every_value_has_a_line(texts: dict[str, str], values: object) -> None:
    """In the order of the promise."""
    assert list(get_args(values)) == list(texts)


@pytest.mark.parametrize(
    ("schema", "field", "texts"),
    [
        ("PodEntry", "state", SOURCE_STATES),
        ("PodEntry", "bound", BOUNDS),
        ("PodEntry", "reason", REASONS),
        ("SourceView", "state", SOURCE_STATES),
        ("LookupAnswer", "state", ANSWER_STATES),
        ("PartitionView", "state", PARTITION_STATES),
        ("HistoryItem", "what", HAPPENINGS),
        ("HistoryItem", "cause", CAUSES),
        ("ConsistencyFigures", "causes", MISMATCHES),
        ("PodExplanation", "code", CODES),
        ("LoadsUsed", "source", LOAD_SOURCES),
    ],
)
def test_closed_lists_are_explained_where_they_stand(schema: str, field: str, texts: dict[str, str]) -> None:
    """One line a value."""
    described = SCHEMAS[schema]["properties"][field]["description"].splitlines()

    assert [f"* `{value}`: {text}" for value, text in texts.items()] == described[2:]


def test_nothing_is_said_that_only_a_reader_of_the_source_understands() -> None:
    """No documents of ours, no names of libraries or types."""
    text = json.dumps(DOCUMENT)

    assert [] == [word for word in ("decisions/", ".md", "DESIGN", "msgspec", ".py") if word in text]


def test_a_request_to_hash_lists_what_means_something_to_it() -> None:
    """The rest is taken, so that a lookup's body can be sent as it is, and is said to change nothing."""
    operation = DOCUMENT["paths"]["/v1/hash"]["post"]
    listed = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}

    assert listed == {"block_size", "lora_name", "mm_items", "request_id"}
    assert {"x-kvindexer-timeout-ms", "x-envoy-expected-rq-timeout-ms"} <= {
        parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"
    }, "for the tokens of a text"
    assert {"application/problem+json"} == set(operation["responses"]["504"]["content"])
    assert SCHEMAS["HashBody"]["properties"]["max_lag_ms"]["description"].startswith("Without effect")
    assert "the body counts before the query string" in operation["description"]
