"""From the bytes of one report of `POST /v1/routed` to what the node is told. Pure."""

from __future__ import annotations

from typing import Final

from api.access.caller import Caller
from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm
from api.rest.report_bodies import report_decoder
from api.rest.reported_prompt import reported_prompt
from indexer.errors import BadRequestError, FieldIssue
from schemas.receipts import PackedRoutedBody, RoutedBody, RoutedReport

_TOLD_BY: Final = ("token_ids", "block_hashes", "of")
_WITH_PROMPT: Final = ("lora_name", "cache_salt", "mm_items")
"""What the lookup that `of` names has said already."""
_decoded: Final = report_decoder(RoutedBody, PackedRoutedBody, "name the lookup in `of`, or send token_ids")


def routed_report(
    requests: LookupRequests, form: BodyForm, body: bytes, caller: Caller, tokens_left: int
) -> RoutedReport:
    """One report, of no more tokens than are left. Raises `BadRequestError` and `RequestRefused`."""
    told = _decoded(requests, form, body)
    _check(told)
    query = reported_prompt(told, caller, tokens_left)
    return RoutedReport(pod=told.pod, dp_rank=told.dp_rank, request_id=told.request_id, of=told.of, query=query)


def _check(told: RoutedBody | PackedRoutedBody) -> None:
    """What spans several fields. Raises `BadRequestError`."""
    named = [name for name in _TOLD_BY if getattr(told, name) is not None]
    if len(named) != 1:
        issue = FieldIssue("token_ids", f"exactly one of {', '.join(_TOLD_BY)}", ", ".join(named) or "none")
        raise BadRequestError("prompt.exactly_one", [issue])
    for name in _WITH_PROMPT if named == ["of"] else ():
        if getattr(told, name) is not None:
            rule = "only together with token_ids or block_hashes"
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, rule)])
