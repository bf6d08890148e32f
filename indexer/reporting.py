"""Wires what callers report of their requests, and what is told of sources and answers: expected, compared, explained.

One a process, made and driven by the node. Does no I/O of its own; what others counted or kept is read through the
replica, where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.distrust import Distrust
from indexer.history import KEPT
from indexer.later import loaded
from indexer.model import DEFAULT_TENANT
from indexer.receipts.answered import AnswerOptions, Answers
from indexer.receipts.delays import Delays
from indexer.receipts.routed import Routed
from indexer.reports.consistency import Consistency
from indexer.reports.drift import DriftLimits
from indexer.reports.feedback import Feedback
from indexer.reports.staleness import Staleness
from indexer.slices import Slices
from schemas.lookup import LookupQuery

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from indexer.explain.asking_why import Explainer
    from indexer.history import History, Told
    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.loads.board import LoadBoard
    from indexer.lookup import Lookup
    from indexer.model import SourceId, Tier
    from indexer.partitions.replica import Replica
    from indexer.ports import Clock
    from indexer.receipts.speculation import Speculation
    from indexer.roster import Roster
    from indexer.settings import Settings
    from indexer.store.counts import StoredCounts
    from indexer.telemetry import Telemetry
    from schemas.explain import ExplainAnswer
    from schemas.feedback import FeedbackReport, FeedbackResult
    from schemas.receipts import RoutedReport, RoutedResult
    from schemas.reports import StalenessReport

HISTORY_WHOLE: Final = 4 * KEPT
"""More entries than are kept of a source, here or in a store."""
HISTORIES_READ: Final = 8
"""Sources whose histories are asked of the store for an explanation; of more, what this process saw itself is told."""


class Core(NamedTuple):
    """What is reported on. `tier_ttls`: of tiers whose producers announce no removals, seconds."""

    mirror: Mirror
    registry: Registry
    lookup: Lookup
    speculation: Speculation
    roster: Roster
    history: History
    tier_ttls: Mapping[Tier, float]
    loads: LoadBoard


class Reporting:
    """`salt`: that of the memory of prompts. The lookup notes its answers here from now on."""

    def __init__(self, settings: Settings, clock: Clock, core: Core, telemetry: Telemetry, salt: int) -> None:
        self._core = core
        self._clock = clock
        self._telemetry = telemetry
        self._replica: Replica | None = None
        self._loads_s = settings.loads.interval_s
        kept = settings.feedback
        options = AnswerOptions(kept.answers_s, kept.answers_bytes, kept.prompt_s, kept.prompt_bytes)
        self.answers = core.lookup.answers = Answers(clock, options, salt, telemetry.limit_reached)
        self.routed = self._on_routed({model: each.ttl_s for model, each in settings.models.approximate.items()})
        self.staleness = Staleness(
            core.registry,
            core.lookup.view,
            clock,
            owner=lambda source: None if self._replica is None else self._replica.owner_of(source),
            follows=self.follows,
            journal_age_s=lambda source: None if self._replica is None else self._replica.journal_age_s(source),
            expected_s=self.routed.ttl_s,
        )
        self.feedback = Feedback(
            core.registry,
            self.answers,
            clock,
            resolve=lambda model, tenant: core.lookup.candidates(LookupQuery(model=model, tenant=tenant)).resolved,
            limits=DriftLimits(kept.drift_min_samples, kept.drift_limit),
            follows=self.follows,
        )
        self.consistency = Consistency(core.registry, core.lookup.view, self.feedback, self.answers, clock)
        self.distrust = Distrust(core.roster, clears=kept.drift_policy == "clear")

    def _on_routed(self, silent_ttls_s: Mapping[str, float]) -> Routed:
        """What is expected of sources since callers said what they routed there."""
        core, ended = self._core, self._telemetry.receipts.ended
        routed = Routed(
            core.lookup,
            core.registry,
            core.mirror,
            core.speculation,
            delays=Delays(),
            clock=self._clock,
            reached=self._telemetry.limit_reached,
            ended=lambda result: ended.update((result,)),
            silent_ttls_s=silent_ttls_s,
        )
        routed.asked_before = self._asked_before
        routed.sent = self.answers.sent
        routed.noted = self._noted
        return routed

    def _noted(self, source: SourceId, request_ids: Sequence[str], tenant: str) -> None:
        self._core.loads.routed(source, request_ids, tenant, self._clock.now())

    def _noted_elsewhere(self, source: SourceId) -> None:
        """Another replica heard of a request; hints do not tell what it is called."""
        if source in self._core.registry.sources:
            self._noted(source, (), DEFAULT_TENANT)

    def _asked_before(self, request_id: str, tenant: str) -> LookupQuery | None:
        answered = self.answers.find(request_id, tenant)
        return None if answered is None else answered.query

    def share(self, replica: Replica) -> None:
        """Others are there: they hear what was routed, and a source's owner of what is doubted."""
        self._replica = replica
        self.distrust.commands = replica.orders
        hints = self._telemetry.receipts.hints
        self.routed.hinted, replica.hints.hear = replica.hints.tell, self.routed.hear
        replica.hints.routed = self._noted_elsewhere
        replica.loads.share(self._core.loads, self._loads_s, self._telemetry.limit_reached)
        replica.hints.count = lambda result, count: hints.update({result: count})

    def follows(self, source: SourceId) -> bool:
        """Whether another replica applies its events."""
        return self._replica is not None and self._replica.follows(source)

    # -- what callers report -------------------------------------------------------------------------------------------

    async def report_routed(self, report: RoutedReport) -> RoutedResult:
        """A request was sent to a pod."""
        result = await Slices(self._clock).run(self.routed.take(report))
        self._telemetry.receipts.routed[result] += 1
        return result

    def routed_refused(self) -> None:
        """One was not taken."""
        self._telemetry.receipts.routed["refused"] += 1

    # -- what is told --------------------------------------------------------------------------------------------------

    async def told_counts(self, followed: Sequence[SourceId]) -> dict[SourceId, StoredCounts]:
        """What was counted of sources that other replicas apply."""
        return {} if self._replica is None or not followed else await self._replica.counts(followed)

    async def staleness_report(
        self, *, pod: str | None, model: str | None, state: str | None, tenant: str | None
    ) -> StalenessReport:
        """How sources are doing, and how they were."""
        followed = [
            key
            for key, source in self._core.registry.sources.items()
            if self.follows(key) and pod in {None, key.pod} and tenant in {None, source.descriptor.tenant}
        ]
        told = await self.told_counts(followed)
        report = self.staleness.report(pod=pod, model=model, state=state, tenant=tenant, told=told)
        return await Slices(self._clock).run(report)

    async def explain(self, query: LookupQuery, dp_rank: int | None) -> ExplainAnswer:
        """Why each source that a lookup lists holds no more of the prompt."""
        core, histories = self._core, await self._histories_for(query)
        explainer = (await loaded(_explainer))(
            core.lookup,
            core.registry,
            core.mirror,
            self._clock,
            tier_ttls=core.tier_ttls,
            follows=self.follows,
            told=lambda key: core.history.kept(key) if histories is None else histories.get(key, ()),
        )
        return await Slices(self._clock).run(explainer.explain(query, dp_rank))

    async def _histories_for(self, query: LookupQuery) -> dict[SourceId, list[Told]] | None:
        """Of few sources as the store has them, other replicas' entries too; None: this process's own will do."""
        listed = self._core.lookup.candidates(query).listed
        if self._replica is None or len(listed) > HISTORIES_READ:
            return None
        told = {}
        for source in [candidate.source.descriptor.id for candidate in listed]:
            told[source], _ = await self._replica.histories.read([source], None, HISTORY_WHOLE)
        return told

    def take_feedback(self, report: FeedbackReport) -> FeedbackResult:
        """What an engine really reused; and its request is over."""
        result = self.feedback.take(report)
        if report.request_id is not None:
            self._core.loads.ended(report.request_id, report.query.tenant)
        return result

    def measure(self) -> None:
        """Have `telemetry` know what is counted here."""
        self._telemetry.feedback = self.consistency.counts()
        self._telemetry.receipts.speculative_blocks = self._core.speculation.blocks

    # -- housekeeping --------------------------------------------------------------------------------------------------

    def look(self) -> Generator[None, None, None]:
        """Once a second. Between its steps others may run."""
        yield from self.staleness.sample()
        yield from self.feedback.tidy()
        yield from self._core.loads.look(self._core.registry.sources)
        self.routed.look()

    def tidy(self) -> bool:
        """One slice; True while there is more to do."""
        busy = self._core.speculation.tidy_slice(self._clock.now())
        busy = self._core.loads.tidy(self._clock.now()) or busy
        return self.answers.tidy() or busy


def _explainer() -> type[Explainer]:
    from indexer.explain.asking_why import Explainer  # noqa: PLC0415 - half a megabyte, and few ask

    return Explainer
