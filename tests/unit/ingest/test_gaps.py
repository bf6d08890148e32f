"""Joining a stream and losing some of it: what is known then, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.core import Core, Speaker
from tests.support.core_events import CLEARED, prompt, removed, stored

if TYPE_CHECKING:
    from indexer.model import GapPolicy

TOKENS = prompt(4)


def matched(core: Core, pod: str = "pod") -> int:
    """Tokens of the prompt that the pod holds."""
    return core.ask(TOKENS)[pod].matched_tokens


def trust(core: Core) -> tuple[str, str, str]:
    """Answer state, source state, bound."""
    answer = core.ask(TOKENS)
    return answer.state, answer["pod"].state, answer["pod"].bound


@pytest.fixture
def held() -> tuple[Core, Speaker]:
    """An engine that holds the whole prompt."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    return core, engine


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_history_from_its_beginning_is_exact(held: tuple[Core, Speaker]) -> None:
    """Batch 0 is a real batch."""
    core, engine = held

    assert ("exact", "live", "exact") == trust(core)
    assert 0 == engine.sink.cursor == core.ask(TOKENS)["pod"].sequence


def test_a_history_truncated_at_join_can_only_under_report() -> None:
    """Live, lower; exact after the engine's clear."""
    core = Core()
    engine = core.engine()
    engine.next_sequence = 7
    engine.say(stored([3], TOKENS[8:12], parent=2))
    assert (0, ("degraded", "live", "lower")) == (matched(core), trust(core))

    engine.say(CLEARED, stored([1, 2], TOKENS[:8]))

    assert (8, ("exact", "live", "exact")) == (matched(core), trust(core))


def test_an_engine_that_confirms_an_empty_history() -> None:
    """It holds nothing, for certain; its first batch is number 0."""
    core = Core()
    engine = core.engine()
    assert ("no_signal", "new", "lower") == trust(core)
    engine.sink.proved()
    assert (("exact", "live", "exact"), None) == (trust(core), core.ask(TOKENS)["pod"].sequence)

    engine.say(stored([1], TOKENS[:4]))

    assert (4, ("exact", "live", "exact")) == (matched(core), trust(core))


def test_an_empty_history_whose_first_batches_never_came() -> None:
    """Truncated, like any other beginning."""
    core = Core()
    engine = core.engine()
    engine.sink.proved()
    engine.next_sequence = 5
    engine.say(stored([1], TOKENS[:4]))

    assert (4, ("degraded", "live", "lower")) == (matched(core), trust(core))


def test_numbers_that_jump_without_a_gap_reported(held: tuple[Core, Speaker]) -> None:
    """A fault on the way in: removals may be missing, and the source says so."""
    core, engine = held
    engine.lose(removed(4))
    engine.say(stored([9], TOKENS[:4]))

    assert ("degraded", "suspect", "estimate") == trust(core)


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_a_lost_removal_is_never_called_exact(held: tuple[Core, Speaker]) -> None:
    """Nobody can know which blocks went; the source is suspect from the gap on, and says how many batches are lost."""
    core, engine = held
    engine.lose(removed(4), removed(3))
    engine.gap()
    engine.say(stored([9], prompt(1, 50)))

    assert (16, ("degraded", "suspect", "estimate")) == (matched(core), trust(core))
    assert (1, 1) == (engine.source.counters["gaps"], engine.source.counters["batches_lost"])
    assert 2 == engine.sink.cursor


@pytest.mark.parametrize(
    ("policy", "expected", "told"),
    [("keep", 16, ("degraded", "suspect", "estimate")), ("clear", 0, ("degraded", "live", "lower"))],
)
def test_what_a_gap_does(policy: GapPolicy, expected: int, told: tuple[str, str, str]) -> None:
    """Keep and doubt, or clear and under-report: by choice."""
    core = Core(gap_policy=policy)
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert ("exact", "live", "exact") == trust(core)
    engine.lose()
    engine.gap()

    assert (expected, told) == (matched(core), trust(core))
    assert ({"cleared_at_gap"} if policy == "clear" else set()) == engine.source.facts.shortfalls
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert 16 == matched(core)


def test_copies_count_anew_after_a_kept_gap(held: tuple[Core, Speaker]) -> None:
    """An entry announced before counts once: a removal ends it, a new announcement sets its count to one."""
    core, engine = held
    engine.say(stored([3, 4], TOKENS[8:], parent=2))
    engine.lose()
    engine.gap()

    engine.say(removed(4))
    assert 12 == matched(core)
    engine.say(stored([3, 4], TOKENS[8:], parent=2), stored([4], TOKENS[12:], parent=3))
    engine.say(removed(3))
    assert 8 == matched(core)
    engine.say(stored([3], TOKENS[8:12], parent=2), removed(4))
    assert 16 == matched(core)


def test_doubt_ends_with_a_restart_or_a_clear(held: tuple[Core, Speaker]) -> None:
    """Not with mere traffic."""
    core, engine = held
    engine.lose()
    engine.gap()
    for _ in range(50):
        engine.say(stored([1], TOKENS[:4]))
    assert ("degraded", "suspect", "estimate") == trust(core)

    engine.say(CLEARED)
    assert ("exact", "live", "exact") == trust(core)
