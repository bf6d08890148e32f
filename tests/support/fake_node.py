"""A double of the port between the faces and the node (api/ports.py): remembers what it was asked, answers plainly.

It holds registered sources in a dict, so that a client sees its own writes; it imitates nothing else of the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from api.ports import Encoding
from indexer import entry_wire
from indexer.errors import (
    BadRequestError,
    DrainRefusedError,
    FieldIssue,
    LimitReachedError,
    NotRoutedError,
    ReplicaUnknownError,
    SchemeConflictError,
    SourceConflictError,
    SourceUnknownError,
    TooManyRemovalsError,
)
from indexer.hashing.texts import TextMemo
from indexer.model import Descriptor, SourceId
from indexer.source_log import A_CALLER
from indexer.tracing import Tracing
from schemas.explain import ExplainAnswer
from schemas.feedback import FeedbackReport, FeedbackResult
from schemas.history import HistoryItem, HistoryList, HistoryNumbers
from schemas.lookup import (
    Holding,
    Holdings,
    LookupAnswer,
    LookupQuery,
    PodEntry,
    PrefixTokens,
    Shards,
    TierTokens,
    TokenizerUsed,
)
from schemas.receipts import RoutedReport, RoutedResult
from schemas.recommend import DetailedPod, LoadsUsed, PickTerms, RecommendAnswer, RecommendedPod, RecommendQuery
from schemas.reports import AnswersKept, ConsistencyReport, StalenessReport, WindowName
from schemas.rest import (
    BlockView,
    Effect,
    HashResult,
    PartitionList,
    PartitionView,
    Readiness,
    ReplicaDrained,
    ReplicaView,
    SourceRegistered,
    SourcesReplaced,
    SourcesTouched,
    SourceView,
    VersionAnswer,
)
from schemas.watch import SourceStatus
from tests.support.reports import consistency_row, explained_pod, staleness_row

_ENCODE = {"json": msgspec.json.encode, "msgpack": msgspec.msgpack.encode, "proto": entry_wire.entry}
SOURCES_MAX = 1_000
REFUSED = 7
"""As `max_removals`: one too few."""
HELD_HASH = 0x00F3C0DE00000001
"""The one block that every source of this double holds, under both hashes."""


_ALONE = "10.0.0.1:8000"


def _recommended(entry: PodEntry) -> tuple[str, int, float, float, int, str]:
    expected = float(entry.speculative_tokens)
    return (entry.pod, entry.dp_rank, entry.score, expected, entry.matched_tokens, entry.state)


class FakeNode:
    follows = True
    """Whether it follows all models."""

    def __init__(self) -> None:
        self.texts = TextMemo()
        self.tracing: Tracing | None = None
        self.queries: list[LookupQuery] = []
        self.observed: list[dict[str, object]] = []
        self.waited: list[float] = []
        self.sources: dict[SourceId, Descriptor] = {}
        self.cordoned: set[SourceId] = set()
        self.ready = True
        self.effect: Effect = "done"
        self.stored: list[PartitionView] = []
        self.others: list[ReplicaView] = []
        self.drained: set[str] = set()
        self.reloads: list[tuple[str, bool]] = []
        self.fault: Exception | None = None
        self.refused: Counter[tuple[int, str]] = Counter()
        self.given_by: list[str] = []
        self.entries: list[PodEntry] = []
        """Of every answer, where there are any."""
        self.addresses: dict[str, str] = {}
        self.held: list[Holding] = []
        self.secret = False
        self.silent_models: set[str] = set()
        self.routed: list[RoutedReport] = []
        self.refused_routed = 0
        self.limits_reached: Counter[str] = Counter()
        self.requests: dict[str, float] = {}
        self.endings: list[tuple[str, str | None]] = []
        self.picks: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.fed: list[FeedbackReport] = []
        self.refused_feedback = 0
        self.explained: list[tuple[tuple[str, ...] | None, int | None]] = []
        """Pods and rank of each question why."""
        self.recommended: list[RecommendQuery] = []
        self.decode: list[RecommendedPod] | None = None
        self.sendings: list[tuple[str, int, str, str | None]] = []
        self.loads = LoadsUsed("none", None)
        """Of every recommendation."""
        self.histories: list[tuple[int | None, int, tuple[int, int, int] | None]] = []
        """Rank, limit and `after` of each question for a history."""

    def lookup(self, query: LookupQuery, *, encoding: Encoding) -> LookupAnswer:
        self._fail()
        self.queries.append(query)
        if query.scheme == "dynamo" and query.block_size == 13:
            raise BadRequestError("block_size.unusable", [FieldIssue("block_size", "not 13 in this scheme", "13")])
        prompt_tokens = len(query.tokens) // 4 if query.tokens is not None else (query.prompt_tokens or 0)
        entry = PodEntry(
            pod="10.0.0.1:8000",
            dp_rank=0,
            block_size=16,
            matched_tokens=0,
            reusable_tokens=0,
            tiers=TierTokens(),
            prefix=PrefixTokens(),
            score=0.0,
            state="live",
            bound="exact",
            lag_ms=3,
            event_age_ms=None,
            generation="5f3a9c0d12e4",
            sequence=7,
            reason="no_match",
        )
        encode = _ENCODE[encoding]
        assert query.request_id is not None
        return LookupAnswer(
            request_id=query.request_id,
            model=query.model,
            lora_name=query.lora_name,
            resolved_by=None,
            prompt_tokens=prompt_tokens,
            tokenizer=query.tokenizer or msgspec.UNSET,
            state="exact",
            reason=None,
            pods=[msgspec.Raw(encode(each)) for each in self.entries or [entry]],
            shards=Shards(),
            took_us=0,
        )

    def recommend(self, asked: RecommendQuery) -> RecommendAnswer:
        """The entries in their order, or one that holds nothing; of a blind question nobody holds anything."""
        self._fail()
        self.queries.append(asked.query)
        self.recommended.append(asked)
        load = 0.0 if self.loads.source == "none" else 0.25
        picks: list[RecommendedPod] = []
        usable = [each for each in self.entries if each.state != "down" and each.reason != "cordoned"]
        alone = [] if self.entries else [(_ALONE, 0, 0.0, 0.0, 0, "live")]
        for pod, rank, *held, state in [_recommended(each) for each in usable] or alone:
            score, expected, matched = (0.0, 0.0, 0) if asked.blind else held
            terms = PickTerms(score, load, expected, 0.0)
            plain = RecommendedPod(pod, rank, score + load + expected, terms)
            detailed = DetailedPod(pod, rank, plain.total, terms, score, int(matched), state)
            picks.append(detailed if asked.detailed else plain)
        state = "no_signal" if asked.blind else "exact"
        return RecommendAnswer(
            request_id=asked.query.request_id or "", state=state, picks=picks, load=self.loads, decode=self.decode
        )

    def note_sent(self, pod: str, dp_rank: int, request_id: str, tenant: str | None) -> None:
        self.sendings.append((pod, dp_rank, request_id, tenant))

    def holdings(self, query: LookupQuery) -> Holdings:
        """Of everything that has at least one token or hash: what `held` says."""
        self._fail()
        self.queries.append(query)
        if query.scheme == "dynamo" and self.secret:
            raise SchemeConflictError("hashes without this deployment's secret are refused")
        return Holdings("exact", self.held if query.tokens or query.block_hashes else [])

    def address_of(self, pod: str, tenant: str | None) -> str | None:
        return self.addresses.get(pod) if tenant is None else None

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        """A token for each byte of the text."""
        assert query.text is not None
        told = (query.text.prompt or str(query.text.messages)).encode()
        tokens = b"".join(byte.to_bytes(4, "little") for byte in told)
        used = TokenizerUsed(source="file", name="bytes", tokens=len(told), cached=False)
        return msgspec.structs.replace(query, tokens=tokens, text=None, tokenizer=used)

    def tokenized_before(self, query: LookupQuery) -> LookupQuery | None:
        """It remembers nothing."""
        assert query.text is not None
        return None

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        assert query.min_sequence
        self.waited.append(timeout_s)

    def hash(self, query: LookupQuery) -> HashResult:
        self._fail()
        assert query.tokens is not None
        assert query.block_size is not None
        self.queries.append(query)
        count = len(query.tokens) // 4
        hashes = [HELD_HASH + i for i in range(count // query.block_size)]
        return HashResult(scheme="kvi1", block_size=query.block_size, hashes=hashes, prompt_tokens=count)

    @property
    def followed_models(self) -> list[str] | None:
        return None

    async def source_views(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        limit: int = 0,
        after: tuple[str, int] | None = None,
        tenant: str | None = None,
        counted: bool = True,  # noqa: ARG002
    ) -> list[SourceView]:
        views = [
            self._view(source)
            for source in sorted(self.sources)
            if (after is None or source > after)
            and (model is None or self.sources[source].model == model)
            and tenant in {None, self.sources[source].tenant}
        ]
        views = [view for view in views if state is None or view.state == state]
        return views[:limit] if limit else views

    async def explain(self, query: LookupQuery, dp_rank: int | None = None) -> ExplainAnswer:
        """What it was asked, with one entry that holds nothing."""
        answer = self.lookup(query, encoding="msgpack")
        self.explained.append((query.pods, dp_rank))
        return ExplainAnswer(
            request_id=answer.request_id,
            model=answer.model,
            lora_name=answer.lora_name,
            resolved_by=None,
            prompt_tokens=answer.prompt_tokens,
            tokenizer=answer.tokenizer,
            state=answer.state,
            reason=None,
            pods=[explained_pod("10.0.0.1:8000")],
            took_us=0,
        )

    async def source_statuses(self) -> list[SourceStatus]:
        self._fail()
        views = map(self._view, self.sources)
        return [SourceStatus(*(getattr(view, name) for name in SourceStatus._fields)) for view in views]

    async def staleness_report(
        self, *, pod: str | None = None, model: str | None = None, state: str | None = None, tenant: str | None = None
    ) -> StalenessReport:
        self._fail()
        views = await self.source_views(state=state, model=model, tenant=tenant)
        rows = [staleness_row(view) for view in views if pod in {None, view.pod}]
        return StalenessReport(at="2026-11-30T00:00:00.000+00:00", seen_s=60, states={}, sources=rows)

    async def consistency_report(
        self,
        *,
        pod: str | None = None,
        model: str | None = None,
        tenant: str | None = None,
        window: WindowName | None = None,
    ) -> ConsistencyReport:
        self._fail()
        found = [each for each in self.sources.values() if pod in {None, each.pod} and model in {None, each.model}]
        rows = [consistency_row(each) for each in found if tenant in {None, each.tenant}]
        for row in rows:
            row.windows = {name: figures for name, figures in row.windows.items() if window in {None, name}}
        kept = AnswersKept(count=1, bytes=700, horizon_s=600.0, oldest_s=1.5, forgotten_early=0)
        return ConsistencyReport(at="2026-11-30T00:00:00.000+00:00", seen_s=60, answers=kept, totals=[], sources=rows)

    async def report_routed(self, report: RoutedReport) -> RoutedResult:
        self._fail()
        self.routed.append(report)
        return "held" if report.pod == "full" else "expected"

    def routed_refused(self) -> None:
        self.refused_routed += 1

    def take_feedback(self, report: FeedbackReport) -> FeedbackResult:
        self._fail()
        self.fed.append(report)
        if report.pod is None:  # nothing was routed here
            raise NotRoutedError
        if report.pod == "unknown":
            raise SourceUnknownError(report.pod)
        return "failed" if not report.ok else "unjoined" if report.request_id == "unheard-of" else "joined"

    def feedback_refused(self) -> None:
        self.refused_feedback += 1

    async def add_source(self, descriptor: Descriptor, *, by: str = A_CALLER) -> SourceRegistered:
        self.given_by.append(by)
        self._fail()
        known = self.sources.get(descriptor.id)
        if known == descriptor:
            return self._registered(descriptor, "same")
        if known is not None:
            raise SourceConflictError("endpoint", "another registration of this pod and rank stands")
        if len(self.sources) >= SOURCES_MAX:
            raise LimitReachedError("limits.sources", SOURCES_MAX)
        self.sources[descriptor.id] = descriptor
        return self._registered(descriptor, "created")

    async def replace_api_sources(
        self,
        descriptors: Sequence[Descriptor],
        *,
        max_removals: int | None = None,
        tenant: str | None = None,
        by: str = A_CALLER,
    ) -> SourcesReplaced:
        self.given_by.append(by)
        self._fail()
        if max_removals == REFUSED:
            raise TooManyRemovalsError(REFUSED + 1, max_removals)
        wanted = {descriptor.id: descriptor for descriptor in descriptors}
        before = {source: known for source, known in self.sources.items() if self._replaced(known, tenant)}
        kept = sum(1 for source, known in before.items() if wanted.get(source) == known)
        self.sources = {s: known for s, known in self.sources.items() if not self._replaced(known, tenant)} | wanted
        return SourcesReplaced(added=len(wanted) - kept, kept=kept, removed=len(before) - kept, effect=self.effect)

    async def remove_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        self.given_by.append(by)
        self._fail()
        ids = self._ids(pod, dp_rank, tenant)
        for source in ids:
            if self.sources[source].origin != "api":
                raise SourceConflictError("pod", "a flag holds this source: remove it there")
        for source in ids:
            del self.sources[source]
        return SourcesTouched(pod=pod, sources=len(ids), effect=self.effect)

    async def clear_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        self.given_by.append(by)
        self._fail()
        return SourcesTouched(pod=pod, sources=len(self._ids(pod, dp_rank, tenant)), effect=self.effect)

    async def cordon_source(
        self, pod: str, dp_rank: int | None, *, cordoned: bool, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        self.given_by.append(by)
        self._fail()
        ids = self._ids(pod, dp_rank, tenant)
        self.cordoned = self.cordoned | set(ids) if cordoned else self.cordoned - set(ids)
        return SourcesTouched(pod=pod, sources=len(ids), effect=self.effect)

    async def find_block(
        self, pod: str, dp_rank: int | None, block_hash: int, *, tenant: str | None = None
    ) -> list[BlockView]:
        text = f"{HELD_HASH:016x}"
        return [
            BlockView(
                pod=source.pod,
                dp_rank=source.dp_rank,
                engine_hash=text,
                token_hash=text,
                group=0,
                tiers=["gpu"],
                copies={"gpu": 1},
                parent=None,
            )
            for source in self._ids(pod, dp_rank, tenant)
            if block_hash == HELD_HASH
        ]

    async def source_history(
        self,
        pod: str,
        dp_rank: int | None,
        *,
        limit: int,
        after: tuple[int, int, int] | None,
        tenant: str | None = None,
    ) -> HistoryList:
        self._fail()
        self.histories.append((dp_rank, limit, after))
        items = [
            HistoryItem(
                at="2026-01-02T03:04:05.678+00:00",
                dp_rank=source.dp_rank,
                what="gap",
                cause="kept",
                count=1,
                numbers=HistoryNumbers(first=5, last=6, lost=2, sequence=4, generation="5f3a"),
                replica=None,
            )
            for source in self._ids(pod, dp_rank, tenant)
        ]
        return HistoryList(pod=pod, items=items[:limit], next=None, complete=True)

    async def partitions(self) -> PartitionList:
        self._fail()
        mode: Literal["memory", "redis"] = "redis" if self.stored else "memory"
        return PartitionList(mode=mode, partitions=self.stored, replicas=self.others)

    async def drain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        self.given_by.append(by)
        self._replica(name)
        self.drained.add(name)
        return self._drained(name)

    async def undrain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        self.given_by.append(by)
        self._replica(name)
        self.drained.discard(name)
        return self._drained(name)

    def readiness(self) -> Readiness:
        self._fail()
        return Readiness(ready=self.ready, detail={"sources": len(self.sources), "syncing": 0})

    def config(self) -> dict[str, Any]:
        return {"server": {"port": 0}, "auth": {"hash_secret": "***"}}

    def count_reload(self, file: Literal["tokens", "tls"], *, usable: bool) -> None:
        self.reloads.append((file, usable))

    async def metrics_text(self) -> bytes:
        return b"# HELP kvindexer_up One\n# TYPE kvindexer_up gauge\nkvindexer_up 1.0\n"

    def observe_lookup(self, *, api: str, input: str, code: int, state: str, seconds: float) -> None:  # noqa: A002
        assert seconds >= 0
        self.observed.append({"api": api, "input": input, "code": code, "state": state})

    def access_refused(self, status: int, code: str) -> None:
        self.refused[status, code] += 1

    def known_names(self, names: Sequence[str], tenant: str | None) -> tuple[str, ...]:  # noqa: ARG002 - of nobody
        return tuple(names)

    def follows_all(self, tenant: str | None) -> bool:  # noqa: ARG002 - of nobody
        return self.follows

    def knows_pool(self, tenant: str | None) -> bool:
        return self.ready and self.follows_all(tenant)

    def requests_at(self, pod: str, dp_rank: int, tenant: str | None) -> float | None:  # noqa: ARG002 - of each rank
        return self.requests.get(pod)

    def request_ended(self, request_id: str, tenant: str | None) -> None:
        self.endings.append((request_id, tenant))

    def count_pick(self, result: str) -> None:
        self.picks[result] += 1

    def count_served(self, by: str) -> None:
        self.served[by] += 1

    def limit_reached(self, limit: str) -> None:
        self.limits_reached[limit] += 1

    def version(self) -> VersionAnswer:
        return VersionAnswer(version="0.1.0", hash_scheme="kvi1", layout="memory")

    def _registered(self, descriptor: Descriptor, result: Literal["created", "same"]) -> SourceRegistered:
        return SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result=result, effect=self.effect)

    def _replica(self, name: str) -> ReplicaView:
        self._fail()
        if not self.others:
            raise DrainRefusedError("there is one replica")
        for view in self.others:
            if view.name == name:
                return view
        raise ReplicaUnknownError(name, self.others[0].name)

    def _drained(self, name: str) -> ReplicaDrained:
        owned = self._replica(name).owned
        draining = name in self.drained
        effect: Effect = "accepted" if draining and owned else "done"
        return ReplicaDrained(name=name, draining=draining, owned=owned, effect=effect)

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    @staticmethod
    def _replaced(known: Descriptor, tenant: str | None) -> bool:
        return known.origin == "api" and tenant in {None, known.tenant}

    def _ids(self, pod: str, dp_rank: int | None, tenant: str | None) -> list[SourceId]:
        ids = [
            source
            for source, known in self.sources.items()
            if source.pod == pod and dp_rank in {None, source.dp_rank} and tenant in {None, known.tenant}
        ]
        if not ids:
            raise SourceUnknownError(pod, dp_rank)
        return ids

    def _view(self, source: SourceId) -> SourceView:
        known = self.sources[source]
        return SourceView(
            pod=known.pod,
            dp_rank=known.dp_rank,
            state="new",
            since=None,
            why=None,
            bound="exact",
            generation="5f3a9c0d12e4",
            sequence=None,
            lag_ms=None,
            event_age_ms=None,
            counters={},
            blocks={"gpu": 0},
            copies=0,
            blocks_total=known.blocks_total,
            owner=None,
            origin=known.origin,
            endpoint=known.endpoint,
            replay_endpoint=known.replay_endpoint,
            model=known.model,
            lora_name=known.lora_name,
            engine=known.engine,
            block_size=None,
            groups=[],
            role=known.role,
            tenant=known.tenant,
            address=known.address,
            aliases=list(known.aliases),
            labels=known.labels,
            cordoned=source in self.cordoned,
            warnings=[],
        )
