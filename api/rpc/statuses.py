"""Errors become gRPC statuses here and nowhere else: from the refusals of api/problems.py, the one table of errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NoReturn

import grpc

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import Problem, ProblemItem

if TYPE_CHECKING:
    from api.problems import RequestRefused

CODE_KEY: Final = "kvindexer-code"
PROBLEM_KEY: Final = "kvindexer-problem-bin"
MESSAGE_MAX: Final = 1_000
"""Clients take 8 KiB of trailing metadata by default; the problem beside it holds eight short issues at most."""

Context = grpc.aio.ServicerContext[bytes, bytes]

_STATUS: Final = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: grpc.StatusCode.ABORTED,
    HTTPStatus.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def status_of(refusal: RequestRefused) -> grpc.StatusCode:
    """The status of a refusal; what is not in the table is a fault of ours."""
    return _STATUS.get(refusal.status, grpc.StatusCode.INTERNAL)


def problem_of(refusal: RequestRefused, request_id: str) -> Problem:
    """The same facts as in REST's problem document."""
    return Problem(
        status=refusal.status.value,
        code=refusal.code,
        detail=str(refusal)[:MESSAGE_MAX],
        errors=[ProblemItem(field=i.field, rule=i.rule, got=i.got, hint=i.hint) for i in refusal.issues],
        request_id=request_id,
    )


async def refuse(context: Context, refusal: RequestRefused, request_id: str) -> NoReturn:
    """End a call with that refusal."""
    problem = problem_of(refusal, request_id)
    metadata = ((CODE_KEY, refusal.code), (PROBLEM_KEY, problem.SerializeToString()))
    await context.abort(status_of(refusal), f"{refusal.code}: {refusal}"[:MESSAGE_MAX], metadata)
