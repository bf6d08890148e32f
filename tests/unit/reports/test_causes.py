"""Why an answer was not what the engine did: each cause made to happen, by events and reports as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from indexer.model import Tier
from indexer.receipts.answered import AnswerOptions, Answers
from indexer.reports.causes import CAUSES
from indexer.reports.drift import DriftLimits
from indexer.reports.feedback import Feedback
from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from tests.support.core import Core, Speaker
from tests.support.core_events import BLOCK, CLEARED, prompt, removed, stored

HELD: Final = 4
"""Blocks that the engine holds, unless a case says otherwise; the prompt has two more tokens."""
ASKED: Final = HELD * BLOCK + 2
ALL: Final = HELD * BLOCK


@dataclass
class Case:
    """A fleet of one engine, a question, what happens then, and what the engine reports."""

    core: Core = field(default_factory=Core)
    reports: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    tokens: int = ASKED
    cached: int = ALL
    before: Callable[[Speaker], None] = lambda engine: engine.say(stored(range(1, HELD + 1), prompt(HELD)))
    after: Callable[[Speaker], None] = lambda _: None

    def run(self) -> Feedback:
        """All of it."""
        answers = Answers(self.core.clock, AnswerOptions(), 1, lambda _: None)
        self.core.lookup.answers = answers
        feedback = Feedback(
            self.core.registry,
            answers,
            self.core.clock,
            resolve=self.core.registry.resolve,
            limits=DriftLimits(1_000, 1.0),
        )
        self.core.ingest.happened = lambda source, happening: feedback.happened(source.descriptor.id, happening)
        engine = self.core.engine("a", model="m")
        self.before(engine)
        self.core.clock.at += 1.0
        tokens = list(prompt(HELD + 1))[: self.tokens]
        self.core.ask(tokens, request_id="r", model="m", **self.query)
        self.core.clock.at += 1.0
        self.after(engine)
        told = {"cache_salt": self.reports.pop("cache_salt", None), "lora_name": self.reports.pop("lora_name", None)}
        report = FeedbackReport(
            pod="a", request_id="r", cached_tokens=self.cached, query=LookupQuery(**told), **self.reports
        )
        assert "joined" == feedback.take(report)
        return feedback


def _in_two_tiers(engine: Speaker) -> None:
    engine.say(stored([1, 2], prompt(2)), stored([3, 4], prompt(2, start=2 * BLOCK), 2, medium="CPU"))


def _on_disk(engine: Speaker) -> None:
    engine.say(stored([1, 2], prompt(2)), stored([3, 4], prompt(2, start=2 * BLOCK), 2, medium="STORAGE"))


def _in_the_middle(engine: Speaker) -> None:
    engine.next_sequence = 5
    engine.say(stored([1], prompt(1)))


def _silent_for_long(engine: Speaker) -> None:
    engine.say(stored(range(1, HELD + 1), prompt(HELD)))
    engine.core.clock.at += 10.0


def _of_an_unknown_rule(engine: Speaker) -> None:
    engine.say(
        stored([1, 2, 3, 4], prompt(4), group_idx=0, kv_cache_spec_kind="full_attention"),
        stored([1, 2, 3, 4], prompt(4), group_idx=1, kv_cache_spec_kind="mamba"),
    )


def _silent() -> Core:
    return Core(silent_block_sizes={"m": BLOCK})


def _announces_nothing(engine: Speaker) -> None:
    """All of the prompt was routed there, and nothing is known but that."""
    assert "expected" == engine.core.route(list(prompt(HELD)), "a")


def _lose_one(engine: Speaker) -> None:
    engine.lose()
    engine.gap()


CASES: Final[dict[str, Callable[[], Case]]] = {
    "template": lambda: Case(reports={"prompt_tokens": ASKED + 1}, cached=0),
    "adapter": lambda: Case(reports={"lora_name": "an adapter"}, cached=0),
    "salt": lambda: Case(reports={"cache_salt": "salt"}, cached=0),
    "block_size": lambda: Case(cached=ALL - 1),
    "last_token": lambda: Case(tokens=ALL, cached=ALL - 1),
    "restart": lambda: Case(cached=0, after=Speaker.restart),
    "clear": lambda: Case(cached=0, after=lambda engine: engine.say(CLEARED)),
    "approximate": lambda: Case(_silent(), before=_announces_nothing, cached=2 * BLOCK),
    "gap": lambda: Case(cached=0, after=_lose_one),
    "tier": lambda: Case(before=_in_two_tiers, cached=2 * BLOCK),
    "unannounced": lambda: Case(core=Core(tier_ttls={Tier.STORAGE: 3_600.0}), before=_on_disk, cached=BLOCK),
    "stale": lambda: Case(before=_silent_for_long, cached=0),
    "incomplete": lambda: Case(before=_in_the_middle),
    "hybrid_rule": lambda: Case(before=_of_an_unknown_rule, cached=2 * BLOCK),
    "eviction_in_flight": lambda: Case(cached=3 * BLOCK, after=lambda engine: engine.say(removed(4))),
    "store_in_flight": lambda: Case(
        before=lambda engine: engine.say(stored([1], prompt(1))),
        after=lambda engine: engine.say(stored([2, 3, 4], prompt(3, start=BLOCK), 1)),
    ),
    "unknown": lambda: Case(cached=2 * BLOCK),
}


def causes_in(feedback: Feedback) -> dict[str, int]:
    """Samples by cause, where there are any."""
    from indexer.reports.feedback import CAUSES_AT  # noqa: PLC0415 - a place in a row, for this alone

    (judged,) = feedback.judged.values()
    assert judged.sums is not None
    row = judged.sums.over("1m", int(feedback._clock.now()))
    found = {name: row[CAUSES_AT + 2 * place] for place, name in enumerate(CAUSES)}
    return {name: samples for name, samples in found.items() if samples}


@pytest.mark.parametrize("cause", CASES)
def test_a_cause_is_told_where_it_happened(cause: str) -> None:
    """And nothing else beside it."""
    assert {cause: 1} == causes_in(CASES[cause]().run())


def test_each_cause_of_the_list_is_made_to_happen_here() -> None:
    """A new one needs its case."""
    assert list(CAUSES) == list(CASES)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(tokens=ALL, cached=ALL - BLOCK),
        Case(query={"partial": True}, tokens=ALL, reports={"prompt_tokens": ASKED}),
        Case(before=lambda engine: engine.say(stored([9], range(90, 94))), cached=0),
        Case(_silent(), before=_announces_nothing),
        Case(_silent(), before=_announces_nothing, tokens=ALL, cached=ALL - BLOCK),
    ],
)
def test_what_is_right_has_no_cause(case: Case) -> None:
    """Whatever happened."""
    feedback = case.run()

    assert {} == causes_in(feedback)
    assert (0, 0) == (feedback.false_tokens, feedback.lost_tokens)


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        (Case(query={"partial": True}, tokens=ALL, cached=ALL - BLOCK), "last_token"),
        (Case(query={"partial": True}, tokens=ALL, cached=0, reports={"prompt_tokens": ALL - 1}), "template"),
        (Case(tokens=ALL, cached=ALL), "last_token"),
        (Case(before=_in_two_tiers, cached=BLOCK), "unknown"),
    ],
)
def test_causes_are_told_apart(case: Case, cause: str) -> None:
    """At their borders."""
    assert {cause: 1} == causes_in(case.run())


def test_a_prompt_told_by_hashes_has_an_open_end() -> None:
    """What lies behind its last whole block is not known, and no mismatch of templates."""
    core = Core()
    case = Case(core=core)
    case.run()
    hashes = core.hashes(prompt(HELD))
    core.ask(block_hashes=hashes, block_size=BLOCK, request_id="h", model="m")
    answers = core.lookup.answers
    assert answers is not None
    feedback = Feedback(
        core.registry, answers, core.clock, resolve=core.registry.resolve, limits=DriftLimits(1_000, 1.0)
    )

    report = FeedbackReport(pod="a", request_id="h", prompt_tokens=ASKED, cached_tokens=ALL, query=LookupQuery())

    assert "joined" == feedback.take(report)
    assert {"last_token": 1} == causes_in(feedback), "the answer left the last block out: it may hold the last token"
