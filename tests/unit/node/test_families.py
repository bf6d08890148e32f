"""Families of metrics as text: what Prometheus's own library reads in it is what was put in."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from indexer.families import CounterFamily, Family, GaugeFamily, HistogramFamily, head, lines

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.floats(allow_nan=False)


def _read(family: Family) -> list[tuple[str, dict[str, str], float]]:
    text = "\n".join([head(family), *lines(family.samples), ""])
    (read,) = text_string_to_metric_families(text)
    assert (family.name, family.type) == (read.name, read.type)
    return [(sample.name, sample.labels, sample.value) for sample in read.samples]


@given(values=st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), min_size=1, max_size=4))
def test_what_is_read_is_what_was_put_in(values: list[tuple[str, str, float]]) -> None:
    """Whatever labels hold, and however large numbers are."""
    for ours, theirs in (
        (CounterFamily("x_hits", "Hits.", ("b", "a")), CounterMetricFamily("x_hits", "Hits.", labels=("b", "a"))),
        (GaugeFamily("x_now", "Now.", ("b", "a")), GaugeMetricFamily("x_now", "Now.", labels=("b", "a"))),
    ):
        for b, a, value in values:
            ours.add_metric([b, a], value)
            theirs.add_metric([b, a], value)

        assert [(sample.name, sample.labels, sample.value) for sample in theirs.samples] == _read(ours)


def test_a_histogram_as_theirs() -> None:
    """Buckets in their order, then the count, then the sum."""
    ours = HistogramFamily("x_seconds", "Time,\nin \\ seconds.", ("api",))
    theirs = HistogramMetricFamily("x_seconds", "", labels=("api",))
    for family in (ours, theirs):
        family.add_metric(['a"\\\n'], [("0.5", 1), ("+Inf", 3)], 2.5)

    assert [tuple(each)[:3] for each in theirs.samples] == [tuple(each) for each in ours.samples] == _read(ours)


def test_numbers_that_are_none() -> None:
    """In Prometheus's words."""
    family = GaugeFamily("x", "X.")
    for value in (math.inf, -math.inf, math.nan):
        family.add_metric([], value)

    assert ["x +Inf", "x -Inf", "x NaN"] == lines(family.samples)
