"""Each kind of error leaves with its status, its code and a well-formed document."""

import logging
from http import HTTPStatus

import msgspec
import pytest

from api.problems import RequestRefused, problem_response, refusal_of
from indexer.errors import (
    BadRequestError,
    DrainRefusedError,
    FieldIssue,
    LimitReachedError,
    ReplicaUnknownError,
    SchemeConflictError,
    SettingsError,
    SourceConflictError,
    SourceElsewhereError,
    SourceSyncingError,
    SourceUnknownError,
)
from indexer.store.failures import StoreFailure
from schemas.rest import Problem


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (
            BadRequestError("limit.wrong_type", [FieldIssue("limit", "integer")]),
            422,
            "limit.wrong_type",
            "limit: integer",
        ),
        (
            BadRequestError(
                "x.y",
                [FieldIssue("limit", "0..9", "-1"), FieldIssue("modle", "unknown field", hint="did you mean model?")],
            ),
            422,
            "x.y",
            "limit: 0..9 wanted, got -1; modle: unknown field (did you mean model?)",
        ),
        (SourceUnknownError("a", 3), 404, "source.unknown", "no source is known as 'a' with dp_rank 3"),
        (SourceElsewhereError("a", "b"), 409, "source.elsewhere", "this replica only follows 'a'; ask replica b"),
        (SourceElsewhereError("a", None), 409, "source.elsewhere", "this replica only follows 'a'"),
        (SourceSyncingError("a"), 503, "source.syncing", "what 'a' holds is being loaded"),
        (SourceConflictError("endpoint", "differs"), 409, "source.conflict", "endpoint: differs"),
        (LimitReachedError("limits.sources", 9), 429, "limit.reached", "limit limits.sources = 9 reached"),
        (StoreFailure("timeout"), 503, "store.unavailable", "the store: no answer within the deadline"),
        (ReplicaUnknownError("a", "b"), 404, "replica.unknown", "no replica is known as 'a'"),
        (DrainRefusedError("nobody else"), 409, "replica.conflict", "nobody else"),
        (SchemeConflictError("not here"), 409, "scheme.conflict", "scheme: not here"),
        (
            RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body.too_large", "too large"),
            413,
            "body.too_large",
            "too large",
        ),
    ],
)
def test_an_error_leaves_as_a_problem(error: Exception, status: int, code: str, detail: str) -> None:
    """Status in line and document agree; the code is the stable one."""
    sent, headers, body = problem_response(refusal_of(error), "r-1")
    problem = msgspec.json.decode(body, type=Problem)

    assert (status, status, code, detail) == (sent, problem.status, problem.code, problem.detail)
    assert (b"content-type", b"application/problem+json") in headers
    assert (b"content-length", b"%d" % len(body)) in headers
    assert problem.title
    assert problem.request_id == "r-1"


def test_a_reached_limit_says_when_to_try_again() -> None:
    """429 carries Retry-After."""
    _, headers, _ = problem_response(refusal_of(LimitReachedError("limits.sources", 9)), "r")

    assert b"retry-after" in dict(headers)


@pytest.mark.parametrize("error", [ValueError("the prompt said: secret"), SettingsError("server.port", "secret")])
def test_a_fault_of_ours_tells_and_logs_no_content(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """500; the log names type and place, neither repeats the message."""
    with caplog.at_level(logging.ERROR):
        status, _, body = problem_response(refusal_of(error), "r")

    assert (500, "internal") == (status, msgspec.json.decode(body, type=Problem).code)
    assert type(error).__name__ in caplog.text
    assert "secret" not in caplog.text + body.decode()
