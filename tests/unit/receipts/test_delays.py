"""How long blocks are expected, from how long events took before."""

from __future__ import annotations

import pytest

from indexer.model import SourceId
from indexer.receipts.delays import MODELS_MAX, SAMPLES_KEPT, SAMPLES_MIN, Delays

A, B = SourceId("a", 0), SourceId("b", 0)


def taught(*seconds: float, model: str | None = "m") -> Delays:
    """Of source A."""
    delays = Delays()
    for each in seconds:
        delays.seen(A, model, each)
    return delays


def test_before_anything_was_seen_the_longest() -> None:
    """A hint that ends too late still names what was asked for; one that ends too early is lost."""
    assert 10.0 == Delays().ttl_s(A, "m") == taught(*[1.0] * (SAMPLES_MIN - 1)).ttl_s(A, "m")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([1.0] * 8, 2.0), ([0.01] * 8, 0.5), ([9.0] * 8, 10.0), ([1.0] * 19 + [3.0], 2.0), ([1.0] * 18 + [3.0] * 2, 6.0)],
    ids=["twice", "at least", "at most", "one of twenty is slower", "two of twenty are"],
)
def test_twice_the_95th_percentile_within_bounds(seconds: list[float], expected: float) -> None:
    """Of what was seen of the source."""
    assert expected == pytest.approx(taught(*seconds).ttl_s(A, "m"))


def test_a_source_without_a_past_goes_by_its_models() -> None:
    """Sources of a model do the same work; of another model nothing follows."""
    delays = taught(*[1.0] * 8)

    assert (2.0, 10.0) == (delays.ttl_s(B, "m"), delays.ttl_s(B, "other"))


def test_the_latest_count() -> None:
    """An engine that became faster is believed."""
    assert 0.5 == taught(*[5.0] * 100, *[0.1] * SAMPLES_KEPT).ttl_s(A, "m")


def test_of_sources_that_are_gone_nothing_is_kept() -> None:
    """What their model took is."""
    delays = taught(*[1.0] * 8, *[4.0] * 8, model="m")
    delays.seen(B, "m", 1.0)
    delays.forget_others({B})

    assert delays.ttl_s(A, "other") == 10.0
    assert delays.ttl_s(A, "m") == 8.0


def test_models_are_bounded() -> None:
    """Names come from whoever registers."""
    delays = Delays()
    for number in range(MODELS_MAX + 1):
        for _ in range(SAMPLES_MIN):
            delays.seen(SourceId(f"p{number}", 0), f"m{number}", 1.0)

    assert (2.0, 10.0, 2.0) == (
        delays.ttl_s(A, f"m{MODELS_MAX - 1}"),
        delays.ttl_s(A, f"m{MODELS_MAX}"),
        delays.ttl_s(SourceId(f"p{MODELS_MAX}", 0), f"m{MODELS_MAX}"),
    )
