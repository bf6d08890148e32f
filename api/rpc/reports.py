"""`ReportRouted`: what `POST /v1/routed` takes, as messages. Translation only: each is read as REST reads its own.

Reports are read in turns that others have on the loop between two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from api.problems import count_limit, refusal_of
from api.rest.receipts import REFUSED, ROUTED_RESULTS
from api.rest.routed_report import routed_report
from api.rpc.questions import image_of, parsed
from api.rpc.statuses import problem_of
from indexer.clock import SystemClock
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
from indexer.slices import Slices
from schemas.receipts import REPORTS_MAX
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import (
    RefusedReport,
    ReportRoutedRequest,
    ReportRoutedResponse,
    ReuseReport,
    RoutedReport,
)

if TYPE_CHECKING:
    from api.access.caller import Caller
    from api.ports import NodePort
    from api.rest.lookup_request import LookupRequests
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context

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
            caller = self._calls.caller(context, "report")
            return (await self._routed(parsed(ReportRoutedRequest, data), caller)).SerializeToString()
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)
            return b""  # never comes to it

    async def _routed(self, message: ReportRoutedRequest, caller: Caller) -> ReportRoutedResponse:
        if len(message.items) > REPORTS_MAX:
            issue = FieldIssue("items", f"at most {REPORTS_MAX} reports", hint="send several requests")
            raise BadRequestError("reports.too_many", [issue])
        slices, answer, tokens_left = Slices(SystemClock()), ReportRoutedResponse(), self._tokens
        answer.results.update(dict.fromkeys(ROUTED_RESULTS, 0))
        name = self._calls.request_ids.of(None)
        for index, item in enumerate(message.items):
            try:
                report = routed_report(self._requests, "msgpack", _pack(body_of(item)), caller, tokens_left)
                tokens_left -= len(report.query.tokens or b"") // TOKEN_BYTES
                answer.results[await self._node.report_routed(report)] += 1
                answer.accepted += 1
            except Exception as error:  # noqa: BLE001 - a fault of ours, too, is this report's alone
                answer.refused.append(self._refused(index, error, f"{name}.{index}"))
            await slices.turn()
        return answer

    def _refused(self, index: int, error: Exception, request_id: str) -> RefusedReport:
        refusal = refusal_of(error)
        count_limit(refusal, self._node.limit_reached)
        self._calls.count_denial(refusal)
        self._node.count_routed(REFUSED)
        return RefusedReport(index=index, problem=problem_of(refusal, request_id))


def body_of(message: RoutedReport | ReuseReport) -> dict[str, object]:
    """The message as REST has its bodies. Raises `BadRequestError`."""
    body: dict[str, object] = {
        name: getattr(message, name) for name in _SCALARS[type(message)] if message.HasField(name)
    }
    if message.pod:
        body["pod"] = message.pod
    if items := message.mm_items:
        body["mm_items"] = [{"hash": item.hash, "offset": item.offset, "length": item.length} for item in items]
    if message.block_hashes:
        body["block_hashes"] = list(message.block_hashes)
    if message.token_ids and message.HasField("token_bytes"):
        issue = FieldIssue("token_ids", "exactly one of token_ids, token_bytes", "both")
        raise BadRequestError("prompt.exactly_one", [issue])
    image = image_of(message)[1]
    if image is not None:
        body["token_ids"] = image
    return body
