"""`POST /v1/routed` and `/v1/feedback`: what callers report of their requests, one or an array. Translation only.

One report that is refused fails no other of its array; one that is alone is refused as any request is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.admission import Shares
from api.ports import NodePort
from api.problems import counted_refusal, problem_of
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.feedback_report import feedback_report
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm, body_form
from api.rest.readying import overload
from api.rest.report_bodies import reports_in
from api.rest.routed_report import routed_report
from indexer.clock import SystemClock
from indexer.model import TOKEN_BYTES
from indexer.slices import Slices
from schemas.feedback import FeedbackResult, FeedbackTaken
from schemas.receipts import ItemProblem, ReportsTaken, RoutedResult, RoutedTaken

ROUTED_RESULTS: Final[tuple[RoutedResult, ...]] = get_args(RoutedResult)
FEEDBACK_RESULTS: Final[tuple[FeedbackResult, ...]] = get_args(FeedbackResult)
"""All that an answer counts, also those that did not happen."""

Take = Callable[[BodyForm, bytes], Awaitable[None]]
"""One report. Raises what it is refused for."""


class ReceiptRoutes:
    """Handlers."""

    def __init__(self, node: NodePort, exchange: Exchange, requests: LookupRequests, limits: RestLimits) -> None:
        self._node = node
        self._exchange = exchange
        self._requests = requests
        self._limits = limits
        self._under_way = Shares("rest.reports_waiting", limits.batches_waiting, reached=node.limit_reached)

    async def routed(self, request: Request) -> Response:
        """`POST /v1/routed`."""
        caller, tokens_left = caller_of(request), self._limits.tokens
        results: dict[RoutedResult, int] = dict.fromkeys(ROUTED_RESULTS, 0)

        async def take(form: BodyForm, body: bytes) -> None:
            nonlocal tokens_left
            report = routed_report(self._requests, form, body, caller, tokens_left)
            tokens_left -= len(report.query.tokens or b"") // TOKEN_BYTES
            results[await self._node.report_routed(report)] += 1

        def refused() -> None:
            self._node.routed_refused()

        taken = await self._each(request, take, refused)
        answer = RoutedTaken(accepted=taken.accepted, items=taken.items, results=results)
        return self._exchange.answer(request, answer, HTTPStatus.ACCEPTED)

    async def feedback(self, request: Request) -> Response:
        """`POST /v1/feedback`."""
        caller, tokens_left = caller_of(request), self._limits.tokens
        results: dict[FeedbackResult, int] = dict.fromkeys(FEEDBACK_RESULTS, 0)

        async def take(form: BodyForm, body: bytes) -> None:
            nonlocal tokens_left
            report = feedback_report(self._requests, form, body, caller, tokens_left)
            tokens_left -= len(report.query.tokens or b"") // TOKEN_BYTES
            results[self._node.take_feedback(report)] += 1

        taken = await self._each(request, take, self._node.feedback_refused)
        joined = results["joined"]
        answer = FeedbackTaken(accepted=taken.accepted, items=taken.items, joined=joined, results=results)
        return self._exchange.answer(request, answer, HTTPStatus.ACCEPTED)

    async def _each(self, request: Request, take: Take, refused: Callable[[], None]) -> ReportsTaken:
        with self._under_way.place(sharer_of(request.scope)) as granted:
            if not granted:
                raise overload("reports.too_many_waiting", "too many reports are under way, of all or of this caller")
            form = body_form(dict(request.headers.raw).get(b"content-type"), ids_allowed=False)
            bodies, alone = reports_in(form, await self._exchange.raw_body(request))
            name, slices = self._exchange.request_id(request), Slices(SystemClock())
            problems: list[ItemProblem] = []
            for index, body in enumerate(bodies):
                try:
                    await take(form, body)
                except Exception as error:
                    refused()
                    if alone:
                        raise
                    problems.append(self._problem(error, index, f"{name}.{index}"))
                await slices.turn()
            return ReportsTaken(accepted=len(bodies) - len(problems), items=problems)

    def _problem(self, error: Exception, index: int, request_id: str) -> ItemProblem:
        refusal = counted_refusal(error, self._node.limit_reached, self._node.access_refused, request_id)
        return ItemProblem(**msgspec.structs.asdict(problem_of(refusal, request_id)), index=index)
