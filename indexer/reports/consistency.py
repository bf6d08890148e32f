"""The consistency report: what was answered beside what engines really reused. No I/O.

As this replica saw it: it knows of the lookups that it answered, and a report has to come to the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.moments import utc_text
from indexer.reports.causes import CAUSES
from indexer.reports.feedback import AGES_AT, CAUSES_AT, NUMBERS, WIDTH
from indexer.reports.sums import WINDOWS
from indexer.telemetry import FeedbackCounts
from indexer.trust import AGE_CLASSES
from schemas.reports import (
    AgeFigures,
    AnswersKept,
    CauseFigures,
    ConsistencyFigures,
    ConsistencyReport,
    ConsistencyRow,
    ConsistencyTotal,
    ConsistencyTrend,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.lookup_view import FleetView
    from indexer.ports import Clock
    from indexer.receipts.answered import Answers
    from indexer.reports.feedback import Feedback
    from indexer.reports.sums import Sums
    from schemas.reports import WindowName

DRIFT: Final = "drift"
"""The doubt of a source that drifted."""
_HOUR: Final[WindowName] = "1h"
_DAY: Final[WindowName] = "24h"
_NAMES: Final[tuple[WindowName, ...]] = ("1m", "10m", _HOUR, _DAY)


class Consistency:
    """Reports what `feedback` has summed up."""

    def __init__(self, registry: Registry, view: FleetView, feedback: Feedback, answers: Answers, clock: Clock) -> None:
        self._registry = registry
        self._view = view
        self.feedback = feedback
        self._answers = answers
        self._clock = clock
        self._began = clock.now()

    def counts(self) -> FeedbackCounts:
        """For the metrics."""
        feedback, answers = self.feedback, self._answers
        return FeedbackCounts(
            results=feedback.results,
            false_tokens=feedback.false_tokens,
            lost_tokens=feedback.lost_tokens,
            answers=len(answers),
            answers_bytes=answers.bytes,
            answers_forgotten=answers.dropped,
        )

    def report(
        self, *, pod: str | None, model: str | None, tenant: str | None, window: WindowName | None
    ) -> Generator[None, None, ConsistencyReport]:
        """All that match, by pod and rank. A generator that returns it; between its steps others may run."""
        shown = _NAMES if window is None else (window,)
        rows: list[ConsistencyRow] = []
        totals: dict[tuple[str, str], dict[str, list[int]]] = {}
        for key in sorted(self.feedback.judged):
            yield
            judged, source = self.feedback.judged.get(key), self._registry.sources.get(key)
            if judged is None or judged.sums is None or source is None:
                continue
            described = source.descriptor
            if judged.tenant != described.tenant:
                continue  # of another tenant's, that went by its name until just now
            if pod not in {None, described.pod} or model not in {None, described.model}:
                continue
            if tenant in {None, described.tenant}:
                sums = self._sums(judged.sums)
                rows.append(self._row(source, sums, shown))
                _add(totals.setdefault((described.model or "", described.tenant), {}), sums)
        return ConsistencyReport(
            at=utc_text(self._clock.wall_us() / 1e6),
            seen_s=int(self._clock.now() - self._began),
            answers=self._kept(tenant),
            totals=[
                ConsistencyTotal(model=of or None, tenant=owner, trend=_trend(sums), windows=_windows(sums, shown))
                for (of, owner), sums in sorted(totals.items())
            ],
            sources=rows,
        )

    def _kept(self, tenant: str | None) -> AnswersKept:
        """A tenant is told nothing of others."""
        kept, answers = self._answers.kept(tenant), self._answers
        return AnswersKept(
            count=kept.answers,
            bytes=answers.bytes if tenant is None else None,
            horizon_s=answers.options.horizon_s,
            oldest_s=round(kept.oldest_s, 3),
            forgotten_early=answers.dropped if tenant is None else None,
        )

    def _sums(self, sums: Sums) -> dict[str, list[int]]:
        second = int(self._clock.now())
        return {window.name: sums.over(window.name, second) for window in WINDOWS}

    def _row(self, source: SourceIndex, sums: dict[str, list[int]], shown: Sequence[WindowName]) -> ConsistencyRow:
        described = source.descriptor
        return ConsistencyRow(
            pod=described.pod,
            dp_rank=described.dp_rank,
            model=described.model,
            tenant=described.tenant,
            state=self._view.prepared(source, self._clock.now()).state,
            drifted=DRIFT in source.facts.doubts,
            trend=_trend(sums),
            windows=_windows(sums, shown),
        )


def _add(total: dict[str, list[int]], sums: dict[str, list[int]]) -> None:
    for name, row in sums.items():
        before = total.get(name, [0] * WIDTH)
        total[name] = [one + other for one, other in zip(before, row, strict=True)]


def _windows(sums: dict[str, list[int]], shown: Sequence[WindowName]) -> dict[WindowName, ConsistencyFigures]:
    return {name: figures_of(sums[name]) for name in shown}


def figures_of(row: Sequence[int]) -> ConsistencyFigures:
    """A row of sums by its names; ages and causes of which there is nothing are left out."""
    ages = {name: row[AGES_AT + 3 * place : AGES_AT + 3 * place + 3] for place, name in enumerate(AGE_CLASSES)}
    causes = {name: row[CAUSES_AT + 2 * place : CAUSES_AT + 2 * place + 2] for place, name in enumerate(CAUSES)}
    return ConsistencyFigures(
        exact_share=_share(row),
        by_age={
            name: AgeFigures(samples=samples, false_hit_tokens=false, lost_hit_tokens=lost)
            for name, (samples, false, lost) in ages.items()
            if samples
        },
        causes={
            name: CauseFigures(samples=samples, tokens=tokens) for name, (samples, tokens) in causes.items() if samples
        },
        **dict(zip(NUMBERS, row, strict=False)),
    )


def _trend(sums: dict[str, list[int]]) -> ConsistencyTrend:
    hour, day = _share(sums[_HOUR]), _share(sums[_DAY])
    change = None if hour is None or day is None else round(hour - day, 6)
    return ConsistencyTrend(exact_share_1h=hour, exact_share_24h=day, change=change)


def _share(row: Sequence[int]) -> float | None:
    samples, exact = row[0], row[1]
    return round(exact / samples, 6) if samples else None
