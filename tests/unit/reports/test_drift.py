"""When a source drifts: many of its newest certain answers wrong, and nothing that explains it."""

from __future__ import annotations

from typing import Final

import pytest

from indexer.model import Bound, SourceState
from indexer.receipts.answer import Predicted
from indexer.reports.causes import CAUSES, NOT_ITS_OWN, Compared, MismatchCause
from indexer.reports.drift import Drift, DriftLimits
from indexer.trust import Trust

LIMITS: Final = DriftLimits(samples=10, share=0.2)


def compared(
    real: int, *, state: SourceState = "live", bound: Bound = "exact", generation: int = 1, now: int = 1
) -> Compared:
    """160 tokens were said to be reusable; so many were."""
    return Compared(
        predicted=Predicted(
            matched_tokens=160,
            reusable_tokens=160,
            gpu_tokens=160,
            best_tokens=160,
            block_size=16,
            generation=generation,
            unannounced=False,
            trust=Trust(state, bound, "under_1s"),
        ),
        real_tokens=real,
        asked_tokens=200,
        prompt_tokens=200,
        partial=False,
        other_adapter=False,
        other_salt=False,
        generation=now,
        marks=frozenset(),
        evicted=False,
        stored=False,
    )


def take(drift: Drift, real: int, cause: MismatchCause | None = "unknown", **told: int) -> bool:
    """One more answer; of 160 tokens it was right."""
    return drift.take(compared(real, **told), None if real == 160 else cause, LIMITS)


def test_a_source_drifts_once_too_many_of_the_newest_are_wrong() -> None:
    """Not before so many samples, however wrong they are; and not again before as many more."""
    drift = Drift()

    assert [False] * 9 == [take(drift, 0) for _ in range(9)]
    assert take(drift, 0)
    assert [False] * 9 == [take(drift, 0) for _ in range(9)]
    assert take(drift, 0)


def test_what_is_at_the_limit_does_not_drift() -> None:
    """Two of ten, small ones; the third is too many."""
    drift = Drift()

    assert not any([take(drift, 144), take(drift, 176), *(take(drift, 160) for _ in range(8))])
    for _ in range(7):
        assert not take(drift, 160)
    assert not any([take(drift, 144), take(drift, 160)])
    assert not take(drift, 144)
    assert take(drift, 144)


def test_few_answers_that_promise_much_in_vain_are_drift() -> None:
    """The share of tokens counts, too."""
    drift = Drift()
    small = Drift()

    told = [take(drift, 160) for _ in range(8)] + [take(drift, 0) for _ in range(2)]

    assert not any(told), "two of ten by either measure"
    assert not any(small.take(compared(160), None, LIMITS) for _ in range(7))
    said = compared(0)
    large = said._replace(predicted=said.predicted._replace(reusable_tokens=16_000))
    assert [False, False, True] == [
        small.take(compared(160), None, LIMITS),
        small.take(compared(160), None, LIMITS),
        small.take(large, "unknown", LIMITS),
    ]


@pytest.mark.parametrize(
    ("state", "bound"),
    [("suspect", "estimate"), ("stale", "exact"), ("live", "lower"), ("live", "upper"), ("syncing", "exact")],
)
def test_what_was_uncertain_is_no_drift(state: SourceState, bound: Bound) -> None:
    """It was said at the time."""
    drift = Drift()

    assert not any(drift.take(compared(0, state=state, bound=bound), "unknown", LIMITS) for _ in range(30))


@pytest.mark.parametrize("cause", CAUSES)
def test_causes_that_are_not_the_sources_own_do_not_count(cause: MismatchCause) -> None:
    """The others do."""
    drift = Drift()

    assert (cause not in NOT_ITS_OWN) is any(take(drift, 0, cause) for _ in range(10))


def test_a_new_generation_is_judged_by_itself() -> None:
    """What is reported of the one before says nothing of it."""
    drift = Drift()
    for _ in range(9):
        assert not take(drift, 0)

    assert not take(drift, 0, generation=1, now=2)
    assert not take(drift, 0, generation=2, now=2)
    assert [False] * 8 == [take(drift, 0, generation=2, now=2) for _ in range(8)]
    assert take(drift, 0, generation=2, now=2)
