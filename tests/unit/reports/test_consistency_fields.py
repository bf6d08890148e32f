"""Each field of the consistency report, from the list in the code, tells what happened and not what it always tells."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
import pytest

from indexer.receipts.answered import AnswerOptions, Answers
from indexer.reports.consistency import Consistency
from indexer.reports.drift import DriftLimits
from indexer.reports.feedback import Feedback
from indexer.trust import AGE_CLASSES
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from schemas.reports import ConsistencyReport, WindowName
from tests.support.core import Core
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.report_fields import fields_of, said
from tests.support.steps import done

KEPT_MAX: Final = 4
RECORD_BYTES: Final = range(600, 700)
OPTIONS: Final = AnswerOptions(horizon_s=90_000.0, bytes_max=KEPT_MAX * RECORD_BYTES.stop, prompt_bytes=0)
KEYS: Final = {"by_age": "under_5s", "causes": "unknown"}
AGO_S: Final = (18_000.0, 1_800.0, 300.0, 0.0)
"""When it all happened: once in the last minute, twice in ten, and so on; first of all, all was right once more."""
AFTER_S: Final = 2.5


class Story:
    """Two engines of one model that answer, and what is reported of these answers."""

    def __init__(self, options: AnswerOptions = OPTIONS, *, silent: bool = False) -> None:
        self.core = Core(silent_block_sizes={"m": BLOCK} if silent else {})
        self.answers = self.core.lookup.answers = Answers(self.core.clock, options, 1, lambda _: None)
        self.feedback = Feedback(
            self.core.registry,
            self.answers,
            self.core.clock,
            resolve=self.core.registry.resolve,
            limits=DriftLimits(1_000, 1.0),
        )
        self.consistency = Consistency(
            self.core.registry, self.core.lookup.view, self.feedback, self.answers, self.core.clock
        )
        self.asked = 0

    def report(self) -> Any:  # noqa: ANN401  as a caller reads it
        return msgspec.to_builtins(done(self.consistency.report(pod=None, model=None, tenant=None, window=None)))

    def ask(self) -> str:
        """A lookup; its request id."""
        self.asked += 1
        self.core.ask(prompt(9), request_id=f"r{self.asked}", model="m", tenant="acme")
        return f"r{self.asked}"

    def told(self, pod: str, request_id: str, cached: int, *, ok: bool = True) -> str:
        query = LookupQuery(tenant="acme")
        report = FeedbackReport(pod=pod, dp_rank=3, request_id=request_id, cached_tokens=cached, query=query, ok=ok)
        return self.feedback.take(report)

    def tell(self) -> None:
        """Pod a is said to reuse 16 of 36 tokens, pod b 28."""
        engines = [self.core.engine(pod, dp_rank=3, model="m", tenant="acme") for pod in "ab"]
        for engine, blocks in zip(engines, (4, 7), strict=True):
            engine.say(stored(range(1, blocks + 1), prompt(blocks)))
        began = self.core.clock.at + AGO_S[0]
        for number, ago_s in enumerate(AGO_S):
            self.core.clock.at = began - ago_s
            self.core.alive()
            for engine in engines:
                engine.sink.proved()
            self.core.clock.at += 1.5
            self.core.alive()
            for cached in (*([16] if number == 0 else []), 16, 8, 28):
                assert "joined" == self.told("a", self.ask(), cached)
            assert "joined" == self.told("b", self.ask(), 28)
            assert ["unjoined", "unjoined", "failed"] == [
                self.told("a", "unheard of", 4),
                self.told("a", "unheard of", 4),
                self.told("a", "unheard of", 0, ok=False),
            ]
        engines[0].sink.doubt("drift")
        self.core.clock.at += AFTER_S


ONCE: Final = {
    "samples": 3,
    "exact": 1,
    "predicted_tokens": 48,
    "real_tokens": 52,
    "false_hit_tokens": 8,
    "lost_hit_tokens": 12,
    "regret_tokens": 36,
    "unjoined": 2,
    "failed": 1,
    "by_age.samples": 3,
    "by_age.false_hit_tokens": 8,
    "by_age.lost_hit_tokens": 12,
    "causes.samples": 2,
    "causes.tokens": 20,
}
"""What is reported of pod a each time."""
RIGHT: Final = {
    "samples": 1,
    "exact": 1,
    "predicted_tokens": 16,
    "real_tokens": 16,
    "regret_tokens": 12,
    "by_age.samples": 1,
}
"""And once, when it was right once more."""
OTHER: Final = {"samples": 1, "exact": 1, "predicted_tokens": 28, "real_tokens": 28, "by_age.samples": 1}
"""What is reported of pod b each time: it is in the totals."""


def _figures(times: int, *, whole: bool, total: bool) -> dict[str, object]:
    """Of a window in which it happened so often; `whole`: it reaches back to the first time."""
    figures: dict[str, object] = {
        name: times * (count + (OTHER.get(name, 0) if total else 0)) + (RIGHT.get(name, 0) if whole else 0)
        for name, count in ONCE.items()
    }
    return figures | {"exact_share": round(figures["exact"] / figures["samples"], 6)}  # type: ignore[operator]


def _expected_windows(before: str, *, total: bool) -> dict[str, object]:
    return {
        f"{before}.windows.{window}.{name}": value
        for times, window in enumerate(get_args(WindowName), 1)
        for name, value in _figures(times, whole=times == len(AGO_S), total=total).items()
    }


EXPECTED: Final[dict[str, object]] = {
    "at": "2023-11-15T03:30:04.000+00:00",
    "seen_s": 18_004,
    "answers.count": KEPT_MAX,
    "answers.horizon_s": 90_000.0,
    "answers.oldest_s": AFTER_S,
    "answers.forgotten_early": 13,
    "totals.model": "m",
    "totals.tenant": "acme",
    "totals.trend.exact_share_1h": 0.5,
    "totals.trend.exact_share_24h": 0.529412,
    "totals.trend.change": -0.029412,
    "sources.pod": "a",
    "sources.dp_rank": 3,
    "sources.model": "m",
    "sources.tenant": "acme",
    "sources.state": "suspect",
    "sources.drifted": True,
    "sources.trend.exact_share_1h": 0.333333,
    "sources.trend.exact_share_24h": 0.384615,
    "sources.trend.change": -0.051282,
    **_expected_windows("totals", total=True),
    **_expected_windows("sources", total=False),
}


@pytest.fixture(scope="module")
def fresh() -> Any:  # noqa: ANN401  as a caller reads it
    """Of nobody."""
    return Story(AnswerOptions()).report()


@pytest.fixture(scope="module")
def report() -> Any:  # noqa: ANN401  as a caller reads it
    """Of all that happened."""
    story = Story()
    story.tell()
    return story.report()


def test_each_field_has_its_story() -> None:
    """A new one needs a value that it does not always have."""
    assert sorted(fields_of(ConsistencyReport)) == sorted([*EXPECTED, "answers.bytes"])


@pytest.mark.parametrize("path", EXPECTED)
def test_a_field_tells_what_happened(report: Any, fresh: Any, path: str) -> None:  # noqa: ANN401
    """And another value where nothing did."""
    assert EXPECTED[path] == said(report, path, KEYS)
    assert EXPECTED[path] not in {said(fresh, path, KEYS), 0}


def test_answers_take_as_many_bytes_as_there_are_answers(report: Any, fresh: Any) -> None:  # noqa: ANN401
    """Each much the same."""
    assert 0 == said(fresh, "answers.bytes", KEYS)
    assert said(report, "answers.bytes", KEYS) // KEPT_MAX in RECORD_BYTES


AGES_MS: Final = {
    "under_100ms": (0, 80),
    "under_1s": (100, 980),
    "under_5s": (1_000, 4_980),
    "under_1m": (5_000, 59_980),
    "older": (60_000, 500_000),
    "unknown": (),
}
"""At the borders of each: an answer tells ages as of up to 10 ms later."""


@pytest.mark.parametrize("age", AGE_CLASSES)
def test_a_report_tells_each_age_of_what_was_known(age: str) -> None:
    """From the list in the code; of an engine that announces nothing there is no proof, and so no age."""
    ages_ms = AGES_MS[age]
    story = Story(silent=not ages_ms)
    engine = story.core.engine("a", dp_rank=3, model="m", tenant="acme")
    if ages_ms:
        engine.say(stored([1, 2, 3], prompt(3)))
    began = story.core.clock.at
    for age_ms in ages_ms or (0,):
        story.core.clock.at = began + age_ms / 1_000
        story.core.alive()
        assert "joined" == story.told("a", story.ask(), 8)
    (row,) = story.report()["sources"]

    ages = row["windows"]["24h"]["by_age"]
    assert {age: len(ages_ms) or 1} == {name: figures["samples"] for name, figures in ages.items()}


def test_each_age_is_made_to_happen() -> None:
    """A new class needs its borders."""
    assert list(AGE_CLASSES) == list(AGES_MS)
