"""Families of metrics with their samples, and how Prometheus reads them: its text format, version 0.0.4. Pure.

The library for it takes a web server and a client with it, 1.5 MB that nobody asks here; a test reads what is written
here with that library's parser.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One number of a family. `name` is the family's, with what its kind puts behind it."""

    name: str
    labels: Mapping[str, str]
    value: float


class Family:
    """A metric, and its samples so far. `name`: of a counter without `_total`; `labels`: in the order of values."""

    type = "gauge"

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.documentation = documentation
        self.samples: list[Sample] = []
        self._labels = labels

    @property
    def told_as(self) -> str:
        """What heads it in the text."""
        return self.name


class GaugeFamily(Family):
    """What goes up and down."""

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        """A sample, with the values of the labels."""
        self.samples.append(Sample(self.told_as, dict(zip(self._labels, labels, strict=True)), value))


class CounterFamily(GaugeFamily):
    """What only goes up."""

    type = "counter"

    @property
    def told_as(self) -> str:
        """Counters end in `_total`."""
        return self.name + "_total"


class HistogramFamily(Family):
    """How often what lay below what."""

    type = "histogram"

    def add_metric(self, labels: Sequence[str], buckets: Sequence[tuple[str, float]], sum_value: float) -> None:
        """One histogram: counts at or below each edge, `+Inf` the last; then come its count and its sum."""
        named = dict(zip(self._labels, labels, strict=True))
        self.samples += [Sample(f"{self.name}_bucket", {**named, "le": edge}, count) for edge, count in buckets]
        self.samples.append(Sample(f"{self.name}_count", named, buckets[-1][1]))
        self.samples.append(Sample(f"{self.name}_sum", named, sum_value))


def head(family: Family) -> str:
    """The two lines before its samples."""
    meaning = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.told_as} {meaning}\n# TYPE {family.told_as} {family.type}"


def lines(samples: Iterable[Sample]) -> list[str]:
    """One for each, without its end."""
    return [f"{name}{_labels(labels)} {_number(value)}" for name, labels, value in samples]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    told = ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())])
    return f"{{{told}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    number = float(value)
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return "NaN" if math.isnan(number) else repr(number)
