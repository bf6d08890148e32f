"""States and bounds: a table, row by row, from facts and the present moment."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.index.states import (
    NEVER,
    SourceFacts,
    StateLimits,
    bound_of,
    degrades,
    is_certain,
    is_scored,
    next_change,
    reason_of,
    state_of,
)
from tests.support.core import Core
from tests.support.core_events import prompt, removed, stored

LIMITS = StateLimits(stale_after_s=5.0, score_ttl_s=60.0)
NOW = 1_000.0


def facts(*, silent_s: float = 0.0, **changed: Any) -> SourceFacts:  # noqa: ANN401  the facts' own types
    """Of a settled, connected source, but for what the test changes."""
    settled = {"sequence": 7, "complete": True, "connected": True, "alive_at": NOW - silent_s, "proof_at": NOW}
    return SourceFacts(generation=1, **{**settled, **changed})


ROWS = [
    # facts                                        state      bound       scored reason          degrades
    (facts(sequence=None), "new", "exact", False, "no_events_yet", True),
    (facts(sequence=None, complete=False, syncing=True), "syncing", "lower", True, None, True),
    (facts(sequence=None, syncing=True, connected=False), "new", "exact", False, "no_events_yet", True),
    (facts(syncing=True), "syncing", "exact", True, None, True),
    (facts(loading=True, sequence=None, alive_at=None), "syncing", "exact", True, None, True),
    (facts(lease_until=NOW), "stale", "exact", True, None, True),
    (facts(lease_until=NOW + 0.1), "live", "exact", True, None, False),
    (facts(lease_until=NOW, silent_s=60.0), "down", "exact", False, "down", False),
    (facts(reloading=True), "stale", "exact", True, None, True),
    (facts(), "live", "exact", True, None, False),
    (facts(sequence=-1), "live", "exact", True, None, False),
    (facts(complete=False), "live", "lower", True, None, True),
    (facts(shortfalls={"orphans"}), "live", "lower", True, None, True),
    (facts(rule_missing=True), "live", "upper", True, None, True),
    (facts(rule_missing=True, complete=False), "live", "estimate", True, None, True),
    (facts(doubts={"gap"}), "suspect", "estimate", True, None, True),
    (facts(suspicions={"dropped"}), "suspect", "estimate", True, None, True),
    (facts(doubts={"gap"}, syncing=True), "syncing", "estimate", True, None, True),
    (facts(silent_s=5.0), "stale", "exact", True, None, True),
    (facts(silent_s=59.9, doubts={"gap"}), "stale", "estimate", True, None, True),
    (facts(silent_s=60.0), "down", "exact", False, "down", False),
    (facts(alive_at=None), "down", "exact", False, "down", False),
    (facts(cordoned=True), "live", "exact", True, "cordoned", False),
    (facts(cordoned=True, complete=False), "live", "lower", True, "cordoned", False),
    (facts(cordoned=True, silent_s=90.0), "down", "exact", False, "cordoned", False),
    (facts(ready=False), "live", "exact", True, "not_ready", False),
    (facts(ready=False, complete=False), "live", "lower", True, "not_ready", False),
    (facts(ready=False, sequence=None), "new", "exact", False, "not_ready", False),
    (facts(ready=False, silent_s=90.0), "down", "exact", False, "not_ready", False),
    (facts(ready=False, silent_s=9.0), "stale", "exact", True, "not_ready", False),
    (facts(ready=False, syncing=True), "syncing", "exact", True, "not_ready", False),
    (facts(ready=False, doubts={"gap"}), "suspect", "estimate", True, "not_ready", False),
    (facts(ready=False, sequence=None, may_be_silent=True), "live", "estimate", True, "not_ready", False),
    (facts(ready=False, cordoned=True), "live", "exact", True, "cordoned", False),
    (facts(ready=False, cordoned=True, silent_s=90.0), "down", "exact", False, "cordoned", False),
]


@pytest.mark.parametrize(("of", "state", "bound", "scored", "reason", "degraded"), ROWS)
def test_the_table(of: SourceFacts, state: str, bound: str, scored: bool, reason: str | None, degraded: bool) -> None:
    """State, bound, whether its blocks count, the reason where they do not, what it does to the answer."""
    got = state_of(of, NOW, LIMITS)

    assert (state, bound) == (got, bound_of(of))
    assert (scored, reason) == (is_scored(got), reason_of(got, of))
    assert degraded == degrades(got, bound_of(of), of)
    assert (state == "live" and bound == "exact") == is_certain(got, bound_of(of))


def test_silence_changes_states_at_exact_moments() -> None:
    """And `next_change` names each of them; no fact changes meanwhile."""
    of = facts()
    seen = [("live", NOW)]
    now = NOW
    while (change := next_change(of, now, LIMITS)) is not NEVER:
        assert seen[-1][0] == state_of(of, change - 0.001, LIMITS)
        now = change
        seen.append((state_of(of, now, LIMITS), now))

    assert [("live", NOW), ("stale", NOW + 5.0), ("down", NOW + 60.0)] == seen


@pytest.mark.parametrize("of", [facts(sequence=None), facts(alive_at=None), facts(silent_s=61.0)])
def test_states_that_time_alone_does_not_change(of: SourceFacts) -> None:
    """Nothing was heard, nothing was seen, or it is down."""
    assert NEVER == next_change(of, NOW, LIMITS)


def test_a_new_generation_knows_nothing_of_the_old_ones_history() -> None:
    """What an operator said and the connection stay."""
    of = facts(doubts={"gap"}, shortfalls={"orphans"}, missed_stores=True, cordoned=True, rule_missing=True)

    of.forget_history(9)

    assert (9, None, False, set(), set(), False) == (
        of.generation,
        of.sequence,
        of.complete,
        of.doubts,
        of.shortfalls,
        of.missed_stores,
    )
    assert of.proof_at is None
    assert (True, True, True) == (of.cordoned, of.connected, of.rule_missing)


# -- the same table, as a caller sees it -------------------------------------------------------------------------------


def told(core: Core) -> tuple[object, ...]:
    """Answer state, then the one entry's state, bound, matched tokens and reason."""
    answer = core.ask(prompt(2))
    (entry,) = answer.pods
    return answer.state, entry.state, entry.bound, entry.matched_tokens, entry.reason


def test_new_is_listed_with_zero_and_no_signal() -> None:
    """Nothing was ever heard of the only source."""
    core = Core()
    core.engine()

    assert ("no_signal", "new", "lower", 0, "no_events_yet") == told(core)


def test_new_beside_a_live_one_degrades() -> None:
    """It may hold something."""
    core = Core()
    core.engine("live").say(stored([1, 2], prompt(2)))
    core.engine("new")

    answer = core.ask(prompt(2))

    assert ("degraded", 8, "no_events_yet") == (answer.state, answer["live"].matched_tokens, answer["new"].reason)


def test_syncing_scores_what_is_loaded() -> None:
    """And says `syncing` where that is nothing of the prompt."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    engine.sink.syncing(True)

    assert ("degraded", "syncing", "exact", 8, None) == told(core)
    assert "syncing" == core.ask(range(90, 99))["pod"].reason
    engine.sink.syncing(False)
    assert ("exact", "live", "exact", 8, None) == told(core)


def test_live_with_any_bound() -> None:
    """A history truncated at join can only under-report, and turns exact at a clear."""
    core = Core()
    engine = core.engine()
    engine.next_sequence = 40
    engine.say(stored([1, 2], prompt(2)))
    assert ("degraded", "live", "lower", 8, None) == told(core)

    engine.say({"type": "AllBlocksCleared"}, stored([1], prompt(1)))

    assert ("exact", "live", "exact", 4, None) == told(core)


def test_suspect_is_scored_times_its_weight_until_a_restart() -> None:
    """Something claimed may be false."""
    core = Core(limits=StateLimits(suspect_weight=0.5))
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    engine.lose(removed(2))
    engine.gap()

    assert ("degraded", "suspect", "estimate", 8, None) == told(core)
    assert 0.5 == core.ask(prompt(2))["pod"].score
    engine.restart()
    assert ("no_signal", "new", "lower", 0, "no_events_yet") == told(core)
    engine.say(stored([7, 8], prompt(2)))
    assert ("exact", "live", "exact", 8, None) == told(core)


def test_silence_makes_stale_then_down_and_a_sign_of_life_ends_it() -> None:
    """Stale counts; down is listed with 0 and no longer degrades; nothing was forgotten."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2)))

    core.clock.at += 5.0
    assert ("degraded", "stale", "exact", 8, None) == told(core)
    core.clock.at += 55.0
    assert ("no_signal", "down", "exact", 0, "down") == told(core)
    core.alive()
    assert ("exact", "live", "exact", 8, None) == told(core)


def test_down_and_cordoned_beside_a_live_one_leave_the_answer_exact() -> None:
    """Listed behind it, with 0."""
    core = Core()
    for pod in ("down", "cordoned", "live"):
        core.engine(pod).say(stored([1, 2], prompt(2)))
    core.cordon("cordoned", cordoned=True)
    core.clock.at += 60.0
    for pod in ("cordoned", "live"):
        next(sink for key, sink in core.sinks.items() if key.pod == pod).alive(connected=True)

    answer = core.ask(prompt(2))

    assert ("exact", "live") == (answer.state, answer.order[0])
    assert [("cordoned", 0, 0.0), ("down", 0, 0.0)] == sorted(
        (entry.reason or "", entry.matched_tokens, entry.score) for entry in answer.pods[1:]
    )
    core.cordon("cordoned", cordoned=False)
    assert 8 == core.ask(prompt(2))["cordoned"].matched_tokens


def test_a_process_that_wakes_from_a_pause_does_not_answer_with_yesterdays_state() -> None:
    """States are computed at the question, not at the last event."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2)))
    assert "live" == core.ask(prompt(2))["pod"].state

    core.clock.at += 3_600.0

    assert ("no_signal", "down", "exact", 0, "down") == told(core)
