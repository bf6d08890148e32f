"""Story 5: a request is about to be sent, and somebody asks where.

What the lookup knows of the prompt, what is known of loads, and the roles of engines come together here; what follows
from them is ranking.py's to say. Answers from memory; no I/O; time comes from the Clock.

    question → who may be sent it → what each holds → how busy each is → ranked, for prefill and decode alike or apart
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from indexer.candidates import of_tenant
from indexer.loads.nothing import NothingKnown
from indexer.model import DEFAULT_TENANT, SourceId
from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from indexer.recommend.hot import HotPrefixes
from indexer.recommend.named import Names
from indexer.recommend.ranking import FULL_FROM, Columns, Sums, sums
from schemas.recommend import DetailedPod, LoadsUsed, PickTerms, RecommendAnswer, RecommendedPod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from indexer.index.registry import Registry
    from indexer.loads.known import Loads, LoadView
    from indexer.lookup import Lookup, Weighed
    from indexer.ports import Clock
    from schemas.lookup import LookupQuery
    from schemas.recommend import GivenWeights, RecommendQuery, Strategy

NON_CACHED_TOKENS: Final = 512
NAN: Final = float("nan")


class Ways(NamedTuple):
    """How to rank where a question does not say. `non_cached_tokens`: see `Recommender`."""

    strategy: Strategy = "blend"
    weights: BlendWeights = BLEND
    floor: float = LOAD_FLOOR
    non_cached_tokens: int = NON_CACHED_TOKENS


DEFAULTS: Final = Ways()


class _Ranked(NamedTuple):
    """Places of candidates, best first, and what each of them is worth, in that order."""

    places: list[int]
    sums: Sums


class _Field:
    """Who may be sent one request, and all that is known of them.

    By place: the listed sources in their order, then the names in the question that nobody registered.
    """

    def __init__(self, weighed: Weighed, loads: LoadView, weights: BlendWeights, asked: RecommendQuery) -> None:
        self.weighed = weighed
        self.weights = weights
        self.spreads = False
        """Whether it is counted who was recommended: nothing else is known of loads."""
        self.loads_count = False
        self.crowded: frozenset[SourceId] = frozenset()
        self._tenant = asked.query.tenant or DEFAULT_TENANT
        session = asked.session
        self._session = None if session is None else xxh3_64_intdigest(session.encode("utf-8", "surrogatepass"))
        candidates, prompt, standing = weighed.scene.candidates, weighed.prompt, weighed.scene.standing
        unknown = candidates.unknown_names
        self.ids = (*standing.ids, *(SourceId(name, 0) for name in unknown)) if unknown else standing.ids
        self.names = (*standing.names, *unknown) if unknown else standing.names
        self.held = {candidates.by_slot[slot]: match for slot, match in prompt.matches.items()}
        expected: dict[int, float] = {}
        for slot, (blocks, _) in prompt.expected.items():
            index = candidates.by_slot[slot]
            size = candidates.listed[index].source.asking_size or 1
            expected[index] = blocks * size / prompt.tokens if prompt.tokens else 0.0
        self._known = Columns(
            score=self._spread(weighed.scores),
            expected=self._spread(expected) if expected else None,
            requests=self._told(loads.requests, 0.0 if loads.source == "receipts" else NAN) if loads.requests else None,
            kv_usage=self._told(loads.kv_usage, NAN) if max(loads.kv_usage.values(), default=0) > FULL_FROM else None,
            silent=self._spread(dict.fromkeys(standing.stale, 1.0)) > 0 if standing.stale else None,
        )

    def _spread(self, by_place: Mapping[int, float]) -> NDArray[np.float64]:
        column = np.zeros(len(self.ids))
        if by_place:
            column[list(by_place)] = list(by_place.values())
        return column

    def _told(self, by_source: Mapping[SourceId, float], otherwise: float) -> NDArray[np.float64]:
        get = by_source.get
        return np.array([get(source, otherwise) for source in self.ids], np.float64)

    def ranked(self, places: Sequence[int], floor: float) -> _Ranked:
        """These, best first."""
        turns = np.array(self._turns(places), np.intp)
        known = self._known.at(turns)
        if self.crowded:
            crowded = np.array([self.ids[place] in self.crowded for place in turns.tolist()], np.bool_)
            known = known._replace(crowded=crowded)
        found = sums(known, self.weights, floor)
        order = np.argsort(-found.total, kind="stable")
        return _Ranked(turns[order].tolist(), Sums(*(column[order] for column in found)))

    def deciding_prefix(self, places: Sequence[int]) -> tuple[str, str | None, int]:
        """What is matched of the prompt by whoever holds most; where nobody holds any, its beginning.

        With whose it is, tenant and model.
        """
        scores = self.weighed.scores
        best = max((place for place in places if place in self.held), key=lambda place: scores[place], default=None)
        decides = self.weighed.prompt.seed if best is None else self.held[best].last_hash
        return self._tenant, self.weighed.scene.candidates.resolved.model, decides

    def matched(self, place: int) -> int:
        """Tokens of the prompt that it holds."""
        match = self.held.get(place)
        if match is None:
            return 0
        return match.held.matched * (self.weighed.scene.candidates.listed[place].source.asking_size or 1)

    def details(self, place: int) -> tuple[float, int, str]:
        """Its score, what it holds and its state; nothing was heard yet of whom nobody registered."""
        prepared = self.weighed.scene.prepared
        state = prepared[place].state if place < len(prepared) else "new"
        return self.weighed.scores.get(place, 0.0), self.matched(place), state

    def _turns(self, places: Sequence[int]) -> list[int]:
        """The same in the order of those whose totals are equal: by the session, else by the prompt.

        Where loads count that is the block where it parts from what went before: by what they have in common all
        prompts that begin alike would prefer the same idle pod (decisions/0039). Where none do, as a lookup lists them.
        """
        if self._session is not None:
            session = self._session
            return sorted(places, key=lambda place: -xxh3_64_intdigest(self._rendezvous_name(place), session))
        held, prompt, candidates = self.held, self.weighed.prompt, self.weighed.scene.candidates
        there, holding, seed = set(places), list[int](), prompt.seed
        if self.loads_count:
            seed = prompt.apart or seed
        else:
            holding = [place for place in held if place in there]
            holding.sort(key=lambda place: -xxh3_64_intdigest(self._rendezvous_name(place), held[place].last_hash))
            there.difference_update(holding)
        rest = [place for place in candidates.order(seed) if place in there]
        return [*holding, *rest, *(place for place in places if place >= len(candidates.listed))]

    def _rendezvous_name(self, place: int) -> bytes:
        listed = self.weighed.scene.candidates.listed
        return listed[place].source.rendezvous_name if place < len(listed) else self.ids[place].pod.encode()


class Recommender:
    """One a process.

    Where engines are there for prefill alone, the best for decode is found first. What it would have to compute of the
    prompt decides: up to `non_cached_tokens` it does so itself, beyond that another takes the prompt.
    """

    def __init__(
        self, lookup: Lookup, registry: Registry, clock: Clock, ways: Ways = DEFAULTS, *, reached: Callable[[str], None]
    ) -> None:
        self.loads: Loads = NothingKnown()
        self.recommended: Callable[[str, str], None] = lambda _strategy, _loads: None
        """Told of each answer: the strategy, and where loads came from."""
        self._lookup = lookup
        self._registry = registry
        self._clock = clock
        self._ways = ways
        self._hot = HotPrefixes(reached)

    def answer(self, asked: RecommendQuery) -> RecommendAnswer:
        """Where to send a request. Raises as a lookup does."""
        query, strategy = asked.query, asked.strategy or self._ways.strategy
        weighed, now = self._weighed(asked), self._clock.now()
        names = Names(weighed.scene, self._registry, query.tenant)
        loads = names.loads(asked.loads) if asked.loads else None
        if loads is None:
            loads = self.loads.view(weighed.scene.standing.ids, now)
        field = _Field(weighed, loads, self._weights(strategy, asked.weights), asked)
        field.spreads = loads.source == "none" and strategy != "prefix"
        field.loads_count = loads.source != "none" and strategy != "prefix"
        picks, decode = self._ranked(field, query, {each for name in asked.exclude for each in names.meant(name)}, now)
        if field.spreads and picks.places:
            self._hot.note(field.deciding_prefix(picks.places), field.ids[picks.places[0]], now)
        self.recommended(strategy, loads.source)
        return RecommendAnswer(
            request_id=query.request_id or "",
            state=weighed.state,
            picks=_shown(field, picks, asked),
            load=LoadsUsed(loads.source, None if loads.age_s is None else int(loads.age_s * 1000)),
            decode=None if decode is None else _shown(field, decode, asked),
        )

    def sent(self, pod: str, dp_rank: int, request_id: str, tenant: str | None) -> None:
        """A request goes there, and nobody else will say so. Of a pod that nobody registered nothing is kept."""
        for source in of_tenant(self._registry, pod, tenant or DEFAULT_TENANT):
            if source.descriptor.dp_rank == dp_rank:
                self.loads.sent(source.descriptor.id, request_id, tenant, self._clock.now())

    def _weighed(self, asked: RecommendQuery) -> Weighed:
        """What the lookup knows. Of an unknown model nothing, but it may be another name of the only one.

        Where other models are followed elsewhere it may be one of theirs: those who are known here would refuse it.
        """
        query = asked.query
        if not asked.blind:
            weighed = self._lookup.weighed(query)
            resolved, follows_all = weighed.scene.candidates.resolved, self._registry.follows_all
            if resolved.known or query.pods is not None or not follows_all(query.tenant or DEFAULT_TENANT):
                return weighed
        return self._without_prompt(query)

    def _without_prompt(self, query: LookupQuery) -> Weighed:
        """Whom the caller names; else all, if they serve one model: of several, most would refuse the request."""
        anything = msgspec.structs.replace(query, model=None, lora_name=None, overdue=True)
        models = {each.source.model for each in self._lookup.candidates(anything).listed} - {None}
        if query.pods is None and len(models) > 1:
            anything.pods = ()
        return self._lookup.weighed(anything)

    def _ranked(
        self, field: _Field, query: LookupQuery, out: set[SourceId], now: float
    ) -> tuple[_Ranked, _Ranked | None]:
        """Who takes the prompt, and who makes the answer where that is another."""
        standing = field.weighed.scene.standing
        if not standing.prefill or query.pod_roles is not None:
            return self._best(field, standing.ready, out, now), None
        decode = self._best(field, standing.decode, out, now)
        to_compute = field.weighed.prompt.tokens - field.matched(decode.places[0]) if decode.places else 0
        if decode.places and to_compute <= self._ways.non_cached_tokens:
            return decode, None
        prefill = self._best(field, standing.prefill, out, now)
        return (prefill, decode) if prefill.places else (decode, None)

    def _best(self, field: _Field, listed: tuple[int, ...], out: set[SourceId], now: float) -> _Ranked:
        """Of these and of those whom nobody registered."""
        unknown = range(len(field.weighed.scene.standing.ids), len(field.ids))
        places = [place for place in (*listed, *unknown) if field.ids[place] not in out]
        if field.spreads:
            prefix = field.deciding_prefix(places)
            field.crowded = self._hot.crowded(prefix, len(places), self._ways.floor, now)
        return field.ranked(places, self._ways.floor)

    def _weights(self, strategy: Strategy, given: GivenWeights | None) -> BlendWeights:
        """As configured, but for what the question says; what the strategy leaves out counts nothing."""
        weights = self._ways.weights
        if given is not None:
            told = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
            weights = weights._replace(**told)
        if strategy == "prefix":
            return weights._replace(load=0.0)
        return weights._replace(prefix=0.0, speculative=0.0) if strategy == "load" else weights


def _shown(field: _Field, ranked: _Ranked, asked: RecommendQuery) -> list[RecommendedPod]:
    """As the answer has them."""
    limit, places = asked.query.limit, ranked.places
    rows = list(range(len(places)))
    if asked.query.group == "pod":  # the first row of each pod
        rows = sorted({field.names[places[row]]: row for row in reversed(rows)}.values())
    shown = rows[:limit] if limit else rows
    here = [places[row] for row in shown]
    total, *columns = [column[shown].tolist() for column in ranked.sums]
    names, ids = field.names, field.ids
    told = zip(here, total, map(PickTerms, *columns), strict=True)
    if asked.detailed:
        return [DetailedPod(names[at], ids[at].dp_rank, sum_, terms, *field.details(at)) for at, sum_, terms in told]
    return [RecommendedPod(names[at], ids[at].dp_rank, sum_, terms) for at, sum_, terms in told]
