"""`indexer.v1.IndexerService/GetPodScores`: what llm-d's routers ask, with their numbers.

A score there is a count: blocks held from the start, each by the weight of its best tier. Pods that hold nothing are
absent, and a model that nobody serves has no scores.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from api.problems import refusal_of
from api.rpc.answers import answer_bytes
from api.rpc.calls import asked_in, deadline_ms
from api.rpc.questions import parsed
from indexer.errors import BadRequestError, FieldIssue
from schemas.lookup import LookupQuery, TextPrompt
from schemas.rest import TEXT_MAX
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest, GetPodScoresResponse, PodScore
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupResponse

if TYPE_CHECKING:
    from api.ports import NodePort
    from api.rest.readying import Readying
    from api.rpc.calls import Calls
    from api.rpc.statuses import Context
    from schemas.lookup import LookupAnswer

PODS_MAX: Final = 4_096


class PodScores:
    """Handler."""

    def __init__(self, node: NodePort, calls: Calls, readying: Readying) -> None:
        self._node = node
        self._readying = readying
        self._calls = calls

    async def get_pod_scores(self, data: bytes, context: Context) -> bytes:
        """`GetPodScores`."""
        started = time.perf_counter()
        try:
            answer = await self._answer(parsed(GetPodScoresRequest, data), context)
            self._observe(200, answer, started, context)
            return _scores(LookupResponse.FromString(answer_bytes(answer))).SerializeToString()
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            refusal = refusal_of(error)
            self._observe(refusal.status.value, None, started, context)
            await self._calls.refuse(context, refusal)
            return b""  # never comes to it

    async def _answer(self, asked: GetPodScoresRequest, context: Context) -> LookupAnswer:
        """Our own answer to the same question."""
        pods = tuple(asked.pod_identifiers) or None
        _check(asked)
        query = LookupQuery(
            text=TextPrompt(prompt=asked.prompt),
            model=asked.model_name or None,
            pods=pods,
            request_id=self._calls.request_ids.of(None),
            timeout_ms=deadline_ms(context, None),
        )
        query = await self._readying.tokenized(query, self._calls.sharer(context))
        return self._node.lookup(query, encoding="proto")

    def _observe(self, code: int, answer: LookupAnswer | None, started: float, context: Context) -> None:
        seconds, state = time.perf_counter() - started, "" if answer is None else answer.state
        self._node.observe_lookup(api="llm-d", input="text", code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_in(context, "llm-d", "text"), answer, code, seconds)


def _check(asked: GetPodScoresRequest) -> None:
    if not asked.prompt:
        raise BadRequestError("prompt.missing", [FieldIssue("prompt", "required: a text")])
    if len(asked.model_name) > TEXT_MAX:
        raise BadRequestError("model_name.not_allowed", [FieldIssue("model_name", f"at most {TEXT_MAX} characters")])
    if len(asked.pod_identifiers) > PODS_MAX:
        issue = FieldIssue("pod_identifiers", f"at most {PODS_MAX}", str(len(asked.pod_identifiers)))
        raise BadRequestError("pod_identifiers.too_many", [issue])


def _scores(answer: LookupResponse) -> GetPodScoresResponse:
    return GetPodScoresResponse(
        scores=[
            PodScore(
                pod=entry.pod,
                score=entry.score * answer.prompt_tokens / entry.block_size,
                data_parallel_rank=entry.dp_rank,
            )
            for entry in answer.pods
            if entry.score and entry.block_size
        ]
    )
