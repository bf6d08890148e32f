"""A recommender on a core, with loads that a test tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexer.loads.known import LoadView
from indexer.model import SourceId
from indexer.recommend.recommender import DEFAULTS, Recommender, Ways
from schemas.lookup import LookupQuery
from schemas.recommend import GivenLoad, GivenWeights, RecommendAnswer, RecommendedPod, RecommendQuery
from tests.support.core import Core
from tests.support.core_events import u32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from indexer.loads.known import LoadSource


class ToldLoads:
    """What a test says is known; and what was sent."""

    def __init__(self) -> None:
        self.source: LoadSource = "none"
        self.age_s: float | None = None
        self.requests: dict[SourceId, float] = {}
        self.sendings: list[tuple[SourceId, str, str | None]] = []

    def tell(self, source: LoadSource, age_s: float | None = None, **requests: float) -> None:
        self.source, self.age_s = source, age_s
        self.requests = {SourceId(pod, 0): count for pod, count in requests.items()}

    def view(self, sources: Sequence[SourceId], now: float) -> LoadView:  # noqa: ARG002 - it never changes
        return LoadView(
            self.source, self.age_s, {each: self.requests[each] for each in sources if each in self.requests}
        )

    def sent(self, source: SourceId, request_id: str, tenant: str | None, now: float) -> None:  # noqa: ARG002 - as above
        self.sendings.append((source, request_id, tenant))

    def ended(self, request_id: str, tenant: str | None) -> None:
        """Nothing is kept of it."""


class Asked:
    """Who asks where to send requests."""

    def __init__(self, core: Core, ways: Ways = DEFAULTS) -> None:
        self.core = core
        self.loads = ToldLoads()
        self.answered: list[tuple[str, str]] = []
        self.recommender = Recommender(core.lookup, core.registry, core.clock, ways, reached=core._reached)
        self.recommender.loads = self.loads
        self.recommender.recommended = lambda strategy, loads: self.answered.append((strategy, loads))

    def ask(
        self,
        token_ids: Iterable[int] = (),
        *,
        loads: Mapping[str, float] | None = None,
        full: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        how: Mapping[str, Any] | None = None,
        **query: Any,  # noqa: ANN401  passed on as it is
    ) -> RecommendAnswer:
        """`loads`: requests by pod; `full`: shares of their caches; `how`: further options."""
        given = {
            pod: GivenLoad(running=(loads or {}).get(pod), kv_usage=(full or {}).get(pod))
            for pod in {**(loads or {}), **(full or {})}
        }
        asked = RecommendQuery(
            query=LookupQuery(tokens=u32(token_ids), **query),
            loads=given or None,
            weights=None if weights is None else GivenWeights(**weights),
            **(how or {}),
        )
        return self.recommender.answer(asked)


def pods(picks: Iterable[RecommendedPod]) -> str:
    """Their names, best first."""
    return " ".join(each.pod for each in picks)


def totals(answer: RecommendAnswer) -> dict[str, float]:
    """By pod, without the dust of sums."""
    return {each.pod: round(each.total, 6) for each in answer.picks}
