"""`Lookup`, `LookupStream` and `LookupBatch`: the same question, alone, one after the other, and several at once."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from api.access.caller import tenant_of
from api.admission import Shares
from api.problems import RequestRefused, count_limit, fault, refusal_of
from api.rest.readying import in_time_left
from api.rpc.answers import answer_bytes, batch_bytes, result_of_answer, result_of_problem
from api.rpc.calls import asked_in, deadline_ms
from api.rpc.questions import parsed
from api.rpc.statuses import problem_of
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupBatchRequest, LookupRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.access.caller import Caller
    from api.ports import NodePort
    from api.rest.readying import Readying
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.questions import Questions
    from api.rpc.statuses import Context
    from schemas.lookup import LookupAnswer, LookupQuery

TEXTS_AT_ONCE: Final = 16
"""Of one batch: other callers' texts have their turn between."""

_OK: Final = 200


class _Question:
    """One on its way: to be asked, or refused."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.started = time.perf_counter()
        self.label = "unknown"
        self.query: LookupQuery | None = None
        self.refusal: RequestRefused | None = None

    def refuse(self, error: Exception) -> None:
        self.query, self.refusal = None, refusal_of(error)

    def asked(self) -> LookupQuery:
        """Raises what it was refused for."""
        if self.query is None:
            raise self.refusal or fault()
        return self.query


class Lookups:
    """Handlers. Messages come and go as bytes."""

    def __init__(
        self,
        node: NodePort,
        calls: Calls,
        questions: Questions,
        readying: Readying,
        limits: RpcLimits,
        stopping: asyncio.Event,
    ) -> None:
        self._node = node
        self._calls = calls
        self._questions = questions
        self._readying = readying
        self._limits = limits
        self._stopping = stopping
        self._batches = Shares("rpc.batches_waiting", limits.batches_waiting, reached=node.limit_reached)
        self._streams = Shares("rpc.streams", limits.streams, reached=node.limit_reached)
        self._idle: set[asyncio.Timeout] = set()

    async def lookup(self, data: bytes, context: Context) -> bytes:
        """`Lookup`."""
        try:
            question = self._read(data, self._calls.caller(context, "lookup"), context)
            await self._ready(question, context)
            return self._answer(question)
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)
            return b""  # never comes to it

    async def lookup_batch(self, data: bytes, context: Context) -> bytes:
        """`LookupBatch`."""
        try:
            self._calls.hold(self._batches, context, "batches.too_many", "batches at once")
            caller = self._calls.caller(context, "lookup")
            questions, tokens_left = [], self._limits.tokens
            for item in self._items(data):
                questions.append(question := self._read(item, caller, context))
                tokens_left -= self._taken(question, tokens_left)
                await asyncio.sleep(0)
            results = {}
            waiting = [i for i, question in enumerate(questions) if self._waits(question)]
            for i in sorted(set(range(len(questions))) - set(waiting)):
                results[i] = self._result_by_itself(questions[i])
                await asyncio.sleep(0)
            await self._all_ready([questions[i] for i in waiting], context)
            for i in waiting:
                if questions[i].label == "text":
                    tokens_left -= self._taken(questions[i], tokens_left)
                results[i] = self._result_by_itself(questions[i])
                await asyncio.sleep(0)
            return batch_bytes(results[i] for i in range(len(questions)))
        except Exception as error:  # noqa: BLE001 - as above
            await self._calls.refuse(context, error)
            return b""

    def _items(self, data: bytes) -> Sequence[LookupRequest]:
        items = parsed(LookupBatchRequest, data).items
        if len(items) > self._limits.batch:
            self._node.limit_reached("limits.batch")
            issue = FieldIssue("items", f"at most {self._limits.batch} (limits.batch)", str(len(items)))
            raise BadRequestError("batch.too_many", [issue])
        return items

    def _taken(self, question: _Question, tokens_left: int) -> int:
        """How many tokens it takes of those that are left; one that takes more is refused and takes none."""
        if question.query is None:
            return 0
        tokens = len(question.query.tokens or b"") // TOKEN_BYTES
        if tokens <= tokens_left:
            return tokens
        self._node.limit_reached("limits.tokens")
        rule = f"at most {self._limits.tokens} tokens in all prompts of a batch together (limits.tokens)"
        question.refuse(BadRequestError("batch.too_many_tokens", [FieldIssue("token_ids", rule)]))
        return 0

    async def _all_ready(self, questions: Sequence[_Question], context: Context) -> None:
        """What they wait for, all at once: each has its own time, and the batch no more than the longest of them."""
        texts, began, sharer = asyncio.Semaphore(TEXTS_AT_ONCE), time.perf_counter(), self._calls.sharer(context)

        async def ready(question: _Question, query: LookupQuery) -> None:
            try:
                query.timeout_ms = deadline_ms(context, query.timeout_ms)
                if query.text is not None:
                    async with texts:
                        query = await self._readying.tokenized(in_time_left(query, began), sharer)
                question.query = await self._readying.ready(query, sharer)
            except Exception as error:  # noqa: BLE001 - as above
                question.refuse(error)

        async with asyncio.TaskGroup() as tasks:
            for question in questions:
                if question.query is not None:
                    tasks.create_task(ready(question, question.query), name="rpc-batch-item")

    async def lookup_stream(self, _requests: object, context: Context) -> None:
        """`LookupStream`: the next question is read when the answer before it is on its way."""
        try:
            with self._calls.place(self._streams, context, "streams.too_many", "lookup streams"):
                self._calls.caller(context, "lookup")
                async with asyncio.timeout(self._limits.stream_idle_s) as patience:
                    await context.send_initial_metadata(())  # else a write that is given up leaves no way to say why
                    while (data := await self._next(context, patience)) is not None:
                        with self._calls.counted():
                            caller = self._calls.caller(context, "lookup")  # anew: tokens are taken away
                            question = self._read(data, caller, context)
                            await self._ready(question, context)
                            await context.write(self._result(question))
        except TimeoutError:
            await self._calls.refuse(context, self._ended())
        except Exception as error:  # noqa: BLE001 - as above
            await self._calls.refuse(context, error)

    def end_idle_streams(self) -> None:
        """The server stops: streams on which nothing is asked end now, the others behind their answer."""
        now = asyncio.get_running_loop().time()
        for patience in self._idle:
            patience.reschedule(now)

    async def _next(self, context: Context, patience: asyncio.Timeout) -> bytes | None:
        """The next question; None: the caller has no more. Raises `TimeoutError`, `RequestRefused` at the stop."""
        if self._stopping.is_set():
            raise self._ended()
        patience.reschedule(asyncio.get_running_loop().time() + self._limits.stream_idle_s)
        self._idle.add(patience)
        try:
            data = cast("object", await context.read())  # or the mark of the end, which the stubs do not know
        finally:
            self._idle.discard(patience)
        return data if isinstance(data, bytes) else None

    def _ended(self) -> RequestRefused:
        if self._stopping.is_set():
            return RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "server.stopping", "this replica stops; ask another")
        self._node.limit_reached("rpc.stream_idle_s")
        detail = f"nothing was asked, or no answer read, for {self._limits.stream_idle_s:g} s"
        return RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "stream.idle", detail)

    def _read(self, asked: bytes | LookupRequest, caller: Caller, context: Context) -> _Question:
        """The question in a message."""
        question = _Question(context)
        try:
            message = parsed(LookupRequest, asked) if isinstance(asked, bytes) else asked
            query, question.label = self._questions.read(message)
            query.tenant = tenant_of(caller, query.tenant)
            question.query = query
        except Exception as error:  # noqa: BLE001 - as above
            question.refuse(error)
        return question

    def _waits(self, question: _Question) -> bool:
        return question.query is not None and self._readying.has_to_wait(question.query)

    async def _ready(self, question: _Question, context: Context) -> None:
        """Wait for what one question alone waits for."""
        query = question.query
        if query is None or not self._readying.has_to_wait(query):
            return
        try:
            query.timeout_ms = deadline_ms(context, query.timeout_ms)
            question.query = await self._readying.ready(query, self._calls.sharer(context))
        except Exception as error:  # noqa: BLE001 - as above
            question.refuse(error)

    def _result(self, question: _Question) -> bytes:
        """An answer, or why there is none."""
        try:
            return result_of_answer(self._answer(question))
        except RequestRefused as refusal:
            self._calls.count_denial(refusal)
            return result_of_problem(problem_of(refusal, self._calls.request_ids.of(None)))

    def _result_by_itself(self, question: _Question) -> bytes:
        """The same of one of a batch: what the others took is not its time."""
        question.started = time.perf_counter()
        return self._result(question)

    def _answer(self, question: _Question) -> bytes:
        """One answer, counted. Raises `RequestRefused`."""
        started = question.started
        try:
            answer = self._node.lookup(question.asked(), encoding="proto")
            answer.took_us = int((time.perf_counter() - started) * 1e6)
            content = answer_bytes(answer)
        except Exception as error:  # noqa: BLE001 - as above
            refusal = refusal_of(error, None if question.query is None else question.query.request_id)
            count_limit(refusal, self._node.limit_reached)
            self._observe(question, refusal.status.value, None)
            raise refusal from None
        finally:
            question.query = None
        self._observe(question, _OK, answer)
        return content

    def _observe(self, question: _Question, code: int, answer: LookupAnswer | None) -> None:
        seconds, state = time.perf_counter() - question.started, "" if answer is None else answer.state
        self._node.observe_lookup(api="grpc", input=question.label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_in(question.context, "grpc", question.label), answer, code, seconds)
