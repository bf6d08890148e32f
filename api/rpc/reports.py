"""`ReportRouted` and `ReportReuse`: what `POST /v1/routed` and `/v1/feedback` take, as messages. Translation only.

Rules and words are REST's. Reports are read in turns that others have on the loop between two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from api.problems import counted_refusal
from api.rest.feedback_report import feedback_report
from api.rest.receipts import FEEDBACK_RESULTS, ROUTED_RESULTS
from api.rest.routed_report import routed_report
from api.rpc.questions import parsed, prompt_of
from api.rpc.statuses import problem_of
from indexer.clock import SystemClock
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
from indexer.slices import Slices
from schemas.receipts import REPORTS_MAX
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import (
    RefusedReport,
    ReportReuseRequest,
    ReportReuseResponse,
    ReportRoutedRequest,
    ReportRoutedResponse,
    ReuseReport,
    RoutedReport,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from api.ports import NodePort
    from api.rest.lookup_request import LookupRequests
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context

    Take = Callable[[bytes], Awaitable[None]]
    """One report, as REST has its body. Raises what it is refused for."""

_SCALARS: Final = {
    kind: tuple(field.name for field in kind.DESCRIPTOR.fields if field.has_presence and field.name != "token_bytes")
    for kind in (RoutedReport, ReuseReport)
}
_pack: Final = msgspec.msgpack.Encoder().encode


class Reports:
    """Handlers."""

    def __init__(self, node: NodePort, calls: Calls, requests: LookupRequests, limits: RpcLimits) -> None:
        self._node = node
        self._calls = calls
        self._requests = requests
        self._tokens = limits.tokens

    async def report_routed(self, data: bytes, context: Context) -> bytes:
        """`ReportRouted`."""
        try:
            self._calls.hold(self._calls.others, context, "calls.too_many", "calls of such methods")
            caller, tokens_left = self._calls.caller(context, "report"), self._tokens
            answer = ReportRoutedResponse(results=dict.fromkeys(ROUTED_RESULTS, 0))

            async def take(body: bytes) -> None:
                nonlocal tokens_left
                report = routed_report(self._requests, "msgpack", body, caller, tokens_left)
                tokens_left -= len(report.query.tokens or b"") // TOKEN_BYTES
                answer.results[await self._node.report_routed(report)] += 1

            items = parsed(ReportRoutedRequest, data).items
            answer.refused.extend(await self._each(items, take, self._node.routed_refused))
            answer.accepted = len(items) - len(answer.refused)
            return answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)
            return b""  # never comes to it

    async def report_reuse(self, data: bytes, context: Context) -> bytes:
        """`ReportReuse`."""
        try:
            self._calls.hold(self._calls.others, context, "calls.too_many", "calls of such methods")
            caller, tokens_left = self._calls.caller(context, "report"), self._tokens
            answer = ReportReuseResponse(results=dict.fromkeys(FEEDBACK_RESULTS, 0))

            async def take(body: bytes) -> None:
                nonlocal tokens_left
                report = feedback_report(self._requests, "msgpack", body, caller, tokens_left)
                tokens_left -= len(report.query.tokens or b"") // TOKEN_BYTES
                answer.results[self._node.take_feedback(report)] += 1

            items = parsed(ReportReuseRequest, data).items
            answer.refused.extend(await self._each(items, take, self._node.feedback_refused))
            answer.accepted, answer.joined = len(items) - len(answer.refused), answer.results["joined"]
            return answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - as above
            await self._calls.refuse(context, error)
            return b""

    async def _each(
        self, items: Sequence[RoutedReport | ReuseReport], take: Take, refused: Callable[[], None]
    ) -> list[RefusedReport]:
        """Those that were not taken, with why. Raises `BadRequestError` where they are too many."""
        if len(items) > REPORTS_MAX:
            issue = FieldIssue("items", f"at most {REPORTS_MAX} reports", hint="send several requests")
            raise BadRequestError("reports.too_many", [issue])
        name, slices = self._calls.request_ids.of(None), Slices(SystemClock())
        problems: list[RefusedReport] = []
        for index, item in enumerate(items):
            try:
                await take(_pack(body_of(item)))
            except Exception as error:  # noqa: BLE001 - a fault of ours, too, is this report's alone
                refused()
                problems.append(self._refused(error, index, f"{name}.{index}"))
            await slices.turn()
        return problems

    def _refused(self, error: Exception, index: int, request_id: str) -> RefusedReport:
        refusal = counted_refusal(error, self._node.limit_reached, self._node.access_refused, request_id)
        return RefusedReport(index=index, problem=problem_of(refusal, request_id))


def body_of(message: RoutedReport | ReuseReport) -> dict[str, object]:
    """The message as REST has its bodies. Raises `BadRequestError`."""
    body: dict[str, object] = {
        name: getattr(message, name) for name in _SCALARS[type(message)] if message.HasField(name)
    }
    if message.pod:
        body["pod"] = message.pod
    return body | prompt_of(message)
