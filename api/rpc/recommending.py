"""`Recommend`: a lookup's question, asked by somebody who wants to know where to send the request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from api.access.caller import tenant_of
from api.problems import count_limit, refusal_of
from api.rest.explain import explain
from api.rest.readying import in_time_left
from api.rpc.calls import asked_in, deadline_ms
from api.rpc.questions import parsed
from schemas.recommend import RecommendOptions
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

    from api.ports import NodePort
    from api.rest.readying import Readying
    from api.rpc.calls import Calls
    from api.rpc.questions import Questions
    from api.rpc.statuses import Context
    from schemas.recommend import RecommendAnswer, RecommendedPod

API: Final = "recommend"
_OK: Final = 200


class Recommending:
    """The handler. Messages come and go as bytes."""

    def __init__(self, node: NodePort, calls: Calls, questions: Questions, readying: Readying) -> None:
        self._node = node
        self._calls = calls
        self._questions = questions
        self._readying = readying

    async def recommend(self, data: bytes, context: Context) -> bytes:
        """`Recommend`."""
        began, label, code, answer = time.perf_counter(), "unknown", _OK, None
        try:
            caller = self._calls.caller(context, "lookup")
            message = parsed(pb.RecommendRequest, data)
            options = _options(message)
            query, label = self._questions.read(message.question)
            query.tenant = tenant_of(caller, query.tenant)
            if self._readying.has_to_wait(query):
                query.timeout_ms = deadline_ms(context, query.timeout_ms)
                query = await self._readying.ready(in_time_left(query, began), self._calls.sharer(context))
            answer = self._node.recommend(options.about(query))
            return _response(answer)
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            refusal = refusal_of(error)
            code = refusal.status.value
            count_limit(refusal, self._node.limit_reached)
            await self._calls.refuse(context, error)
            return b""  # never comes to it
        finally:
            self._observe(context, label, code, answer, time.perf_counter() - began)

    def _observe(self, context: Context, label: str, code: int, answer: RecommendAnswer | None, seconds: float) -> None:
        """Count it among lookups, and trace it where that is wanted."""
        state = "" if answer is None else answer.state
        self._node.observe_lookup(api=API, input=label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_in(context, API, label), answer, code, seconds)


def _options(message: pb.RecommendRequest) -> RecommendOptions:
    """What stands beside the question, by REST's rules and in its words. Raises `BadRequestError`."""
    said: dict[str, object] = {
        name: getattr(message, name) for name in ("strategy", "session") if message.HasField(name)
    }
    if message.HasField("weights"):
        said["weights"] = _numbers(message.weights)
    if message.loads:
        said["loads"] = {pod: _numbers(load) for pod, load in message.loads.items()}
    if message.exclude:
        said["exclude"] = list(message.exclude)
    try:
        return msgspec.convert(said, RecommendOptions)
    except msgspec.ValidationError as error:
        raise explain(RecommendOptions, said, error, {}) from None


def _numbers(message: Message) -> dict[str, object]:
    return {field.name: value for field, value in message.ListFields()}


def _response(answer: RecommendAnswer) -> bytes:
    load = pb.LoadsUsed(source=answer.load.source, age_ms=answer.load.age_ms)
    decode = None if answer.decode is None else pb.DecodePicks(picks=_picks(answer.decode))
    return pb.RecommendResponse(
        request_id=answer.request_id, state=answer.state, picks=_picks(answer.picks), load=load, decode=decode
    ).SerializeToString()


def _picks(picks: Iterable[RecommendedPod]) -> list[pb.RecommendedPod]:
    return [
        pb.RecommendedPod(
            pod=each.pod,
            dp_rank=each.dp_rank,
            total=each.total,
            terms=pb.PickTerms(
                prefix=each.terms.prefix,
                load=each.terms.load,
                speculative=each.terms.speculative,
                penalty=each.terms.penalty,
            ),
        )
        for each in picks
    ]
