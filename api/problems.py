"""Errors become answers here and nowhere else: one table from an error to status, code and problem document.

Promise: whatever is refused leaves as `application/problem+json` with a stable `code`, and never shows a prompt, a
salt or a secret (the issues inside arrive already cut short, see api/rest/explain.py).
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from indexer.errors import (
    BadRequestError,
    DrainRefusedError,
    FieldIssue,
    IndexerError,
    LimitReachedError,
    ReplicaUnknownError,
    SchemeConflictError,
    SourceConflictError,
    SourceElsewhereError,
    SourceSyncingError,
    SourceUnknownError,
    TooManyRemovalsError,
)
from indexer.log_lines import about
from indexer.store.failures import StoreFailure
from indexer.trace_context import trace_id_of
from schemas.rest import Problem, ProblemItem

PROBLEM_TYPE: Final = b"application/problem+json"
_LIMITS: Final = {
    "token_ids.too_many": "limits.tokens",
    "batch.too_many": "limits.batch",
    "block_hashes.too_many": "lookup.block_hashes",
    "block_size.too_many_blocks": "hash.blocks",
}
"""Codes of refusals by the limit that was reached."""
Headers = list[tuple[bytes, bytes]]

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class RequestRefused(IndexerError):
    """Refused at the HTTP level, before the core was asked: size, media type, path, method, caller."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        issues: Sequence[FieldIssue] = (),
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.issues = tuple(issues)
        self.headers = tuple(headers)


def refusal_of(
    error: Exception, request_id: str | None = None, traceparent: bytes | str | None = None
) -> RequestRefused:
    """The HTTP form of an error. What is not in this table is our own fault: 500, and its place in the log.

    There with the request's id and the caller's trace, where these are told.
    """
    match error:
        case RequestRefused():
            return error
        case BadRequestError():
            return RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, error.code, str(error), error.issues)
        case SourceUnknownError():
            return RequestRefused(HTTPStatus.NOT_FOUND, "source.unknown", str(error))
        case ReplicaUnknownError():
            issue = FieldIssue("name", "a replica of this deployment", error.name[:40], error.nearest)
            return RequestRefused(HTTPStatus.NOT_FOUND, "replica.unknown", str(error), [issue])
        case (
            SourceConflictError()
            | SourceElsewhereError()
            | SchemeConflictError()
            | TooManyRemovalsError()
            | DrainRefusedError()
        ):
            return RequestRefused(HTTPStatus.CONFLICT, *_conflict(error))
        case LimitReachedError():
            issue = FieldIssue(field=error.limit, rule=f"at most {error.value}")
            retry = (b"retry-after", b"%d" % max(1, math.ceil(error.retry_s)))
            return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, error.code, str(error), [issue], headers=[retry])
        case StoreFailure() | SourceSyncingError():
            code = "store.unavailable" if isinstance(error, StoreFailure) else "source.syncing"
            retry = (b"retry-after", b"1")
            return RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, code, str(error), headers=[retry])
        case _:
            log_fault(error, request_id, traceparent)
            return fault()


def _conflict(
    error: SourceConflictError | SourceElsewhereError | SchemeConflictError | TooManyRemovalsError | DrainRefusedError,
) -> tuple[str, str, Sequence[FieldIssue]]:
    """Code, detail and issue of what contradicts what stands."""
    match error:
        case SourceConflictError():
            return "source.conflict", str(error), [FieldIssue(field=error.field, rule=error.rule, hint=error.hint)]
        case SourceElsewhereError():
            return "source.elsewhere", str(error), []
        case SchemeConflictError():
            return "scheme.conflict", str(error), [FieldIssue(field="scheme", rule=error.rule)]
        case DrainRefusedError():
            return "replica.conflict", str(error), []
        case TooManyRemovalsError():
            hint = f"if that is meant, repeat with ?max_removals={error.sources}"
            rule = f"at most {error.limit}" + (" sources go" if error.pods is None else " pods without it")
            got = error.sources if error.pods is None else error.pods
            return "sources.removals", str(error), [FieldIssue("max_removals", rule, str(got), hint)]


def fault() -> RequestRefused:
    """What a caller is told of a fault of ours: that it is one."""
    return RequestRefused(
        HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the service failed to answer; its log says where"
    )


def counted_refusal(
    error: Exception,
    reached: Callable[[str], None],
    denied: Callable[[int, str], None],
    request_id: str | None = None,
    traceparent: bytes | str | None = None,
) -> RequestRefused:
    """As `refusal_of`, for whoever answers it: counted as a limit that was reached, or a denial, where it is one."""
    refusal = refusal_of(error, request_id, traceparent)
    count_limit(refusal, reached)
    count_denial(refusal, denied)
    return refusal


def count_limit(refusal: RequestRefused, reached: Callable[[str], None]) -> None:
    """Count the limit that a request was refused for, where only the refusal tells. Others are counted where met."""
    limit = _LIMITS.get(refusal.code)
    if limit is not None:
        reached(limit)


def count_denial(error: Exception, denied: Callable[[int, str], None]) -> None:
    """Count it where that is a refusal for who asks. Once a request: whoever answers it does."""
    if isinstance(error, RequestRefused) and error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        denied(error.status.value, error.code)


def problem_response(refusal: RequestRefused, request_id: str) -> tuple[int, Headers, bytes]:
    """Status, headers and body of a refusal."""
    body = _encode(problem_of(refusal, request_id))
    headers = [(b"content-type", PROBLEM_TYPE), (b"content-length", b"%d" % len(body)), *refusal.headers]
    return refusal.status.value, headers, body


def problem_of(refusal: RequestRefused, request_id: str) -> Problem:
    """What a caller is told of a refusal."""
    return Problem(
        title=refusal.status.phrase,
        status=refusal.status.value,
        code=refusal.code,
        detail=str(refusal),
        errors=[ProblemItem(field=i.field, rule=i.rule, got=i.got, hint=i.hint) for i in refusal.issues],
        request_id=request_id,
    )


def log_fault(error: BaseException, request_id: str | None = None, traceparent: bytes | str | None = None) -> None:
    """Log where a fault of ours happened. Not its message: that may quote a request."""
    extra = about("request_failed", request_id=request_id, trace_id=trace_id_of(traceparent))
    places = traceback.format_list(traceback.extract_tb(error.__traceback__))
    _log.error("a request failed with %s at\n%s", type(error).__name__, "".join(places).rstrip(), extra=extra)
