"""What a question waits for before it can be answered: the tokens of its text, and events the caller knows of.

Both end at the question's deadline, after which it is answered with what is known. A question that waits has limits of
its own, so that plain ones are never refused for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from starlette.types import Receive

from api.admission import LOCAL, Shares
from api.pending import Pending
from api.ports import NodePort
from api.problems import RequestRefused
from api.rest.body import CallerGone
from api.rest.limits import RestLimits
from schemas.lookup import LookupQuery

T = TypeVar("T")

SEQUENCE_WAIT_MS: Final = 1_000
"""How long a lookup with `min_sequence` waits where it names no deadline; never longer than `SEQUENCE_WAIT_MS_MAX`."""
SEQUENCE_WAIT_MS_MAX: Final = 60_000

HASH_BYTES: Final = 40
"""Of one block hash of a waiting question: a Python int and its place in a list."""


class Readying:
    """Of all questions, whichever door they come by.

    While `stopping` is set nobody waits for events; from `hurry` on, nobody for a text either: a server that stops
    answers with what is known while it still can.
    """

    def __init__(self, node: NodePort, limits: RestLimits, stopping: asyncio.Event) -> None:
        self._node = node
        self._stopping = stopping
        self.lookups = Shares("limits.lookups_waiting", limits.lookups_waiting, reached=node.limit_reached)
        """Places of lookups by REST and picks whose body is received and read; who waits for more has left them."""
        self.pending = Pending(limits.pending_bytes, node.limit_reached)
        """Bytes of unfinished bodies and messages, whichever door they come by."""
        self._texts = Shares("limits.texts_waiting", limits.texts_waiting, reached=node.limit_reached)
        self._waits = Shares("limits.sequence_waits", limits.sequence_waits, reached=node.limit_reached)
        self._waits_bytes = Shares("limits.sequence_wait_bytes", limits.sequence_wait_bytes, reached=node.limit_reached)
        self._patiences: set[asyncio.Timeout] = set()
        self._hurried = False

    def hurry(self) -> None:
        """Who waits for a text, now or later, is answered now."""
        self._hurried = True
        for patience in self._patiences:
            patience.reschedule(asyncio.get_running_loop().time())

    @staticmethod
    def has_to_wait(query: LookupQuery) -> bool:
        """Whether there is anything to wait for."""
        return query.text is not None or bool(query.min_sequence)

    async def ready(self, query: LookupQuery, sharer: str = LOCAL) -> LookupQuery:
        """The question as it can be asked; `sharer` is to whose share its waiting counts. Raises what refuses it."""
        query = await self.tokenized(query, sharer)
        if query.min_sequence and not query.overdue:
            await self._applied(query, sharer)
        return query

    async def tokenized(self, query: LookupQuery, sharer: str = LOCAL) -> LookupQuery:
        """The question with the tokens of its text, if it has one, and with what is left of its time.

        At once where the text is known: it takes no place then.
        """
        if query.text is None:
            return query
        known = self._node.tokenized_before(query)
        if known is not None:
            return known
        with self._texts.place(sharer) as granted:
            if not granted:
                raise overload("texts.too_many", "too many texts are being tokenized, of all callers or of this one")
            return await self._tokenized_or_over(query)

    async def _tokenized_or_over(self, query: LookupQuery) -> LookupQuery:
        patience = asyncio.timeout(0 if self._hurried else None)
        self._patiences.add(patience)
        try:
            async with patience:
                return await self._node.tokenized(query)
        except TimeoutError:
            if not patience.expired():
                raise
            return msgspec.structs.replace(query, text=None, overdue=True)
        finally:
            self._patiences.discard(patience)

    async def _applied(self, query: LookupQuery, sharer: str) -> None:
        """Give the events of the question the time to arrive."""
        wait_ms = SEQUENCE_WAIT_MS if query.timeout_ms is None else min(query.timeout_ms, SEQUENCE_WAIT_MS_MAX)
        held = len(query.tokens or b"") + HASH_BYTES * len(query.block_hashes or ())
        with self._waits.place(sharer) as granted, self._waits_bytes.place(sharer, held) as fits:
            if not granted:
                detail = "too many lookups wait for a sequence, of all callers or of this one"
                raise overload("lookups.too_many_waits", detail)
            if not fits:
                detail = "lookups that wait for a sequence hold too many bytes of prompts, of all or of this caller"
                raise overload("lookups.too_many_waits", detail)
            await self._applied_or_over(query, wait_ms / 1_000)

    async def _applied_or_over(self, query: LookupQuery, wait_s: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            applied = tasks.create_task(self._node.wait_applied(query, wait_s), name="lookup-applied")
            over = tasks.create_task(self._stopping.wait(), name="lookup-over")
            ends: set[asyncio.Task[Any]] = {applied, over}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()


def in_time_left(query: LookupQuery, began: float) -> LookupQuery:
    """The question, whose time began then (`perf_counter`), with what is left of it."""
    if query.timeout_ms is not None:
        query.timeout_ms = max(0, query.timeout_ms - int((time.perf_counter() - began) * 1_000))
    return query


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises; `CallerGone` where the caller hangs up first, and the work is cancelled.

    For after the body: what is received meanwhile is dropped.
    """

    async def outcome() -> tuple[T, None] | tuple[None, Exception]:
        try:
            return await work, None
        except Exception as error:  # noqa: BLE001 - raised below, as itself and not in a group
            return None, error

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(outcome(), name="lookup-work")
        gone = tasks.create_task(_until_gone(receive), name="lookup-gone")
        ends: set[asyncio.Task[Any]] = {working, gone}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()
    if working.cancelled():
        raise CallerGone
    result, error = working.result()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only beside an error, or where T has it


async def _until_gone(receive: Receive) -> None:
    """Return when the connection is lost."""
    while (await receive())["type"] != "http.disconnect":
        pass


def overload(code: str, detail: str) -> RequestRefused:
    """429: later, perhaps."""
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, code, detail, headers=[(b"retry-after", b"1")])
