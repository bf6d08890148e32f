"""Of the OpenAPI document what callers report, and what operators read of it. As openapi.py."""

from __future__ import annotations

from typing import Final

from api.rest.openapi_parts import BINS, REF, Json, answers, operation, query_parameters, request_body
from schemas import reports
from schemas.receipts import REPORTS_MAX

_EACH: Final = (
    f"At most {REPORTS_MAX} reports. Of an array each is taken or refused by itself; one that comes alone is refused "
    "as any request is. "
)
_ROUTED: Final = (
    _EACH + "A `request_id` counts once of a pod and rank within a minute (`of` may come again: it is the "
    "lookup's). `results` tells what became of those that were taken: `expected`, `held` already, `repeated`, or "
    "`not_placed`: its blocks cannot be known. Lookups show what is expected as `speculative_tokens`, "
    "until the engine's events tell or twice the time they usually take is over. " + BINS
)

_FEEDBACK: Final = (
    _EACH + "A report counts once for a request and source, and only where the lookup that it is about was "
    "answered by this replica, of late, and could count the source: `joined`. `results` tells what became of all that "
    "were taken, also `unjoined`, `repeated`, and `failed` where nothing is to be compared. Without `request_id`, "
    "or where it is not known, the newest lookup of the same prompt, model and tenant is meant; a report without it "
    "counts each time it is sent, and says nothing of drift. " + BINS
)


def report_paths() -> Json:
    """Paths of reports."""
    return {
        "/v1/reports/staleness": {
            "get": operation(
                "report_staleness",
                "reports",
                "How each source is doing, how old what is known of it was, and what went wrong",
                _report_answers("StalenessReport"),
                parameters=query_parameters(reports.StalenessFilters),
                description="As this replica saw it. CSV has a line a source and a header; nested fields are named by "
                "their path, as `lag_ms.1m.p99`.",
            )
        },
        "/v1/reports/consistency": {
            "get": operation(
                "report_consistency",
                "reports",
                "What was answered beside what engines really reused, as `/v1/feedback` told",
                _report_answers("ConsistencyReport"),
                parameters=query_parameters(reports.ConsistencyFilters),
                description="As this replica saw it. CSV has a line a source and window, with all ages and causes; "
                "JSON leaves out those of which there is nothing.",
            )
        },
        "/v1/routed": {
            "post": operation(
                "report_routed",
                "reports",
                "This request was sent to that pod: its blocks are expected there (scope report)",
                answers("RoutedTaken", "202", "Taken, or told one by one why not."),
                body=request_body({"oneOf": [{"$ref": REF + "RoutedBody"}, _list_of("RoutedBody")]}),
                description=_ROUTED,
            )
        },
        "/v1/feedback": {
            "post": operation(
                "report_feedback",
                "reports",
                "What engines really reused: compared with what was answered (scope report)",
                answers("FeedbackTaken", "202", "Taken, or told one by one why not."),
                body=request_body({"oneOf": [{"$ref": REF + "FeedbackBody"}, _list_of("FeedbackBody")]}),
                description=_FEEDBACK,
            )
        },
    }


def routed_forms() -> list[Json]:
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


def feedback_rules() -> list[Json]:
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


def _list_of(schema: str) -> Json:
    return {"type": "array", "items": {"$ref": REF + schema}, "maxItems": REPORTS_MAX}


def _report_answers(schema: str) -> Json:
    told = answers(schema)
    told["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}
    return told
