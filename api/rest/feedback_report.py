"""From the bytes of one report of `POST /v1/feedback` to what the node is told. Pure."""

from __future__ import annotations

from typing import Final

from api.access.caller import Caller
from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm
from api.rest.report_bodies import report_decoder
from api.rest.reported_prompt import reported_prompt
from indexer.errors import BadRequestError, FieldIssue
from schemas.feedback import FeedbackBody, FeedbackReport, PackedFeedbackBody

_decoded: Final = report_decoder(FeedbackBody, PackedFeedbackBody, "name the lookup's request_id, or send token_ids")


def feedback_report(
    requests: LookupRequests, form: BodyForm, body: bytes, caller: Caller, tokens_left: int
) -> FeedbackReport:
    """One report, of no more tokens than are left. Raises `BadRequestError` and `RequestRefused`."""
    told = _decoded(requests, form, body)
    _check(told)
    query = reported_prompt(told, caller, tokens_left)
    query.prompt_tokens = None if told.block_hashes is None else told.prompt_tokens
    return FeedbackReport(
        pod=told.pod,
        dp_rank=told.dp_rank,
        request_id=told.request_id,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens or 0,
        ok=told.ok is not False,
        query=query,
    )


def _check(told: FeedbackBody | PackedFeedbackBody) -> None:
    """What spans several fields. Raises `BadRequestError`."""
    if told.token_ids is not None and told.block_hashes is not None:
        issue = FieldIssue("token_ids", "not together with block_hashes")
        raise BadRequestError("prompt.exactly_one", [issue])
    if told.pod is None and told.request_id is None:
        raise BadRequestError("pod.missing", [FieldIssue("pod", "required, unless request_id is of a routed request")])
    if told.request_id is None and told.token_ids is None and told.block_hashes is None:
        rule = "required: the lookup's, or token_ids or block_hashes instead"
        raise BadRequestError("request_id.missing", [FieldIssue("request_id", rule)])
    if told.cached_tokens is None and told.ok is not False:
        rule = "required, unless ok is false"
        raise BadRequestError("cached_tokens.missing", [FieldIssue("cached_tokens", rule)])
