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
from api.epp.heard import SUBSET_MAX
from api.epp.question import is_about_load, question_of
from api.epp.ranking import Ranked, has_no_place, last_resort, ranked
from api.problems import log_fault
from indexer.errors import IndexerError
from indexer.trace_context import asked_by
from schemas.lookup import LookupQuery
from schemas.recommend import RecommendQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.epp.conversation import Wanted
    from api.epp.limits import EppLimits
    from api.ports import NodePort
    from api.rest.readying import Readying
    from api.rest.request_ids import RequestIds
    from schemas.lookup import LookupAnswer
    from schemas.recommend import RecommendAnswer

API: Final = "epp"
NO_ENDPOINT: Final = "no_endpoint"
OVERLOAD: Final = "overload"
SUBSET_LIMIT: Final = "epp.subset"
RETRY_AFTER_S: Final = 1
WITHOUT_ADDRESS_TIMES: Final = 4
"""As many pods are asked for as endpoints are told: some may have none."""
_OK: Final = 200
_FAULT: Final = 500

Result = Literal["prefix", "load", "nobody", "no_endpoint", "overload", "fault"]
"""What a pick came to: by what is held, by load alone, the gateway decides, refused twice, something is wrong here."""


class Pick(NamedTuple):
    """One request. `query`: the question, with its tokens, where it tells a prompt and these are still of use."""

    decision: Decision
    result: Result
    request_id: str
    ranked: Ranked = Ranked()
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
        asked.request_id = told.request_id
        self._keep_known(asked)
        by_load = asked.overdue
        found = self._recommended(asked, told)
        if not found.places and asked.model is not None:  # nobody is of that model: the whole pool, as for none at all
            if not self._node.follows_all(asked.tenant):  # it may be of a model that is followed elsewhere
                return Pick(Picked(), "nobody", told.request_id)
            asked = msgspec.structs.replace(_without_prompt(asked), model=None, lora_name=None)
            by_load, found = True, self._recommended(asked, told)
        if not found.places:
            found = self._last_resort(asked)
        if not found.places:
            return self._nobody(wanted, asked, told)
        if self._is_too_busy(asked, told):
            return Pick(Refused(429, OVERLOAD, RETRY_AFTER_S), "overload", told.request_id)
        decision = Picked(tuple(place.endpoint for place in found.places), found.prefill and found.prefill.endpoint)
        first = found.prefill or found.places[0]
        self._node.note_sent(first.pod, first.dp_rank, told.request_id, asked.tenant)
        result: Result = "prefix" if found.by_prefix and not by_load else "load"
        return Pick(decision, result, told.request_id, found, None if by_load else asked, told_prompt=not by_load)

    def _keep_known(self, asked: LookupQuery) -> None:
        """Of the subset that a gateway gives those who are of the pool."""
        if asked.pods is not None:
            if len(asked.pods) >= SUBSET_MAX:
                self._node.limit_reached(SUBSET_LIMIT)
            asked.pods = self._node.known_names(asked.pods, asked.tenant)

    async def _ready(self, asked: LookupQuery, sharer: str, told: _Told) -> LookupQuery:
        """The question with tokens, or one about load where these cannot be had in time."""
        if is_about_load(asked):
            return _without_prompt(asked)
        told.form = "json" if asked.text is None else "text"
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
            return _without_prompt(asked)
        return ready

    def _recommended(self, asked: LookupQuery, told: _Told) -> Ranked:
        asked.group, asked.limit = "pod", WITHOUT_ADDRESS_TIMES * self._limits.endpoints
        answer = self._node.recommend(RecommendQuery(query=asked))
        told.answer = answer
        return ranked(answer, self._address_of(asked), self._limits.endpoints)

    def _is_too_busy(self, asked: LookupQuery, told: _Told) -> bool:
        """Whether even the least busy has more than may be, as far as that is known."""
        above = self._limits.shed_above
        if above is None or told.answer is None or told.answer.load.source == "none":
            return False
        by_load = RecommendQuery(query=msgspec.structs.replace(_without_prompt(asked), limit=1), strategy="load")
        least = self._node.recommend(by_load).picks[:1]
        loads = [self._node.requests_at(pick.pod, pick.dp_rank, asked.tenant) for pick in least]
        return any(load is not None and load > above for load in loads)

    def _last_resort(self, asked: LookupQuery) -> Ranked:
        return last_resort(self._all(asked), self._address_of(asked), self._limits.endpoints)

    def _all(self, asked: LookupQuery) -> LookupAnswer:
        """Whoever is there of those that are asked about, recommended or not."""
        asked = msgspec.structs.replace(_without_prompt(asked), request_id="", limit=0)
        return self._node.lookup(asked, encoding="json")

    def _address_of(self, asked: LookupQuery) -> Callable[[str], str | None]:
        return lambda pod: self._node.address_of(pod, asked.tenant)

    def _nobody(self, wanted: Wanted, asked: LookupQuery, told: _Told) -> Pick:
        """Refused, as the protocol has it, but not by a replica that does not know the pool, or not all, or not yet."""
        if wanted.subset != () and not self._knows_the_pool(asked):
            return Pick(Picked(), "nobody", told.request_id)
        return Pick(Refused(503, NO_ENDPOINT), "no_endpoint", told.request_id)

    def _knows_the_pool(self, asked: LookupQuery) -> bool:
        everybody = msgspec.structs.replace(asked, pods=None)
        return self._node.knows_pool(None) and not has_no_place(self._all(everybody), self._address_of(asked))

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
        self.answer: RecommendAnswer | None = None


def _without_prompt(asked: LookupQuery) -> LookupQuery:
    """The same question about load alone."""
    return msgspec.structs.replace(asked, text=None, tokens=b"", start=(), whole=None, timeout_ms=None, overdue=True)
