"""The consistency report, fed with the engines' own answers as feedback, agrees with them to the token."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from indexer.receipts.answered import AnswerOptions, Answers
from indexer.reports.consistency import Consistency
from indexer.reports.drift import DriftLimits
from indexer.reports.feedback import Feedback
from loadtest.trust.streams import losses
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from tests.support.core import Core
from tests.support.core_traces import NAMES, Recording, recording
from tests.support.listener import Listener
from tests.support.steps import done

if TYPE_CHECKING:
    from collections.abc import Collection

    from schemas.reports import ConsistencyFigures

LOSSES: Final = (0.001, 0.05)
SECONDS_A_PROBE: Final = 0.5


@dataclass
class Compared:
    """What a report should say of one pod, counted from answers and truth alone."""

    samples: int = 0
    exact: int = 0
    predicted: int = 0
    real: int = 0
    false: int = 0
    lost: int = 0
    regret: int = 0

    def add(self, said: int, cached: int, best: int) -> None:
        """One answer."""
        self.samples += 1
        self.exact += said == cached
        self.predicted += said
        self.real += cached
        self.false += max(0, said - cached)
        self.lost += max(0, cached - said)
        self.regret += best - said


class Reported:
    """A recording through a core whose answers are remembered, and reported of."""

    def __init__(self, recorded: Recording, lost: Collection[int] = ()) -> None:
        self.recorded = recorded
        self.lost = lost
        self.core = core = Core()
        answers = core.lookup.answers = Answers(core.clock, AnswerOptions(), 1, lambda _: None)
        self.feedback = Feedback(
            core.registry, answers, core.clock, resolve=core.registry.resolve, limits=DriftLimits(100, 0.1)
        )
        core.ingest.happened = lambda source, happening: self.feedback.happened(source.descriptor.id, happening)
        self.consistency = Consistency(core.registry, core.lookup.view, self.feedback, answers, core.clock)
        self.pods = [str(pod.pod) for pod in recorded.header.pods]
        self.listeners = [Listener(core.engine(pod).sink) for pod in self.pods]
        self.expected = {pod: Compared() for pod in self.pods}
        self.results: Counter[str] = Counter()

    def play(self) -> None:
        """All of it: each probe is asked as a lookup, and what the engines would reuse is reported."""
        position = 0
        for number, probe in enumerate(self.recorded.probes):
            for place in range(position, probe.n):
                if place not in self.lost:
                    message = self.recorded.messages[place]
                    self.listeners[message.pod].hear(message)
            position = probe.n
            self.core.clock.at += SECONDS_A_PROBE
            self.core.alive()
            name = f"probe-{number}"
            answer = self.core.ask(self.recorded.prompts[probe.prompt], request_id=name)
            best = max(entry.reusable_tokens for entry in answer.pods)
            for pod, cached in zip(self.pods, probe.cached, strict=True):
                self.expected[pod].add(answer[pod].reusable_tokens, cached, best)
                report = FeedbackReport(pod=pod, request_id=name, cached_tokens=cached, query=LookupQuery())
                self.results[self.feedback.take(report)] += 1

    def figures(self) -> dict[str, ConsistencyFigures]:
        """By pod, of the day."""
        report = done(self.consistency.report(pod=None, model=None, tenant=None, window="24h"))
        return {row.pod: row.windows["24h"] for row in report.sources}

    def told(self) -> dict[str, Compared]:
        """The same as expected, as the report tells it."""
        return {
            pod: Compared(
                samples=told.samples,
                exact=told.exact,
                predicted=told.predicted_tokens,
                real=told.real_tokens,
                false=told.false_hit_tokens,
                lost=told.lost_hit_tokens,
                regret=told.regret_tokens,
            )
            for pod, told in self.figures().items()
        }


@pytest.mark.parametrize("name", NAMES)
def test_without_losses_every_answer_is_right(name: str) -> None:
    """No token false, none lost; all that engines reused stands in the report."""
    reported = Reported(recorded := recording(name))

    reported.play()

    assert reported.expected == reported.told()
    assert all(told.exact == told.samples == len(recorded.probes) for told in reported.told().values())
    assert {"joined": 3 * len(recorded.probes)} == reported.results
    assert (0, 0, {}) == (reported.feedback.false_tokens, reported.feedback.lost_tokens, reported.feedback.drifted)
    assert sum(map(sum, (probe.cached for probe in recorded.probes))) == sum(t.real for t in reported.told().values())


@pytest.mark.parametrize("share", LOSSES)
def test_with_losses_the_report_is_wrong_by_what_the_answers_are(share: float) -> None:
    """To the token, by pod; the gaps are the cause, and no source that is known to be in doubt drifts."""
    recorded = recording("eviction")
    reported = Reported(recorded, losses(recorded.messages, share, 7))

    reported.play()

    told, figures = reported.told(), reported.figures()
    assert reported.expected == told
    assert (sum(each.false for each in told.values()), sum(each.lost for each in told.values())) == (
        reported.feedback.false_tokens,
        reported.feedback.lost_tokens,
    )
    assert sum(each.lost for each in told.values()) > 0
    assert {"gap"} == {cause for each in figures.values() for cause in each.causes}
    assert {} == reported.feedback.drifted
