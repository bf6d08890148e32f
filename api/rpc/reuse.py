"""`ReportReuse`: what `POST /v1/feedback` takes, several at once. Translation only; rules and words are REST's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from api.problems import count_limit, refusal_of
from api.rest.feedback_report import feedback_report
from api.rest.receipts import FEEDBACK_RESULTS
from api.rpc.questions import parsed
from api.rpc.reports import body_of
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
    ReuseReport,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.access.caller import Caller
    from api.ports import NodePort
    from api.rest.lookup_request import LookupRequests
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context
    from schemas.feedback import FeedbackReport

_pack: Final = msgspec.msgpack.Encoder().encode


class ReuseReports:
    """Handler."""

    def __init__(self, node: NodePort, calls: Calls, requests: LookupRequests, limits: RpcLimits) -> None:
        self._node = node
        self._calls = calls
        self._requests = requests
        self._tokens = limits.tokens

    async def report_reuse(self, data: bytes, context: Context) -> bytes:
        """`ReportReuse`."""
        try:
            self._calls.hold(self._calls.others, context, "calls.too_many", "calls of such methods")
            caller = self._calls.caller(context, "report")
            items = _items(data)
            answer, tokens_left, slices = ReportReuseResponse(), self._tokens, Slices(SystemClock())
            answer.results.update(dict.fromkeys(FEEDBACK_RESULTS, 0))
            for index, item in enumerate(items):
                tokens_left -= self._take(item, index, caller, tokens_left, answer)
                await slices.turn()
            return answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)
            return b""  # never comes to it

    def _take(
        self, item: ReuseReport, index: int, caller: Caller, tokens_left: int, answer: ReportReuseResponse
    ) -> int:
        """Take one, or note why not; how many tokens it has of those that are left."""
        try:
            report = self._read(item, caller, tokens_left)
            answer.results[self._node.take_feedback(report)] += 1
            answer.joined = answer.results["joined"]
            answer.accepted += 1
        except Exception as error:  # noqa: BLE001 - it is this one's alone
            refusal = refusal_of(error)
            count_limit(refusal, self._node.limit_reached)
            self._calls.count_denial(refusal)
            self._node.feedback_refused()
            problem = problem_of(refusal, self._calls.request_ids.of(None))
            answer.refused.append(RefusedReport(index=index, problem=problem))
            return 0
        return len(report.query.tokens or b"") // TOKEN_BYTES

    def _read(self, item: ReuseReport, caller: Caller, tokens_left: int) -> FeedbackReport:
        return feedback_report(self._requests, "msgpack", _pack(body_of(item)), caller, tokens_left)


def _items(data: bytes) -> Sequence[ReuseReport]:
    items = parsed(ReportReuseRequest, data).items
    if len(items) > REPORTS_MAX:
        raise BadRequestError("reports.too_many", [FieldIssue("items", f"at most {REPORTS_MAX} reports")])
    return items
