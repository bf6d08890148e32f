"""Metrics as requests of the OpenTelemetry protocol: the families that `/metrics` shows, under the same names. Pure.

Counters are cumulative sums since the process began, so that an export that got lost tells nothing less. Values are
doubles, as in the exposition. A gauge's series that is there no more (a state that a source was in) is told to have
ended, once, as the standard has it: else a collector would show its last value on.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from indexer.otlp.writing import put
from indexer.telemetry import SOURCES_A_PIECE
from schemas.rpc.otlp.v1 import otlp_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric
    from prometheus_client.samples import Sample

    from indexer.index.source import SourceIndex
    from indexer.ports import Clock
    from indexer.telemetry import Telemetry

POINTS: Final = 1_000
"""In one request: some 100 kB."""
POINTS_A_STEP: Final = 32
SERIES_A_STEP: Final = 256
PARTS: Final = 64
NO_VALUE: Final = 1
"""Of a point's flags: the series has ended."""
_UNITS: Final = {"seconds": "s", "bytes": "By"}

Series = tuple[str, ...]
"""A metric and the values of its labels."""
_Write: TypeAlias = "Callable[[MetricRequest], None]"


class MetricWriting:
    """One a process: knows which series the collector was told of."""

    def __init__(self, telemetry: Telemetry, clock: Clock, about: Mapping[str, str]) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._about = about
        self._began_ns = clock.wall_us() * 1_000
        self._told = _Told()
        self._labels: dict[str, tuple[str, ...]] = {}
        """Of each gauge, their names."""

    def requests(self, sources: list[SourceIndex]) -> Iterator[bytes | None]:
        """Requests, and None wherever others may run. Only who takes all of them has told that series ended."""
        told = _Told()
        request = self._request()
        for write in chain(self._held(sources, told), self._ended(told)):
            if write is not None:
                write(request)
            if request.points < POINTS:
                yield None
                continue
            yield request.encoded()
            request = self._request()
        if request.points:
            yield request.encoded()
        self._told = told

    def _held(self, sources: list[SourceIndex], told: _Told) -> Iterator[_Write | None]:
        for family in self._families(sources):
            if family is None:
                yield None
                continue
            for points in in_steps(family):
                if family.type == "gauge":
                    for sample in points:
                        told.add(self._series(family.name, sample.labels))
                yield partial(MetricRequest.add, family=family, samples=points)

    def _ended(self, told: _Told) -> Iterator[_Write | None]:
        for number, series in enumerate(self._told):
            if series not in told:
                name, *values = series
                yield partial(MetricRequest.end, name=name, labels=dict(zip(self._labels[name], values, strict=True)))
            elif number % SERIES_A_STEP == 0:
                yield None

    def _families(self, sources: list[SourceIndex]) -> Iterator[Metric | None]:
        telemetry = self._telemetry
        lag_s, telemetry.sent_loop_lag_s = telemetry.sent_loop_lag_s, 0.0
        yield from (yield from telemetry.families(sources, lag_s))
        if not telemetry.per_source:
            return
        for first in range(0, len(sources), SOURCES_A_PIECE):
            yield None
            yield from telemetry.source_families(sources[first : first + SOURCES_A_PIECE])

    def _request(self) -> MetricRequest:
        return MetricRequest(self._about, self._began_ns, self._clock.wall_us() * 1_000)

    def _series(self, name: str, labels: Mapping[str, str]) -> Series:
        self._labels.setdefault(name, tuple(labels))
        return (name, *labels.values())


class _Told:
    """Series of gauges, in many small sets: one large one would grow for longer than the loop may be held."""

    def __init__(self) -> None:
        self._parts: list[set[Series]] = [set() for _ in range(PARTS)]

    def add(self, series: Series) -> None:
        self._parts[hash(series) % PARTS].add(series)

    def __contains__(self, series: Series) -> bool:
        return series in self._parts[hash(series) % PARTS]

    def __iter__(self) -> Iterator[Series]:
        return chain.from_iterable(self._parts)


class MetricRequest:
    """One that is being written. Its points are of one moment."""

    def __init__(self, about: Mapping[str, str], began_ns: int, now_ns: int) -> None:
        self.points = 0
        self._began_ns, self._now_ns = began_ns, now_ns
        self._request = wire.ExportMetricsRequest()
        of_resource = self._request.resource_metrics.add()
        put(of_resource.resource.attributes, about)
        self._scope = of_resource.scope_metrics.add()
        self._scope.scope.name = about["service.name"]
        self._scope.scope.version = about.get("service.version", "")
        self._metrics: dict[str, wire.Metric] = {}

    def add(self, family: Metric, samples: list[Sample]) -> None:
        """Some of a family's samples; of a histogram all that are of one series."""
        if family.type == "histogram":
            self._add_histogram(family, samples)
            return
        name = samples[0].name
        out = self._metric(name, family.documentation)
        if family.type == "counter":
            out.sum.aggregation_temporality, out.sum.is_monotonic = wire.TEMPORALITY_CUMULATIVE, True
            points, began_ns = out.sum.data_points, self._began_ns
        else:
            points, began_ns = out.gauge.data_points, 0
        for sample in samples:
            point = points.add(
                start_time_unix_nano=began_ns, time_unix_nano=self._now_ns, as_double=float(sample.value)
            )
            put(point.attributes, sample.labels)
        self.points += len(samples)

    def end(self, name: str, labels: Mapping[str, str]) -> None:
        """A gauge's series is there no more."""
        point = self._metric(name, "").gauge.data_points.add(time_unix_nano=self._now_ns, flags=NO_VALUE)
        put(point.attributes, labels)
        self.points += 1

    def encoded(self) -> bytes:
        """All of it."""
        return self._request.SerializeToString()

    def _add_histogram(self, family: Metric, samples: list[Sample]) -> None:
        *buckets, count, total = samples
        out = self._metric(family.name, family.documentation).histogram
        out.aggregation_temporality = wire.TEMPORALITY_CUMULATIVE
        below = [0, *(int(bucket.value) for bucket in buckets)]
        point = out.data_points.add(
            start_time_unix_nano=self._began_ns,
            time_unix_nano=self._now_ns,
            count=int(count.value),
            sum=total.value,
            bucket_counts=[upto - before for before, upto in pairwise(below)],
            explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],  # the last has none
        )
        put(point.attributes, count.labels)
        self.points += len(buckets)

    def _metric(self, name: str, description: str) -> wire.Metric:
        found = self._metrics.get(name)
        if found is None:
            unit = _UNITS.get(name.rpartition("_")[2], "")
            found = self._metrics[name] = self._scope.metrics.add(name=name, description=description, unit=unit)
        return found


def in_steps(family: Metric) -> Iterator[list[Sample]]:
    """A family's samples, a few at a time; a histogram's by series, each ends with its count and its sum."""
    if family.type != "histogram":
        samples = family.samples
        yield from (samples[first : first + POINTS_A_STEP] for first in range(0, len(samples), POINTS_A_STEP))
        return
    series: list[Sample] = []
    for sample in family.samples:
        series.append(sample)
        if sample.name.endswith("_sum"):
            yield series
            series = []
