"""Reports of what engines really reused: joined to what was answered, compared, and summed up by source. No I/O.

A report that cannot be joined is counted and goes into no figure: whoever may report could otherwise say anything of a
request that was never asked about. Nothing is kept of single reports but that they came.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.errors import BadRequestError, FieldIssue, NotRoutedError
from indexer.model import DEFAULT_TENANT
from indexer.receipts.whose import source_of
from indexer.reports.causes import CAUSES, Compared, cause_of
from indexer.reports.drift import Drift, DriftLimits
from indexer.reports.sums import Sums
from indexer.trust import AGE_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from indexer.happenings import Happening, What
    from indexer.index.registry import Registry, Resolved
    from indexer.index.source import SourceIndex
    from indexer.model import SourceId
    from indexer.ports import Clock
    from indexer.receipts.answer import Answered, Predicted
    from indexer.receipts.answered import Answers
    from indexer.reports.causes import MismatchCause
    from schemas.feedback import FeedbackReport, FeedbackResult
    from schemas.lookup import LookupQuery

NUMBERS: Final = (
    "samples",
    "exact",
    "predicted_tokens",
    "real_tokens",
    "false_hit_tokens",
    "lost_hit_tokens",
    "regret_tokens",
    "unjoined",
    "failed",
)
"""Of each row of sums; then three for each age (samples, false, lost), and two for each cause (samples, tokens)."""
AGES_AT: Final = len(NUMBERS)
CAUSES_AT: Final = AGES_AT + 3 * len(AGE_CLASSES)
WIDTH: Final = CAUSES_AT + 2 * len(CAUSES)
_UNJOINED: Final = NUMBERS.index("unjoined")
_FAILED: Final = NUMBERS.index("failed")
MARKS_KEPT: Final = 32
_MARKS: Final[Mapping[What, str]] = {
    "gap": "gap",
    "restart": "restart",
    "clear": "clear",
    "cleared_by_engine": "clear",
    "forgotten": "clear",
}
"""What may happen to a source between an answer and its report, and explains a difference."""


class Mark(NamedTuple):
    """It happened then."""

    at: float
    what: str


class Since(NamedTuple):
    """What happened to a source since an answer."""

    marks: frozenset[str]
    evicted: bool
    stored: bool


class Judged:
    """What is kept of one source."""

    __slots__ = ("drift", "marks", "sums", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.sums: Sums | None = None
        """Made with the first report: most sources of a large fleet may never have one."""
        self.marks: deque[Mark] = deque(maxlen=MARKS_KEPT)
        self.drift = Drift()

    def add(self, second: int, *numbers: tuple[int, int]) -> None:
        """Into all windows."""
        if self.sums is None:
            self.sums = Sums(WIDTH)
        self.sums.add(second, numbers)


class Feedback:
    """One a process. `resolve`: what a model's name means to a tenant; `limits`: when a source drifts.

    `follows`: whether another replica applies a source's events.
    """

    def __init__(
        self,
        registry: Registry,
        answers: Answers,
        clock: Clock,
        *,
        resolve: Callable[[str | None, str], Resolved],
        limits: DriftLimits,
        follows: Callable[[SourceId], bool] = lambda _: False,
    ) -> None:
        self._registry = registry
        self._answers = answers
        self._clock = clock
        self._resolve = resolve
        self._limits = limits
        self._follows = follows
        self.judged: dict[SourceId, Judged] = {}
        self.results: Counter[str] = Counter()
        self.false_tokens = 0
        self.lost_tokens = 0
        self.drifted: dict[SourceId, int] = {}
        """Sources that nobody has looked after yet, with the generation that drifts."""

    def happened(self, key: SourceId, happening: Happening) -> None:
        """To a source, just now."""
        what = _MARKS.get(happening.what)
        source = self._registry.sources.get(key)
        if what is not None and source is not None:
            self._of(source).marks.append(Mark(self._clock.now(), what))

    def tidy(self) -> Generator[None, None, None]:
        """Give back what is kept of sources that are gone, a step a source."""
        for key in list(self.judged):
            yield
            source, judged = self._registry.sources.get(key), self.judged.get(key)
            if judged is not None and (source is None or source.descriptor.tenant != judged.tenant):
                del self.judged[key]

    def take_drifted(self) -> dict[SourceId, int]:
        """Sources that drifted since the last call, each with the generation that does."""
        drifted, self.drifted = self.drifted, {}
        return drifted

    def take(self, report: FeedbackReport) -> FeedbackResult:
        """Take one. Raises `SourceUnknownError` and `BadRequestError`."""
        tenant = report.query.tenant or DEFAULT_TENANT
        source = self._source(report, tenant)
        _check_tokens(report, report.prompt_tokens)
        result = self._taken(report, source, tenant)
        self.results[result] += 1
        return result

    def _source(self, report: FeedbackReport, tenant: str) -> SourceIndex:
        """The one that it is about: a pod's only rank need not be told, nor where a routed request went."""
        pod, dp_rank = report.pod, report.dp_rank
        if pod is None:
            answered = None if report.request_id is None else self._answers.find(report.request_id, tenant)
            if answered is None or answered.routed is None:
                raise NotRoutedError
            pod, dp_rank = answered.routed
        return source_of(self._registry, pod, dp_rank, tenant)

    def _taken(self, report: FeedbackReport, source: SourceIndex, tenant: str) -> FeedbackResult:
        judged, second = self._of(source), int(self._clock.now())
        if not report.ok:
            judged.add(second, (_FAILED, 1))
            return "failed"
        answered = self._answered(report, source, tenant)
        predicted = None if answered is None else answered.predicted(source.rendezvous_name)
        if answered is None or predicted is None:
            judged.add(second, (_UNJOINED, 1))
            return "unjoined"
        if not answered.open_end:
            _check_tokens(report, report.prompt_tokens or answered.prompt_tokens)
        fed = answered.feed(source.rendezvous_name, report.request_id)
        if fed == "repeated":
            return "repeated"
        compared = self._compared(report, source, answered, predicted, judged)
        cause = cause_of(compared)
        self._count(compared, cause, judged, second)
        # Who sends one report again and again must not turn a source suspect, nor have it cleared.
        if fed == "first" and judged.drift.take(compared, cause, self._limits):
            self.drifted[source.descriptor.id] = compared.generation
        return "joined"

    def _answered(self, report: FeedbackReport, source: SourceIndex, tenant: str) -> Answered | None:
        """The lookup that it is about: by request id, else the newest one of the same prompt."""
        query = report.query
        found = None if report.request_id is None else self._answers.find(report.request_id, tenant)
        if found is not None or (query.tokens is None and query.block_hashes is None):
            return found
        if query.model is not None:
            resolved = self._resolve(query.model, tenant)
            return self._answers.find_prompt(query, query.lora_name or resolved.lora_name, resolved.model)
        models = dict.fromkeys((source.model, None))
        return next(
            (each for each in (self._answers.find_prompt(query, query.lora_name, model) for model in models) if each),
            None,
        )

    def _compared(
        self, report: FeedbackReport, source: SourceIndex, answered: Answered, predicted: Predicted, judged: Judged
    ) -> Compared:
        query, since = report.query, self._since(answered.at, source, judged)
        return Compared(
            predicted=predicted,
            real_tokens=report.cached_tokens,
            asked_tokens=answered.prompt_tokens,
            prompt_tokens=answered.prompt_tokens if report.prompt_tokens is None else report.prompt_tokens,
            partial=answered.partial or answered.open_end,
            other_adapter=self._is_other_adapter(query, answered),
            other_salt=query.cache_salt is not None and self._answers.salt_digest(query.cache_salt) != answered.salt,
            generation=source.facts.generation,
            approximate=source.facts.is_approximate,
            marks=since.marks,
            evicted=since.evicted,
            stored=since.stored,
        )

    def _since(self, at: float, source: SourceIndex, judged: Judged) -> Since:
        """What happened to it since then.

        Where another replica applies its events, it is known that there were some, and not what they said.
        """
        if self._follows(source.descriptor.id):
            facts = source.facts
            came = facts.message_at is not None and facts.message_at >= at
            return Since(frozenset({"gap"} & facts.doubts), evicted=came, stored=came)
        events = source.tier_events
        return Since(
            frozenset(mark.what for mark in judged.marks if mark.at >= at),
            evicted=any(tier.removed_at >= at for tier in events),
            stored=any(tier.stored_at >= at for tier in events),
        )

    def _is_other_adapter(self, query: LookupQuery, answered: Answered) -> bool:
        """Whether the report names another adapter, or none by name, than the lookup did."""
        if query.lora_name is None and query.model is None:
            return False
        adapter = query.lora_name or self._resolve(query.model, answered.tenant).lora_name
        return adapter != answered.lora_name

    def _count(self, compared: Compared, cause: MismatchCause | None, judged: Judged, second: int) -> None:
        said, false, lost = compared.predicted, compared.false_tokens, compared.lost_tokens
        self.false_tokens += false
        self.lost_tokens += lost
        age = AGES_AT + 3 * AGE_CLASSES.index(said.trust.age)
        regret = said.best_tokens - said.reusable_tokens
        row = (1, int(cause is None), said.reusable_tokens, compared.real_tokens, false, lost, regret)
        numbers = [*enumerate(row), (age, 1), (age + 1, false), (age + 2, lost)]
        if cause is not None:
            place = CAUSES_AT + 2 * CAUSES.index(cause)
            numbers += [(place, 1), (place + 1, false + lost)]
        judged.add(second, *numbers)

    def _of(self, source: SourceIndex) -> Judged:
        """What is kept of a source; nothing of another tenant's that went by its name."""
        key, tenant = source.descriptor.id, source.descriptor.tenant
        judged = self.judged.get(key)
        if judged is None or judged.tenant != tenant:
            judged = self.judged[key] = Judged(tenant)
        return judged


def _check_tokens(report: FeedbackReport, prompt_tokens: int | None) -> None:
    if prompt_tokens is not None and report.cached_tokens > prompt_tokens:
        rule = f"at most the prompt's {prompt_tokens} tokens"
        raise BadRequestError("cached_tokens.too_many", [FieldIssue("cached_tokens", rule, str(report.cached_tokens))])
