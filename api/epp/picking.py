"""Asks the node where a request should go, within a budget, and answers whatever happens.

    headers and body → question → (tokens of its text) → the node's answer → endpoints, best first

What cannot be known in time, or is not understood, is asked about load alone; a fault of ours is nobody.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from api.epp.conversation import Decision, Picked, Refused
from api.epp.question import is_about_load, question_of
from api.epp.ranking import Place, places
from api.problems import log_fault
from indexer.errors import IndexerError
from indexer.trace_context import asked_by
from schemas.lookup import LookupQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.epp.conversation import Wanted
    from api.epp.limits import EppLimits
    from api.ports import NodePort
    from api.rest.readying import Readying
    from api.rest.request_ids import RequestIds
    from schemas.lookup import LookupAnswer

API: Final = "epp"
NO_ENDPOINT: Final = "no_endpoint"
_OK: Final = 200
_FAULT: Final = 500

Result = Literal["prefix", "load", "nobody", "no_endpoint", "overload", "fault"]
"""What a pick came to: by what is held, by load alone, the gateway decides, refused twice, something is wrong here."""


class Pick(NamedTuple):
    """One request. `query`: the question, with its tokens, where it tells a prompt and these are still of use."""

    decision: Decision
    result: Result
    request_id: str
    places: tuple[Place, ...] = ()
    query: LookupQuery | None = None
    told_prompt: bool = False


class Picker:
    """One instance a server."""

    def __init__(self, node: NodePort, readying: Readying, request_ids: RequestIds, limits: EppLimits) -> None:
        self._node = node
        self._readying = readying
        self._request_ids = request_ids
        self._limits = limits

    async def pick(self, wanted: Wanted, sharer: str) -> Pick:
        """Where to. Raises nothing but the end of the caller's stream."""
        began = time.perf_counter()
        told = _Told(self._request_ids.of(wanted.headers.get(b"x-request-id")))
        try:
            pick = await self._picked(wanted, sharer, told)
        except Exception as error:  # noqa: BLE001 - the client's request is worth more than our fault
            log_fault(error, told.request_id, wanted.headers.get(b"traceparent"))
            pick, told.answer = Pick(Picked(), "fault", told.request_id), None
        self._observe(pick, told, wanted.headers, time.perf_counter() - began)
        return pick

    async def _picked(self, wanted: Wanted, sharer: str, told: _Told) -> Pick:
        asked = await self._ready(question_of(wanted, self._limits.tokens), sharer, told)
        by_load = is_about_load(asked)
        # What is not asked about a prompt is not to be compared with what was reused: it goes without its id.
        asked.request_id = "" if by_load else told.request_id
        found = self._places(asked, told, shuffled=by_load)
        if not found and asked.model is not None:  # nobody is of that model: the whole pool, as for no model at all
            asked = LookupQuery(tokens=b"", pods=asked.pods, tenant=asked.tenant, request_id="")
            by_load, found = True, self._places(asked, told, shuffled=True)
        if not found:
            return self._nobody(wanted, told)
        decision = Picked(tuple(place.endpoint for place in found))
        result: Result = "prefix" if found[0].score or found[0].speculative_tokens else "load"
        query = None if by_load else asked
        return Pick(decision, result, told.request_id, tuple(found), query, told_prompt=not by_load)

    async def _ready(self, asked: LookupQuery, sharer: str, told: _Told) -> LookupQuery:
        """The question with tokens, or one about load where these cannot be had in time."""
        told.form = "unknown" if is_about_load(asked) else "json" if asked.text is None else "text"
        if asked.text is None:
            return asked
        budget_ms = self._limits.pick_ms
        asked.timeout_ms = budget_ms if asked.timeout_ms is None else min(asked.timeout_ms, budget_ms)
        try:
            async with asyncio.timeout(budget_ms / 1_000):
                ready = await self._readying.ready(asked, sharer)
        except (IndexerError, TimeoutError):
            ready = None
        if ready is None or ready.overdue or not ready.tokens:
            return msgspec.structs.replace(asked, text=None, tokens=b"", timeout_ms=None)
        return ready

    def _places(self, asked: LookupQuery, told: _Told, *, shuffled: bool) -> list[Place]:
        answer = told.answer = self._node.lookup(asked, encoding="json")
        tenant = asked.tenant
        return places(answer, lambda pod: self._node.address_of(pod, tenant), self._limits.endpoints, shuffled=shuffled)

    def _nobody(self, wanted: Wanted, told: _Told) -> Pick:
        """Refused, as the protocol has it, but not by a replica that does not know the pool yet."""
        if wanted.subset is None and not self._node.readiness().ready:
            return Pick(Picked(), "nobody", told.request_id)
        return Pick(Refused(503, NO_ENDPOINT), "no_endpoint", told.request_id)

    def _observe(self, pick: Pick, told: _Told, headers: Mapping[bytes, bytes], seconds: float) -> None:
        code: int = pick.decision.status if isinstance(pick.decision, Refused) else _OK
        code = _FAULT if pick.result == "fault" else code
        state = "" if told.answer is None else told.answer.state
        self._node.observe_lookup(api=API, input=told.form, code=code, state=state, seconds=seconds)
        self._node.count_pick(pick.result)
        if self._node.tracing is not None:
            self._node.tracing.lookup(asked_by(headers, API, told.form), told.answer, code, seconds)


class _Told:
    """What is told of one pick when it is over."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.form = "unknown"
        self.answer: LookupAnswer | None = None
