"""The core with somebody who asks why, wired as the node wires it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from indexer.explain.asking_why import Explainer
from indexer.history import History
from schemas.lookup import LookupQuery
from tests.support.core import Core
from tests.support.core_events import u32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from indexer.model import SourceId
    from schemas.explain import ExplainAnswer, PodExplanation
    from tests.support.core_options import CoreOptions


class AskedCore(Core):
    """`follows`: whose events another replica applies."""

    def __init__(
        self, *, follows: Callable[[SourceId], bool] = lambda _: False, **options: Unpack[CoreOptions]
    ) -> None:
        super().__init__(**options)
        self.history = History(self.clock)
        self.ingest.happened = lambda source, happening: self.history.note(source.descriptor.id, happening)
        self.explainer = Explainer(
            self.lookup,
            self.registry,
            self.mirror,
            self.clock,
            tier_ttls=options.get("tier_ttls", {}),
            follows=follows,
            told=self.history.kept,
        )

    def explain(
        self,
        token_ids: Iterable[int] | None = None,
        *,
        dp_rank: int | None = None,
        between: Callable[[], None] = lambda: None,
        **query: Any,  # noqa: ANN401  passed on as it is
    ) -> ExplainAnswer:
        """One question; `between` is called between two steps of the work."""
        if token_ids is not None:
            query["tokens"] = u32(token_ids)
        steps = self.explainer.explain(LookupQuery(**query), dp_rank)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answer: ExplainAnswer = end.value
                return answer
            between()

    def why(self, token_ids: Iterable[int] | None = None, pod: str = "a", **query: Any) -> PodExplanation:  # noqa: ANN401
        """Of the one entry of that name."""
        found = [each for each in self.explain(token_ids, **query).pods if each.pod == pod]
        assert len(found) == 1, f"{pod}: {len(found)} entries"
        return found[0]


def codes(explained: PodExplanation) -> list[str]:
    """The one that decides first."""
    return [explained.code, *(each.code for each in explained.further)]
