"""`POST /v1/lookup/batch`: several questions in one request, each answered or refused by itself.

    body → items → questions → what they wait for, all at once → answers, in slices

Work is bounded as that of one question is: by the body, by the tokens of all prompts together, and by turns that others
have on the loop between two items. An item whose deadline passes meanwhile is answered so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import Caller, tenant_of
from api.admission import Shares
from api.ports import Encoding, NodePort
from api.problems import counted_refusal, fault, problem_of
from api.rest.batch_body import BatchBodies
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.header_options import add_header_options
from api.rest.limits import RestLimits
from api.rest.lookup_request import TOKEN_BYTES, LookupRequests
from api.rest.media import ANSWER_TYPES, BodyForm, answer_encoding, body_form
from api.rest.readying import Readying, in_time_left, overload, while_there
from indexer.clock import SystemClock
from indexer.errors import BadRequestError, FieldIssue
from indexer.hashing.memo import CHUNK_TOKENS
from indexer.slices import SLICE_S, Slices
from indexer.trace_context import asked_by
from schemas.lookup import LookupAnswer, LookupQuery
from schemas.rest import Problem

TEXTS_AT_ONCE: Final = 16
"""Of one batch: other callers' texts have their turn between."""

_ENCODE: Final[dict[Encoding, Callable[[object], bytes]]] = {
    "json": msgspec.json.Encoder().encode,
    "msgpack": msgspec.msgpack.Encoder().encode,
}


class _Item:
    """One question on its way: to be asked, or refused."""

    __slots__ = ("label", "query", "refusal", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.label = "unknown"
        self.query: LookupQuery | None = None
        self.refusal: Exception | None = None

    def refuse(self, error: Exception) -> None:
        """It is answered with that."""
        self.query, self.refusal = None, error


class BatchRoute:
    """The handler."""

    def __init__(
        self, node: NodePort, exchange: Exchange, requests: LookupRequests, limits: RestLimits, readying: Readying
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._requests = requests
        self._readying = readying
        self._limits = limits
        self._bodies = BatchBodies(limits.batch)
        self._waiting = Shares("rest.batches_waiting", limits.batches_waiting, reached=node.limit_reached)

    async def batch(self, request: Request) -> Response:
        """`POST /v1/lookup/batch`."""
        with self._waiting.place(sharer_of(request.scope)) as granted:
            if not granted:
                raise overload("batch.too_many_waiting", "too many batches are under way, of all or of this caller")
            return await self._answered(request)

    async def _answered(self, request: Request) -> Response:
        headers = dict(request.headers.raw)
        form = body_form(headers.get(b"content-type"), ids_allowed=False)
        encoding = answer_encoding(headers.get(b"accept"), form)
        add_header_options(LookupQuery(), headers)  # what is wrong there is wrong with the batch, not with each item
        bodies = self._bodies.items(form, await self._exchange.raw_body(request))
        began, slices = time.perf_counter(), Slices(SystemClock())
        name = self._exchange.request_id(request)
        items = [_Item(f"{name}.{i}") for i in range(len(bodies))]
        caller, tokens_left = caller_of(request), self._limits.tokens
        for item, body in zip(items, bodies, strict=True):
            self._read(item, form, body, headers, caller)
            tokens_left -= self._taken(item, tokens_left)
            await slices.turn()
        answers: dict[int, msgspec.Raw] = {}
        waiting = [
            i for i, item in enumerate(items) if item.query is not None and self._readying.has_to_wait(item.query)
        ]
        for i in sorted(set(range(len(items))) - set(waiting)):
            answers[i] = self._answer(items[i], encoding, began, headers)
            await slices.turn()
        if waiting:
            await while_there(request.receive, self._all_ready([items[i] for i in waiting], sharer_of(request.scope)))
        for i in waiting:
            tokens_left -= self._taken(items[i], tokens_left) if items[i].label == "text" else 0
            answers[i] = self._answer(items[i], encoding, None, headers)
            await slices.turn()
        content = _ENCODE[encoding]({"items": [answers[i] for i in range(len(items))]})
        return Response(content, HTTPStatus.OK, media_type=ANSWER_TYPES[encoding].decode())

    def _read(self, item: _Item, form: BodyForm, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> None:
        try:
            query, item.label = self._requests.parse(form, body, b"", headers)
            query.tenant = tenant_of(caller, query.tenant)
        except Exception as error:  # noqa: BLE001 - a fault of ours, too, is this item's alone
            item.refuse(error)
            return
        item.request_id = query.request_id = query.request_id or item.request_id
        item.query = query

    def _taken(self, item: _Item, tokens_left: int) -> int:
        """How many tokens the item takes of those that are left; one that takes more is refused and takes none."""
        if item.query is None:
            return 0
        tokens = len(item.query.tokens or b"") // TOKEN_BYTES + len(item.query.start) * CHUNK_TOKENS
        if tokens <= tokens_left:
            return tokens
        self._node.limit_reached("limits.tokens")
        rule = f"at most {self._limits.tokens} tokens in all prompts of a batch together (limits.tokens)"
        item.refuse(BadRequestError("batch.too_many_tokens", [FieldIssue("token_ids", rule)]))
        return 0

    async def _all_ready(self, items: list[_Item], sharer: str) -> None:
        texts, began = asyncio.Semaphore(TEXTS_AT_ONCE), time.perf_counter()

        async def ready(item: _Item, query: LookupQuery) -> None:
            try:
                if query.text is not None:
                    async with texts:
                        query = await self._readying.tokenized(in_time_left(query, began), sharer)
                item.query = await self._readying.ready(query, sharer)
            except Exception as error:  # noqa: BLE001 - as in reading
                item.refuse(error)

        async with asyncio.TaskGroup() as tasks:
            for item in items:
                if item.query is not None:
                    tasks.create_task(ready(item, item.query), name="batch-item")

    def _answer(
        self, item: _Item, encoding: Encoding, began: float | None, headers: Mapping[bytes, bytes]
    ) -> msgspec.Raw:
        """The item's answer or problem, encoded. `began`: of the batch, for an item that has not waited by itself."""
        started, code, state = time.perf_counter(), HTTPStatus.OK.value, ""
        answer: LookupAnswer | None = None
        out: LookupAnswer | Problem
        try:
            out = answer = self._node.lookup(_asked(item, 0.0 if began is None else started - began), encoding=encoding)
            out.took_us = int((time.perf_counter() - started) * 1e6)
            state = out.state
        except Exception as error:  # noqa: BLE001 - as in reading
            reached, denied = self._node.limit_reached, self._node.access_refused
            refusal = counted_refusal(error, reached, denied, item.request_id, headers.get(b"traceparent"))
            out = problem_of(refusal, item.request_id)
            code = out.status
        encoded = msgspec.Raw(_ENCODE[encoding](out))
        seconds = time.perf_counter() - started
        self._node.observe_lookup(api="batch", input=item.label, code=code, state=state, seconds=seconds)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_by(headers, "batch", item.label), answer, code, seconds)
        item.query = None
        return encoded


def _asked(item: _Item, spent_s: float) -> LookupQuery:
    """The item's question; without its prompt where its deadline has passed. Raises what refuses it.

    What fits into the first slice of work is done under any deadline.
    """
    query = item.query
    if query is None:
        raise item.refusal or fault()
    if query.timeout_ms is not None and spent_s > max(query.timeout_ms / 1_000, SLICE_S):
        return msgspec.structs.replace(query, tokens=b"", block_hashes=None, start=(), overdue=True)
    return query
