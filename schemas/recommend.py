"""What a request for a recommendation has beside a lookup's question, and its answer. Shapes and limits only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from schemas.lookup import LookupQuery
from schemas.rest import Text

Strategy = Literal["blend", "prefix", "load"]
"""What decides: both, what is held alone, or how busy the pods are alone."""

Requests = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
TermWeight = Annotated[float, msgspec.Meta(ge=0, le=1_000)]


class GivenLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How busy a pod is, as the caller knows it."""

    running: Requests | None = None
    waiting: Requests | None = None
    kv_usage: Share | None = None


class GivenWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each term counts; null = as configured."""

    prefix: TermWeight | None = None
    load: TermWeight | None = None
    speculative: TermWeight | None = None


class RecommendOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """In the body beside the lookup's fields, or in the query string; null = not given."""

    loads: Annotated[dict[str, GivenLoad], msgspec.Meta(max_length=4_096)] | None = None
    strategy: Strategy | None = None
    weights: GivenWeights | None = None
    session: Text | None = None
    exclude: Annotated[list[Text], msgspec.Meta(max_length=4_096)] | None = None

    def about(self, query: LookupQuery) -> RecommendQuery:
        """The question that both make together."""
        return RecommendQuery(
            query=query,
            loads=self.loads,
            strategy=self.strategy,
            weights=self.weights,
            session=self.session,
            exclude=tuple(self.exclude or ()),
        )


class RecommendQuery(msgspec.Struct, kw_only=True):
    """One question: the lookup's, and how to rank who is asked about.

    `blind`: nothing is known of its prompt, nor of the model that it is for. `detailed`: picks are `DetailedPod`s.
    """

    query: LookupQuery
    loads: Mapping[str, GivenLoad] | None = None
    strategy: Strategy | None = None
    weights: GivenWeights | None = None
    session: str | None = None
    exclude: tuple[str, ...] = ()
    blind: bool = False
    detailed: bool = False


class PickTerms(msgspec.Struct, frozen=True, gc=False):
    """What a pick's total is made of: the first three, less the last. Each is weighted already."""

    prefix: float
    load: float
    speculative: float
    penalty: float


class RecommendedPod(msgspec.Struct, frozen=True, gc=False):
    """One pod to send a request to, and why it stands where it stands."""

    pod: str
    dp_rank: int
    total: float
    terms: PickTerms


class DetailedPod(RecommendedPod, frozen=True, gc=False):
    """And what it holds, for faces that say so."""

    score: float
    matched_tokens: int
    state: str


class LoadsUsed(msgspec.Struct, frozen=True):
    """Which loads an answer was made with, and the age of the oldest of them.

    Null where none were read: what was sent is counted up to now.
    """

    source: Literal["request", "metrics", "receipts", "none"]
    age_ms: int | None


class RecommendAnswer(msgspec.Struct, kw_only=True):
    """Where to send a request, best first. `decode`: null where the pod that takes the prompt makes the answer, too."""

    request_id: str
    state: str
    picks: list[RecommendedPod]
    load: LoadsUsed
    decode: list[RecommendedPod] | None = None
