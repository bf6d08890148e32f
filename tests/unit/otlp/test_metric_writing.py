"""Metrics in OTLP's binary form: what OpenTelemetry's own exporter makes of the same, and all that `/metrics` shows."""

from __future__ import annotations

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from indexer.index.source import SourceIndex
from indexer.index.states import StateLimits
from indexer.otlp.metric_writing import POINTS, MetricRequest, MetricWriting, in_steps
from indexer.telemetry import StoreHealth, Telemetry
from schemas.rpc.otlp.v1.otlp_pb2 import ExportMetricsRequest, NumberPoint
from tests.support.core import Core
from tests.support.core_events import prompt, stored
from tests.support.otlp_collector import samples_of
from tests.support.steps import done

# `encode_metrics` of opentelemetry-exporter-otlp-proto-common 1.45.2 on what `_families` below tells.
OFFICIAL = bytes.fromhex(
    "0ac9040a370a1b0a0c736572766963652e6e616d65120b0a096b76696e64657865720a180a0f736572766963652e76657273696f6e1205"
    "0a03312e32128d040a100a096b76696e64657865721203312e321297010a166b76696e64657865725f6576656e74735f746f74616c1218"
    "4576656e7473206170706c6965642c206279206b696e642e3a630a2d1100002a36fe9c9717190058712e0c9d9717210000000000000840"
    "3a100a046b696e6412080a0673746f7265640a2e1100002a36fe9c9717190058712e0c9d97172100000000000000003a110a046b696e64"
    "12090a0772656d6f7665641002180112620a1c6b76696e64657865725f736f757263655f6c61675f7365636f6e64731218416765206f66"
    "20746865206e65776573742070726f6f662e1a01732a250a23190058712e0c9d971721000000000000d03f3a0f0a06736f757263651205"
    "0a0361233112430a176b76696e64657865725f616e73776572735f6279746573120e48656c642062792074686573652e1a0242792a140a"
    "12190058712e0c9d971721000000000000f8bf12b5010a216b76696e64657865725f6c6f6f6b75705f6475726174696f6e5f7365636f6e"
    "6473120554696d652e1a01734a85010a80011100002a36fe9c9717190058712e0c9d971721060000000000000029000000000000fc3f32"
    "180100000000000000000000000000000005000000000000003a10fca9f1d24d62503f000000000000e03f4a0d0a0361706912060a0472"
    "6573744a0d0a04636f646512050a033230305900000000000000006100000000000000001002"
)
# `NumberDataPoint` of opentelemetry-proto 1.45.2 with the flag of a series that has ended.
ENDED = bytes.fromhex("190058712e0c9d97173a0d0a06736f7572636512030a01614001")
BEGAN_NS, NOW_NS = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000
ABOUT = {"service.name": "kvindexer", "service.version": "1.2"}


def _families() -> list[Metric]:
    """One of each kind, and a gauge without labels."""
    events = CounterMetricFamily("kvindexer_events", "Events applied, by kind.", labels=("kind",))
    events.add_metric(["stored"], 3)
    events.add_metric(["removed"], 0)
    lag = GaugeMetricFamily("kvindexer_source_lag_seconds", "Age of the newest proof.", labels=("source",))
    lag.add_metric(["a#1"], 0.25)
    held = GaugeMetricFamily("kvindexer_answers_bytes", "Held by these.", labels=())
    held.add_metric([], -1.5)
    times = HistogramMetricFamily("kvindexer_lookup_duration_seconds", "Time.", labels=("api", "code"))
    times.add_metric(["rest", "200"], [("0.001", 1), ("0.5", 1), ("+Inf", 6)], 1.75)
    return [events, lag, held, times]


def test_it_is_what_opentelemetry_writes_itself() -> None:
    """Field for field. Theirs has the least and the most of a histogram, too, which nobody keeps here."""
    request = MetricRequest(ABOUT, BEGAN_NS, NOW_NS)
    for family in _families():
        for samples in in_steps(family):
            request.add(family, samples)
    theirs = ExportMetricsRequest.FromString(OFFICIAL)
    for metric in theirs.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.histogram.data_points:
            point.ClearField("min")
            point.ClearField("max")

    assert theirs == ExportMetricsRequest.FromString(request.encoded())
    unknown = ExportMetricsRequest.FromString(OFFICIAL)
    unknown.DiscardUnknownFields()
    assert unknown.ByteSize() == len(OFFICIAL), "the proto knows all that is written there"


def test_the_end_of_a_series_is_told_as_opentelemetry_tells_it() -> None:
    """A flag, and no value."""
    request = MetricRequest(ABOUT, BEGAN_NS, NOW_NS)
    request.end("kvindexer_source_lag_seconds", {"source": "a"})
    written = ExportMetricsRequest.FromString(request.encoded())
    (metric,) = written.resource_metrics[0].scope_metrics[0].metrics

    assert [NumberPoint.FromString(ENDED)] == list(metric.gauge.data_points)


class Written:
    """A core's telemetry, as it is scraped and as it is sent."""

    def __init__(self, *, sources: int, per_source: bool = True) -> None:
        self.core = Core()
        for number in range(sources):
            self.core.engine(f"pod-{number}").say(stored([1], prompt(1)))
        clock = self.core.clock
        self.telemetry = Telemetry(clock, StateLimits(), "0", per_source=per_source)
        self._writing = MetricWriting(self.telemetry, clock, ABOUT)

    @property
    def _sources(self) -> list[SourceIndex]:
        return [sink.source for sink in self.core.sinks.values()]

    def sent(self) -> list[ExportMetricsRequest]:
        contents = self._writing.requests(self._sources)
        return [ExportMetricsRequest.FromString(each) for each in contents if each is not None]

    def send_in_vain(self) -> None:
        """An export that ends with its first request."""
        contents = self._writing.requests(self._sources)
        next(each for each in contents if each is not None)

    def scraped(self) -> dict[str, float]:
        lines = done(self.telemetry.text(self._sources)).decode().splitlines()
        pairs = (each.rpartition(" ") for each in lines if not each.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def leave(self, pod: str) -> None:
        """A source is there no more."""
        (key,) = (key for key, sink in self.core.sinks.items() if sink.source.descriptor.id.pod == pod)
        del self.core.sinks[key]


@pytest.mark.parametrize(("sources", "per_source"), [(0, True), (3, True), (3, False), (300, True)])
def test_what_is_sent_is_what_is_scraped(sources: int, per_source: bool) -> None:
    """Each sample with its labels, however many requests it takes, and none of sources where there are to be none."""
    written = Written(sources=sources, per_source=per_source)
    telemetry = written.telemetry
    for seconds in (0.00001, 0.0004, 0.0004, 7.0):
        telemetry.lookups.observe("rest", "json", 200, "exact", seconds)
    telemetry.texts.took("file", 0.01)
    telemetry.store = StoreHealth(up=True, owned=2, lags_s={1: 0.5}, pending_bytes={1: 7}, failures={"timeout": 1})
    telemetry.lagged(0.25)
    requests = written.sent()
    scraped = written.scraped()

    assert scraped == samples_of(requests)
    assert bool(sources and per_source) == any('source="pod-' in name for name in scraped)
    assert 1 + sources // 150 == len(requests)
    assert all(len(samples_of([each])) < POINTS + 100 for each in requests)


def test_counts_go_on_from_the_beginning() -> None:
    """Each export tells all since then, and when that was."""
    written = Written(sources=1)
    written.telemetry.limits_reached["limits.tokens"] = 1
    first = written.sent()
    written.core.clock.at += 60.0
    written.telemetry.limits_reached["limits.tokens"] = 5
    second = written.sent()
    name = 'kvindexer_limit_reached_total{limit="limits.tokens"}'
    times = {
        (point.start_time_unix_nano, point.time_unix_nano - point.start_time_unix_nano)
        for metric in second[0].resource_metrics[0].scope_metrics[0].metrics
        for point in (*metric.sum.data_points, *metric.histogram.data_points)
    }

    assert (1, 5) == (samples_of(first)[name], samples_of(second)[name])
    ((began_ns, since_ns),) = times
    assert began_ns > 0
    assert 60_000_000_000 == since_ns


def test_a_series_that_ends_is_told_once() -> None:
    """Else a collector would show its last value on. Who was not told then is told by the next export."""
    written = Written(sources=2)
    of_source = "kvindexer_source_bound"
    all_told = written.sent()
    assert 2 == sum(name.startswith(of_source) for name in samples_of(all_told))
    written.leave("pod-1")
    written.send_in_vain()
    then = written.sent()
    later = written.sent()

    assert not any("pod-1" in name for name in samples_of([*all_told, *then]))
    assert b"pod-1" in b"".join(each.SerializeToString() for each in then)
    assert b"pod-1" not in b"".join(each.SerializeToString() for each in later)


def test_a_scrape_and_an_export_do_not_take_from_each_other() -> None:
    """The longest delay of the loop is since the last of the same kind."""
    written = Written(sources=0)
    name = "kvindexer_event_loop_lag_seconds"
    written.telemetry.lagged(0.25)
    written.telemetry.lagged(0.125)

    assert [0.25, 0.25] == [written.scraped()[name], samples_of(written.sent())[name]]
    assert [0.0, 0.0] == [written.scraped()[name], samples_of(written.sent())[name]]
