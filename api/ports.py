"""What the faces ask of the node, as one Protocol.

The node satisfies it by shape; nothing below the faces imports this.

All methods are called on the one event loop. The plain functions among them return quickly; the others give the loop
back now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from indexer.source_log import A_CALLER

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from indexer.hashing.texts import TextMemo
    from indexer.model import Descriptor
    from indexer.tracing import Tracing
    from schemas.explain import ExplainAnswer
    from schemas.feedback import FeedbackReport, FeedbackResult
    from schemas.history import HistoryList
    from schemas.lookup import Holdings, LookupAnswer, LookupQuery
    from schemas.receipts import RoutedReport, RoutedResult
    from schemas.recommend import RecommendAnswer, RecommendQuery
    from schemas.reports import ConsistencyReport, StalenessReport, WindowName
    from schemas.rest import (
        BlockView,
        HashResult,
        PartitionList,
        Readiness,
        ReplicaDrained,
        SourceRegistered,
        SourcesReplaced,
        SourcesTouched,
        SourceView,
        VersionAnswer,
    )
    from schemas.watch import SourceStatus

Encoding = Literal["json", "msgpack", "proto"]
"""`proto`: entries as they stand in `LookupResponse`, each with its tag (indexer/entry_wire.py)."""


class NodePort(Protocol):
    """The service behind its faces."""

    def lookup(self, query: LookupQuery, *, encoding: Encoding) -> LookupAnswer:
        """Answer from memory.

        `pods` of the answer may be `msgspec.Raw` in that encoding. `query.request_id` is always set. Raises
        `BadRequestError` for what only the core can judge (block size, names), and `SchemeConflictError` for hashes of
        a scheme that this deployment's secret rules out.
        """
        ...

    def holdings(self, query: LookupQuery) -> Holdings:
        """The bare facts of a lookup: which sources hold how much. From memory; raises as `lookup`.

        Answers what `tokens` or `block_hashes` ask of the sources that `model`, `tenant`, `pods` and, where given,
        `block_size` name; nothing else of the question counts. Hashes without a `block_size` are looked up at that of
        each source.
        """
        ...

    def recommend(self, asked: RecommendQuery) -> RecommendAnswer:
        """Where to send a request, from memory; raises as `lookup`.

        `asked.query` as for `lookup`. Where it is `overdue`, or the question is `blind`, loads alone decide.
        """
        ...

    def note_sent(self, pod: str, dp_rank: int, request_id: str, tenant: str | None) -> None:
        """A request goes to that pod and rank, and nobody will report it: it counts to its load. Once a request id."""
        ...

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        """The same question with `tokens` and `tokenizer` in the place of `text`, within its deadline.

        Beyond it: `overdue`, and no tokens. Where the model is not known, or none of the sources asked about is of it,
        there is nothing to tokenize for: no tokens, and the lookup says why. Raises `BadRequestError` where nothing
        here can tokenize for that model, or its chat template refuses the messages.
        """
        ...

    def tokenized_before(self, query: LookupQuery) -> LookupQuery | None:
        """The same at once, where the text is known or there is nothing to tokenize for; None where it takes time."""
        ...

    @property
    def silent_models(self) -> Container[str]:
        """Models whose engines may announce nothing: their sources need no endpoint."""
        ...

    def address_of(self, pod: str, tenant: str | None) -> str | None:
        """Where a pod of that name and tenant was said to be reached; None where it is not known or nobody said."""
        ...

    @property
    def texts(self) -> TextMemo:
        """What faces remember of prompts told as text: it shares its salt with the memory of the prompts' hashes."""
        ...

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        """Return once every sequence in `query.min_sequence` is applied, or the time is over, whichever is first.

        Called only for queries that carry `min_sequence`; the lookup after it says which pods missed the deadline.
        """
        ...

    def hash(self, query: LookupQuery) -> HashResult:
        """Token hashes of the whole blocks of `query.tokens` at `query.block_size`. Raises `BadRequestError`."""
        ...

    async def source_views(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        limit: int = 0,
        after: tuple[str, int] | None = None,
        tenant: str | None = None,
        counted: bool = True,
    ) -> list[SourceView]:
        """Sources in the order of (pod, rank), from the first one greater than `after`; `limit` 0 = all.

        `counted`: with the counters of sources that other replicas apply, for which a store may have to be asked.
        """
        ...

    async def staleness_report(
        self, *, pod: str | None = None, model: str | None = None, state: str | None = None, tenant: str | None = None
    ) -> StalenessReport:
        """How sources are doing, and how they were, by pod and rank."""
        ...

    async def consistency_report(
        self,
        *,
        pod: str | None = None,
        model: str | None = None,
        tenant: str | None = None,
        window: WindowName | None = None,
    ) -> ConsistencyReport:
        """What was answered beside what engines really reused, by pod and rank."""
        ...

    def take_feedback(self, report: FeedbackReport) -> FeedbackResult:
        """What an engine really reused of a prompt: compared with what was answered.

        Raises `SourceUnknownError`, and `BadRequestError` for what cannot be.
        """
        ...

    def feedback_refused(self) -> None:
        """Count a report of that which was refused."""
        ...

    async def explain(self, query: LookupQuery, dp_rank: int | None = None) -> ExplainAnswer:
        """Why each source that a lookup lists, or only those of that rank, holds no more of the prompt.

        `query` as for `lookup`; raises as that.
        """
        ...

    async def source_statuses(self) -> list[SourceStatus]:
        """Of every source what a router must know at once, in no order."""
        ...

    async def report_routed(self, report: RoutedReport) -> RoutedResult:
        """A request was sent to a pod: what that will come to hold is expected of it. Once a request id.

        Raises `SourceUnknownError`, and `BadRequestError` where it contradicts what is known.
        """
        ...

    def routed_refused(self) -> None:
        """Count a report of what was routed that was not taken."""
        ...

    # `tenant`: whoever asks knows of that tenant's sources alone; to it others are not there. None: it knows of all.

    @property
    def followed_models(self) -> list[str] | None:
        """Those that sources are followed of; None: all."""
        ...

    # Commands. With a store they are recorded there first: `StoreFailure` where that was not possible. `effect` of the
    # answer is `accepted` where the owner of a source was not seen to have come to it in time. `by`: who gives it, for
    # the line of the log that each command has.

    async def add_source(self, descriptor: Descriptor, *, by: str = A_CALLER) -> SourceRegistered:
        """Register. Raises `SourceConflictError` where it contradicts what stands, `LimitReachedError` when full."""
        ...

    async def replace_api_sources(
        self,
        descriptors: Sequence[Descriptor],
        *,
        max_removals: int | None = None,
        tenant: str | None = None,
        by: str = A_CALLER,
    ) -> SourcesReplaced:
        """Make these the whole set of origin `api`, of that tenant: all or nothing. Raises as `add_source`.

        Raises `TooManyRemovalsError` where more sources would go than `max_removals` allows, or, without it, where
        blocks of more pods would be forgotten than may be at once.
        """
        ...

    async def remove_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """Remove one rank or all.

        Raises `SourceUnknownError`; `SourceConflictError` when a flag or the configuration holds it.
        """
        ...

    async def clear_source(
        self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """New generation, everything of it gone. Raises `SourceUnknownError`."""
        ...

    async def cordon_source(
        self, pod: str, dp_rank: int | None, *, cordoned: bool, tenant: str | None = None, by: str = A_CALLER
    ) -> SourcesTouched:
        """Set or lift the cordon. Raises `SourceUnknownError`."""
        ...

    async def find_block(
        self, pod: str, dp_rank: int | None, block_hash: int, *, tenant: str | None = None
    ) -> list[BlockView]:
        """Entries under that engine hash or token hash; empty when not held.

        Raises `SourceUnknownError`; `SourceElsewhereError` where another replica has the maps, `SourceSyncingError`
        while this one loads them.
        """
        ...

    async def source_history(
        self,
        pod: str,
        dp_rank: int | None,
        *,
        limit: int,
        after: tuple[int, int, int] | None,
        tenant: str | None = None,
    ) -> HistoryList:
        """What happened to one rank or all, the newest first, `limit` items at most, of those behind `after`.

        With `tenant`: since it was registered last, for before that it may have been another's.

        Raises `SourceUnknownError`. Where a store does not answer: what this replica saw itself, said to be incomplete.
        """
        ...

    async def partitions(self) -> PartitionList:
        """What this replica does with each partition of the store, and which replicas there are."""
        ...

    async def drain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        """Have a replica give up all that it owns; returns when it did, or soon, with `effect` `accepted`.

        Raises `ReplicaUnknownError`, `DrainRefusedError` where nobody could take over, `StoreFailure`.
        """
        ...

    async def undrain_replica(self, name: str, *, by: str = A_CALLER) -> ReplicaDrained:
        """It may own again. Raises `ReplicaUnknownError`, `DrainRefusedError` in memory mode, `StoreFailure`."""
        ...

    def readiness(self) -> Readiness:
        """Whether lookups may be sent here, and the progress towards it."""
        ...

    def config(self) -> dict[str, Any]:
        """The effective settings as plain values, secrets masked."""
        ...

    def count_reload(self, file: Literal["tokens", "tls"], *, usable: bool) -> None:
        """A file that says who may call has changed. Called from any thread."""
        ...

    async def metrics_text(self) -> bytes:
        """The metrics in the text format of Prometheus (`prometheus_parts.CONTENT_TYPE_LATEST`)."""
        ...

    @property
    def tracing(self) -> Tracing | None:
        """What makes spans of lookups; None where nothing is traced."""
        ...

    def observe_lookup(self, *, api: str, input: str, code: int, state: str, seconds: float) -> None:  # noqa: A002 - the metric's label
        """Count one lookup.

        `input`: `json`, `msgpack`, `bytes`, `hashes` or `unknown`; `state` is empty for a
        problem.
        """
        ...

    def known_names(self, names: Sequence[str], tenant: str | None) -> tuple[str, ...]:
        """Those by which a source of that tenant goes."""
        ...

    def follows_all(self, tenant: str | None) -> bool:
        """Whether every source of that tenant is known here: not at a replica that follows chosen models."""
        ...

    def knows_pool(self, tenant: str | None) -> bool:
        """Whether who is not known here is not there: for this an instance has to be ready and to follow all models.

        Where engines make themselves known by their first events, one that was never sent anything is not known.
        """
        ...

    def requests_at(self, pod: str, dp_rank: int, tenant: str | None) -> float | None:
        """How many are there, running, waiting and on their way; None where it is not known."""
        ...

    def request_ended(self, request_id: str, tenant: str | None) -> None:
        """It is over; nothing where it is not known to have gone anywhere."""
        ...

    def count_pick(self, result: str) -> None:
        """Count what came of a request that a gateway had an endpoint picked for (`api.epp.picking.Result`)."""
        ...

    def count_served(self, by: str) -> None:
        """Count who served it (`api.epp.outcome.Served`)."""
        ...

    def access_refused(self, status: int, code: str) -> None:
        """Count, for a line of the log, that somebody was refused for who he is or is not: 401 or 403, and why."""
        ...

    def limit_reached(self, limit: str) -> None:
        """Count that a limit was reached; `limit` is its settings name, or `face.what` where it is no setting."""
        ...

    def version(self) -> VersionAnswer:
        """What runs here."""
        ...
