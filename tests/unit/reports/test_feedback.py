"""Feedback: what is joined to an answer and counts, what does not, and what the report makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from indexer.errors import BadRequestError, NotRoutedError, SourceUnknownError
from indexer.model import SourceId
from indexer.receipts.answer import FED_MAX
from indexer.receipts.answered import AnswerOptions, Answers
from indexer.reports.consistency import Consistency
from indexer.reports.drift import DriftLimits
from indexer.reports.feedback import Feedback
from schemas.feedback import FeedbackReport, FeedbackResult
from schemas.lookup import LookupQuery
from schemas.reports import ConsistencyFigures, ConsistencyReport
from tests.support.core import Core
from tests.support.core_events import CLEARED, prompt, stored, u32
from tests.support.steps import done

SAMPLES: Final = 10


@dataclass
class Reporting:
    """A core that answers, is told what came of it, and reports."""

    core: Core
    feedback: Feedback
    consistency: Consistency

    def told(
        self,
        cached: int,
        request_id: str | None = "r",
        pod: str | None = "a",
        *,
        query: dict[str, Any] | None = None,
        **more: Any,  # noqa: ANN401  passed on as it is
    ) -> FeedbackResult:
        report = FeedbackReport(
            pod=pod, request_id=request_id, cached_tokens=cached, query=LookupQuery(**(query or {})), **more
        )
        return self.feedback.take(report)

    def report(self, **filters: str) -> ConsistencyReport:
        whole: dict[str, Any] = {"pod": None, "model": None, "tenant": None, "window": None, **filters}
        return done(self.consistency.report(**whole))

    def figures(self, pod: str = "a") -> ConsistencyFigures:
        (row,) = self.report(pod=pod).sources
        return row.windows["1h"]


@pytest.fixture
def reporting() -> Reporting:
    """Of nobody yet."""
    core = Core()
    answers = core.lookup.answers = Answers(core.clock, AnswerOptions(), 1, lambda _: None)
    feedback = Feedback(
        core.registry, answers, core.clock, resolve=core.registry.resolve, limits=DriftLimits(SAMPLES, 0.2)
    )
    core.ingest.happened = lambda source, happening: feedback.happened(source.descriptor.id, happening)
    return Reporting(core, feedback, Consistency(core.registry, core.lookup.view, feedback, answers, core.clock))


def _held(core: Core, pod: str, blocks: int, **descriptor: Any) -> None:  # noqa: ANN401  passed on as it is
    core.engine(pod, **descriptor).say(stored(range(1, blocks + 1), prompt(blocks)))


def test_an_answer_is_compared_with_what_came_of_it(reporting: Reporting) -> None:
    """In tokens: right, promised in vain, or not known."""
    _held(reporting.core, "a", 4, model="m")
    reporting.core.clock.at += 1.0
    for name in ("right", "less", "more"):
        reporting.core.ask(prompt(9), request_id=name, model="m")

    told = [reporting.told(16, "right"), reporting.told(4, "less"), reporting.told(24, "more")]

    assert ["joined"] * 3 == told
    figures = reporting.figures()
    assert (3, 1, 0.333333) == (figures.samples, figures.exact, figures.exact_share)
    assert (48, 44, 12, 8) == (
        figures.predicted_tokens,
        figures.real_tokens,
        figures.false_hit_tokens,
        figures.lost_hit_tokens,
    )
    assert (12, 8) == (reporting.feedback.false_tokens, reporting.feedback.lost_tokens)
    assert {"unknown": 20} == {name: cause.tokens for name, cause in figures.causes.items()}


def test_regret_is_what_the_best_source_was_said_to_reuse_beyond_the_chosen_one(reporting: Reporting) -> None:
    """None where the best was chosen."""
    _held(reporting.core, "a", 1)
    _held(reporting.core, "b", 3)
    reporting.core.ask(prompt(5), request_id="r")

    reporting.told(4, pod="a")
    reporting.told(12, pod="b")

    assert (8, 0) == (reporting.figures("a").regret_tokens, reporting.figures("b").regret_tokens)


def test_ages_of_the_information_are_told_apart(reporting: Reporting) -> None:
    """Each with what was wrong at that age."""
    _held(reporting.core, "a", 2)
    reporting.core.ask(prompt(5), request_id="young")
    reporting.core.clock.at += 3.0
    reporting.core.alive()
    reporting.core.ask(prompt(5), request_id="old")

    reporting.told(8, "young")
    reporting.told(4, "old")

    ages = {name: (age.samples, age.false_hit_tokens) for name, age in reporting.figures().by_age.items()}
    assert {"under_100ms": (1, 0), "under_5s": (1, 4)} == ages


def test_a_request_counts_once_for_each_pod(reporting: Reporting) -> None:
    """Whoever repeats a report, not knowing whether it came, changes nothing."""
    _held(reporting.core, "a", 2)
    _held(reporting.core, "b", 2)
    reporting.core.ask(prompt(5), request_id="r")

    told = [reporting.told(8), reporting.told(4), reporting.told(8, pod="b")]

    assert ["joined", "repeated", "joined"] == told
    assert (1, 1) == (reporting.figures("a").exact, reporting.figures("b").exact)
    assert {"joined": 2, "repeated": 1} == reporting.feedback.results


def test_a_request_that_was_routed_needs_no_pod(reporting: Reporting) -> None:
    """It is known where it went; where it is not, the report is refused."""
    _held(reporting.core, "a", 2)
    _held(reporting.core, "b", 1)
    answers = reporting.core.lookup.answers
    assert answers is not None
    reporting.core.ask(prompt(5), request_id="r")
    with pytest.raises(NotRoutedError):
        reporting.told(8, pod=None)
    answers.sent("r", None, SourceId("a", 0))
    answers.sent("r", None, SourceId("b", 0))
    answers.sent("s", None, SourceId("b", 0))
    with pytest.raises(NotRoutedError):
        reporting.told(8, "s", pod=None)

    assert "joined" == reporting.told(4, pod=None)

    assert (["b"], 1) == ([row.pod for row in reporting.report().sources], reporting.figures("b").exact)


def test_reports_of_what_was_never_asked_count_as_such_alone(reporting: Reporting) -> None:
    """Nor those about a pod that the answer was not about, nor those of failed requests."""
    _held(reporting.core, "a", 2, model="m")
    _held(reporting.core, "b", 2, model="other")
    reporting.core.ask(prompt(5), request_id="r", model="m")

    told = [reporting.told(8, "unheard of"), reporting.told(8, pod="b"), reporting.told(0, ok=False)]

    assert ["unjoined", "unjoined", "failed"] == told
    assert (0, None, 1, 1) == (
        reporting.figures("a").samples,
        reporting.figures("a").exact_share,
        reporting.figures("a").unjoined,
        reporting.figures("a").failed,
    )
    assert 1 == reporting.figures("b").unjoined


def test_a_source_that_could_not_be_counted_was_not_predicted(reporting: Reporting) -> None:
    """Cordoned, it was listed with 0, which says nothing of what it holds."""
    _held(reporting.core, "a", 2)
    reporting.core.cordon("a", cordoned=True)
    reporting.core.ask(prompt(5), request_id="r")

    assert "unjoined" == reporting.told(8)


def test_a_prompt_stands_for_its_newest_lookup(reporting: Reporting) -> None:
    """By its tokens, where no request is named; with the model, or of the pod's own."""
    _held(reporting.core, "a", 2, model="m")
    reporting.core.ask(prompt(5), request_id="r", model="m")
    tokens = {"tokens": u32(prompt(5))}

    assert "joined" == reporting.told(8, None, query=tokens)
    assert "joined" == reporting.told(8, None, query={**tokens, "model": "m"})
    assert "unjoined" == reporting.told(8, None, query={"tokens": u32(prompt(6))})
    assert "joined" == reporting.told(8, "another name", query=tokens)
    assert "repeated" == reporting.told(8, "another name", query=tokens)
    assert 3 == reporting.figures().exact


def test_what_cannot_be_is_refused(reporting: Reporting) -> None:
    """Each with the field."""
    core = reporting.core
    _held(core, "a", 2)
    core.engine("two", dp_rank=0)
    core.engine("two", dp_rank=1)
    core.ask(prompt(5), request_id="r")

    for error, code, report in (
        (BadRequestError, "cached_tokens.too_many", {"cached": 9, "prompt_tokens": 8}),
        (BadRequestError, "cached_tokens.too_many", {"cached": 21}),
        (BadRequestError, "dp_rank.missing", {"cached": 0, "pod": "two"}),
        (SourceUnknownError, None, {"cached": 0, "pod": "nobody"}),
    ):
        with pytest.raises(error) as refused:
            reporting.told(**report)
        assert code == getattr(refused.value, "code", None)
    assert "unjoined" == reporting.told(0, "unheard of", pod="two", dp_rank=1)
    assert "joined" == reporting.told(8)


def test_tenants_report_of_their_own(reporting: Reporting) -> None:
    """Another's request id is unheard of, and its pod is not there."""
    _held(reporting.core, "a", 2, tenant="one")
    _held(reporting.core, "b", 2, tenant="two")
    reporting.core.ask(prompt(5), request_id="r", tenant="one")

    with pytest.raises(SourceUnknownError):
        reporting.told(8, query={"tenant": "two"})
    assert "unjoined" == reporting.told(8, pod="b", query={"tenant": "two"})
    assert "joined" == reporting.told(8, query={"tenant": "one"})
    own, whole = reporting.report(tenant="one"), reporting.report()
    assert ["a"] == [row.pod for row in own.sources]
    reporting.core.ask(prompt(5), request_id="s", tenant="two")
    assert (1, None, None) == (own.answers.count, own.answers.bytes, own.answers.forgotten_early)
    assert (1, 0) == (whole.answers.count, whole.answers.forgotten_early)
    assert 2 == reporting.report().answers.count


def test_of_a_source_that_another_replica_applies_less_is_known(reporting: Reporting) -> None:
    """That messages came, or were lost, since it was answered; where nothing came, nothing explains it here either."""
    core, feedback = reporting.core, reporting.feedback
    feedback._follows = lambda _: True
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)))
    for name in ("quiet", "busy", "lost"):
        core.clock.at += 1.0
        core.ask(prompt(5), request_id=name)
        if name == "busy":
            engine.say()
        elif name == "lost":
            engine.source.facts.doubts.add("gap")
        reporting.told(4, name)

    causes = {name: cause.samples for name, cause in reporting.figures().causes.items()}

    assert {"unknown": 1, "eviction_in_flight": 1, "gap": 1} == causes


def test_the_report_is_of_windows_and_of_models(reporting: Reporting) -> None:
    """Filtered as asked; sums of a model are those of its sources."""
    for pod, model in (("a", "m"), ("b", "m"), ("c", "n")):
        _held(reporting.core, pod, 2, model=model)
        reporting.core.ask(prompt(5), request_id=pod, model=model)
        reporting.told(8 if pod != "b" else 4, pod, pod)

    report = reporting.report(window="10m")

    assert ["a", "b", "c"] == [row.pod for row in report.sources]
    assert [["10m"]] * 3 == [list(row.windows) for row in report.sources]
    assert {"m": (2, 1, 4), "n": (1, 1, 0)} == {
        total.model: (
            total.windows["10m"].samples,
            total.windows["10m"].exact,
            total.windows["10m"].false_hit_tokens,
        )
        for total in report.totals
    }
    assert ["c"] == [row.pod for row in reporting.report(model="n").sources]
    assert (3, 0) == (report.answers.count, report.answers.forgotten_early)
    assert report.answers.bytes


def test_the_trend_is_the_last_hour_beside_the_last_day(reporting: Reporting) -> None:
    """Worse of late is below nothing."""
    _held(reporting.core, "a", 2)
    reporting.core.ask(prompt(5), request_id="r")
    reporting.told(8)
    reporting.core.clock.at += 7_200.0
    reporting.core.alive()
    reporting.core.ask(prompt(5), request_id="s")
    reporting.told(4, "s")

    (row,) = reporting.report().sources

    assert (0.0, 0.5, -0.5) == (row.trend.exact_share_1h, row.trend.exact_share_24h, row.trend.change)
    reporting.core.clock.at += 86_400.0 * 2
    (row,) = reporting.report().sources
    assert (None, None) == (row.trend.exact_share_24h, row.trend.change)


def test_what_is_kept_of_a_source_goes_with_it(reporting: Reporting) -> None:
    """And is no other tenant's that comes under its name."""
    _held(reporting.core, "a", 2, tenant="one")
    reporting.core.ask(prompt(5), request_id="r", tenant="one")
    reporting.told(8, query={"tenant": "one"})
    reporting.core.remove("a")
    _held(reporting.core, "a", 2, tenant="two")
    assert ([], []) == (reporting.report(tenant="two").sources, reporting.report().totals)
    reporting.core.ask(prompt(5), request_id="r", tenant="two")
    reporting.told(8, query={"tenant": "two"})

    assert 1 == reporting.figures().samples
    reporting.core.remove("a")
    done(reporting.feedback.tidy())
    assert {} == reporting.feedback.judged


def test_what_is_kept_of_one_tenant_is_given_back_where_another_has_the_name(reporting: Reporting) -> None:
    """Without a report of that one."""
    _held(reporting.core, "a", 2, tenant="one")
    reporting.core.ask(prompt(5), request_id="r", tenant="one")
    reporting.told(8, query={"tenant": "one"})
    reporting.core.remove("a")
    _held(reporting.core, "a", 2, tenant="two")

    done(reporting.feedback.tidy())

    assert not any(judged.sums for judged in reporting.feedback.judged.values())


@pytest.mark.parametrize(
    "names",
    [[None], ["r"], ["its own"], [f"its own {number}" for number in range(FED_MAX + 1)]],
    ids=["unnamed", "as asked", "as reported", "more than are remembered"],
)
def test_what_may_have_been_told_before_is_no_drift(reporting: Reporting, names: list[str | None]) -> None:
    """However often wrong reports of one answer come again, they do not turn the source suspect."""
    _held(reporting.core, "a", 2)
    reporting.core.ask(prompt(5), request_id="r")
    few = reporting.feedback._limits = DriftLimits(FED_MAX + 1, 0.2)

    for _ in range(few.samples):
        for name in names:
            reporting.told(0, name, query={"tokens": u32(prompt(5))})

    assert {} == reporting.feedback.take_drifted()


def test_a_source_that_is_wrong_again_and_again_drifts(reporting: Reporting) -> None:
    """It is told once, with the generation that does; a clear ends it."""
    core = reporting.core
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)))
    before = engine.source.facts.generation
    for number in range(2 * SAMPLES - 1):
        core.ask(prompt(5), request_id=f"r{number}")
        reporting.told(0, f"r{number}")

    assert {engine.source.descriptor.id: before} == reporting.feedback.take_drifted()
    assert {} == reporting.feedback.take_drifted()

    engine.sink.doubt("drift")
    (row,) = reporting.report().sources
    assert ("suspect", True) == (row.state, row.drifted)
    engine.say(CLEARED)
    (row,) = reporting.report().sources
    assert ("live", False) == (row.state, row.drifted)
