"""What an answer is worth beside the truth."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.trust.judging import EXAMPLES_MAX, Figures, Told, Truth

CERTAIN = Told(pod="pod", reusable_tokens=32, state="live", bound="exact", generation="1", sequence=5)


def judged(told: Told, truth: Truth, *, settled: bool = True) -> Figures:
    """One entry."""
    figures = Figures()
    figures.note(told, truth, settled=settled, where="here")
    return figures


@pytest.mark.parametrize(
    ("truth", "violations", "outrun", "unknown"),
    [
        (Truth(32, 32), 0, 0, 0),
        (Truth(16, 32), 0, 1, 0),
        (Truth(16, 16), 1, 0, 0),
        (Truth(32, 16), 1, 0, 0),
        (Truth(16, 16, 32), 0, 0, 1),
        (Truth(16, 32, 32), 0, 0, 1),
        (Truth(16, 16, 48), 1, 0, 0),
        (Truth(16, 48, 48), 1, 0, 0),
        (Truth(32, 32, 16), 0, 0, 0),
        (Truth.unheard(16, 32, is_due=False), 0, 0, 1),
        (Truth.unheard(16, 32, is_due=True), 1, 0, 0),
    ],
    ids=[
        "right",
        "the engine went on",
        "wrong",
        "right by chance",
        "the engine's words are not true",
        "what it did is not heard",
        "its words are not these either",
        "nor was it what it did before",
        "right all the same",
        "not heard yet",
        "to be known by now",
    ],
)
def test_what_is_certain(truth: Truth, violations: int, outrun: int, unknown: int) -> None:
    """It must be what the engine held after the message that is named, as far as that could be known."""
    figures = judged(CERTAIN, truth)

    assert (violations, outrun, unknown) == (figures.violations, figures.outrun, figures.unknown)
    assert violations == len(figures.examples)
    assert 16 * unknown == figures.unknown_tokens


@pytest.mark.parametrize("doubt", [{"state": "suspect"}, {"state": "stale"}, {"bound": "lower"}, {"bound": "estimate"}])
def test_what_is_not_certain_violates_nothing(doubt: dict[str, str]) -> None:
    """Its tokens count all the same, where all that was on its way has come."""
    told = msgspec.structs.replace(CERTAIN, **doubt)

    figures = judged(told, Truth(48, 48))
    assert (0, 0, 16, 0) == (figures.violations, figures.outrun, figures.lost_tokens, figures.false_tokens)
    assert 16 == judged(told, Truth(16, 16)).false_tokens
    assert 0 == judged(told, Truth(16, 16), settled=False).false_tokens


def test_sums_and_shares() -> None:
    """Of several runs; examples of violations are few."""
    first, second = Figures(), Figures()
    for _ in range(EXAMPLES_MAX + 1):
        first.note(CERTAIN, Truth(64, 64), settled=True)
    second.note(CERTAIN, Truth(16, 16), settled=True)
    for state in ("exact", "degraded", "exact", "exact"):
        second.note_answer(state, settled=True)
    second.note_answer("exact", settled=False)
    second.healed_s.append(2.5)
    total = Figures().add([first, second])

    assert (5, 4, 3, 0.75) == (total.answers, total.settled, total.exact, total.exact_share)
    assert (EXAMPLES_MAX + 2, [2.5]) == (total.violations, total.healed_s)
    assert EXAMPLES_MAX == len(first.examples)
    true = 64 * (EXAMPLES_MAX + 1) + 16
    assert (16 / true, 32 * (EXAMPLES_MAX + 1) / true) == (total.false_share, total.lost_share)


def test_nothing_asked_is_nothing_exact() -> None:
    """No division by nothing."""
    assert (0.0, 0.0, 0.0) == (Figures().exact_share, Figures().false_share, Figures().lost_share)
