"""Which sources an answer lists, and what is kept of that between questions."""

from __future__ import annotations

from indexer.lookup import CANDIDATE_SETS_MAX, NAMES_KEPT_MAX
from indexer.lookup_view import TOUCHES_KEPT
from indexer.model import RawBatch, SourceId
from tests.support.core import fleet
from tests.support.core_events import payload, prompt, removed, stored

TOKENS = prompt(4)


def test_kinds_of_questions_are_remembered_within_bounds() -> None:
    """Many models, and lists of very many names: answers stay right."""
    core = fleet(1)
    for number in range(2 * CANDIDATE_SETS_MAX):
        assert {"a": 4} == core.ask(TOKENS, model=f"m-{number}").matched
    names = tuple(f"x-{number}" for number in range(2 * NAMES_KEPT_MAX))
    kept = len(core.lookup._candidates)

    answer = core.ask(TOKENS, pods=("a", *names))

    assert 4 == answer["a"].matched_tokens
    assert 1 + len(names) == len(answer.pods)
    assert kept == len(core.lookup._candidates) <= CANDIDATE_SETS_MAX + 1


def test_candidates_follow_what_sources_turn_out_to_be() -> None:
    """New sources, block sizes, adapters, generations: the next answer has them."""
    core = fleet(1)
    core.ask(TOKENS)
    engine = core.engine("late")
    assert {"a": 4, "late": 0} == core.ask(TOKENS).matched
    engine.say(stored([1], prompt(2), block_size=8))
    assert {"a": 4, "late": 8} == core.ask(TOKENS).matched
    engine.say(stored([7], prompt(2), block_size=8, lora_name="ad"))
    assert {"a": 0, "late": 8} == core.ask(TOKENS, lora_name="ad").matched
    engine.restart()
    assert {"a": 4, "late": 0} == core.ask(TOKENS).matched
    core.remove("a")
    assert {"late": 0} == core.ask(TOKENS).matched


def test_one_source_that_changes_costs_one_entry() -> None:
    """The others' entries stand; the answer is as new."""
    core = fleet(1, 1, 1)
    core.engine("other-tenant", tenant="x").say()
    core.ask(TOKENS)
    scene = next(iter(core.lookup._candidates.values())).scene
    for number in range(20):
        engine = core.sinks[SourceId("c", 0)]
        engine.apply(RawBatch(b"", number + 1, payload(stored([1], prompt(1)) if number % 2 else removed(1))))
        core.sinks[SourceId("other-tenant", 0)].doubt("absence")
        core.sinks[SourceId("other-tenant", 0)].apply(RawBatch(b"", number + 1, payload()))
        answer = core.ask(TOKENS)
        assert (4 if number % 2 else 0, number + 1) == (answer["c"].matched_tokens, answer["c"].sequence)
        assert (4, 0) == (answer["a"].matched_tokens, answer["a"].sequence)

    assert scene is next(iter(core.lookup._candidates.values())).scene


def test_one_source_that_changes_leaves_the_others_in_doubt() -> None:
    """An answer stays degraded while any candidate is not certain."""
    core = fleet(1, 1, 1)
    assert "exact" == core.ask(TOKENS).state
    core.sinks[SourceId("a", 0)].doubt("absence")
    assert "degraded" == core.ask(TOKENS).state
    core.sinks[SourceId("b", 0)].apply(RawBatch(b"", 1, payload()))
    assert "degraded" == core.ask(TOKENS).state
    core.sinks[SourceId("b", 0)].doubt("absence")
    assert "degraded" == core.ask(TOKENS).state
    for sequence, pod in enumerate("ab", 2):
        core.sinks[SourceId(pod, 0)].restart("probe_differs")
        core.sinks[SourceId(pod, 0)].proved()
        assert ("degraded" if sequence == 2 else "exact") == core.ask(TOKENS).state


def test_very_many_changes_between_two_questions() -> None:
    """Everything is looked at anew."""
    core = fleet(1, 0)
    core.ask(TOKENS)
    engine = core.sinks[SourceId("b", 0)]
    for number in range(2 * TOUCHES_KEPT):
        engine.apply(RawBatch(b"", number + 1, payload()))

    answer = core.ask(TOKENS)

    assert (2 * TOUCHES_KEPT, "exact") == (answer["b"].sequence, answer.state)


def test_states_of_one_answer_belong_to_its_moment() -> None:
    """A state that falls due between two questions is seen, though no fact changed."""
    core = fleet(1, 0)
    seen = []
    for at in (4.99, 5.0, 59.99, 60.0):
        core.clock.at = 1_000.0 + at
        answer = core.ask(TOKENS)
        seen.append((answer.state, answer["a"].state, answer["b"].state))

    assert [
        ("exact", "live", "live"),
        ("degraded", "stale", "stale"),
        ("degraded", "stale", "stale"),
        ("no_signal", "down", "down"),
    ] == seen


def test_the_same_question_by_another_length() -> None:
    """What is ready-made for short prompts is not used for long ones."""
    core = fleet(0)
    core.sinks[SourceId("a", 0)].apply(RawBatch(b"", 1, payload(stored([1], prompt(1)))))

    for _ in range(2):
        assert ["below_block_size", "no_match", "below_block_size"] == [
            core.ask([900] * count)["a"].reason for count in (3, 40, 2)
        ]
