"""Metrics on their way to a collector, over a real connection: now and then, one export at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from indexer.clock import SystemClock
from indexer.index.states import StateLimits
from indexer.otlp.collector import Collector
from indexer.otlp.metric_sending import MetricSending
from indexer.otlp.metric_writing import MetricWriting
from indexer.ports import ExportResult
from indexer.telemetry import Telemetry
from schemas.rpc.otlp.v1.otlp_pb2 import ExportMetricsResponse
from tests.support.collecting import until
from tests.support.otlp_collector import DRIPS, OtlpCollector, otlp_collector, samples_of
from tests.support.said import Said

COUNT = 'kvindexer_limit_reached_total{limit="limits.tokens"}'


class Sent:
    """A `MetricSending` with what it counts and says, and something to send."""

    def __init__(self, url: str, *, every_s: float = 0.01, patience_s: float = 5.0, key: str | None = None) -> None:
        self.counts: Counter[ExportResult] = Counter()
        self.said = Said()
        self.began = 0
        """Exports."""
        clock = SystemClock()
        self.telemetry = Telemetry(clock, StateLimits(), "0", per_source=True)
        self._writing = MetricWriting(self.telemetry, clock, {"service.name": "kvindexer"})
        headers = {} if key is None else {"X-Key": key}
        self.sending = MetricSending(
            Collector(url, headers, patience_s=patience_s),
            clock,
            self._requests,
            self.counts,
            every_s=every_s,
            say=self.said,
        )

    def _requests(self) -> Iterator[bytes | None]:
        self.began += 1
        self.telemetry.limits_reached["limits.tokens"] = self.began
        return self._writing.requests([])


@contextlib.asynccontextmanager
async def running(sent: Sent) -> AsyncIterator[asyncio.Event]:
    """Until the block ends, or the event is set."""
    stop = asyncio.Event()
    async with asyncio.timeout(30.0), asyncio.TaskGroup() as tasks:
        tasks.create_task(sent.sending.run(stop))
        yield stop
        stop.set()


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    """One that takes what it gets."""
    with otlp_collector() as running_collector:
        yield running_collector


def test_metrics_arrive_again_and_again(collector: OtlpCollector) -> None:
    """With what the collector wants to be shown; and the last numbers at the stop."""
    sent = Sent(collector.url, key="k")

    async def play() -> None:
        async with running(sent):
            await until(lambda: len(collector.metrics) >= 2, "two exports")

    asyncio.run(play())

    numbers = [samples_of([each])[COUNT] for each in collector.metrics]
    assert list(range(1, sent.began + 1)) == numbers
    assert {"sent": sent.began} == +sent.counts
    assert {"/v1/metrics"} == set(collector.paths)
    assert {("k", "application/x-protobuf")} == {(each["x-key"], each["content-type"]) for each in collector.headers}
    assert not sent.said.lines


def test_at_the_stop_the_last_numbers_are_sent(collector: OtlpCollector) -> None:
    """However long it is to the next export."""
    sent = Sent(collector.url, every_s=3_600.0)

    async def play() -> None:
        async with running(sent):
            pass

    asyncio.run(play())

    assert [1] == [samples_of([each])[COUNT] for each in collector.metrics]


def test_an_export_that_fails_is_counted_and_told_of_once(collector: OtlpCollector) -> None:
    """It is not sent again: the next tells all that it told."""
    sent = Sent(collector.url)
    collector.answers = [503, 503, 401]

    async def play() -> None:
        async with running(sent):
            await until(lambda: bool(collector.metrics), "an export")

    asyncio.run(play())

    assert (2, 1) == (sent.counts["failed"], sent.counts["refused"])
    assert 4 == samples_of(collector.metrics[:1])[COUNT]
    where = f"metrics: the collector at {collector.url} (telemetry.otlp_endpoint):"
    assert [
        ("WARNING", f"{where} it answers 503"),
        ("WARNING", f"{where} it answers 401"),
        ("INFO", "metrics: the collector takes them again"),
    ] == sent.said.lines
    assert ["metrics_failing", "metrics_failing", "metrics_taken"] == sent.said.events


def test_points_that_a_collector_leaves_out_are_refused(collector: OtlpCollector) -> None:
    """It says so in an answer that is well else."""
    sent = Sent(collector.url, every_s=3_600.0)
    some = ExportMetricsResponse()
    some.partial_success.rejected = 3
    collector.body = some.SerializeToString()

    async def play() -> None:
        async with running(sent):
            pass

    asyncio.run(play())

    assert {"refused": 1} == +sent.counts


def test_one_export_at_a_time(collector: OtlpCollector) -> None:
    """While a collector has one, no other begins; and it holds up no stop."""
    sent = Sent(collector.url, every_s=0.001)
    collector.free.clear()

    async def play() -> None:
        async with running(sent):
            await until(lambda: bool(collector.asked), "a request under way")
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert 1 == sent.began
            collector.free.set()

    asyncio.run(play())

    assert sent.began == sent.counts["sent"]


def test_a_collector_that_never_comes_to_an_end_holds_up_nothing(collector: OtlpCollector) -> None:
    """It is given up in time, and so is what was to go out at the stop."""
    sent = Sent(collector.url, patience_s=0.05)
    collector.answers = [DRIPS] * 100

    async def play() -> None:
        async with running(sent):
            await until(lambda: sent.counts["failed"] >= 2, "two exports")

    asyncio.run(play())

    assert {"failed": sent.began} == +sent.counts
    assert [
        ("WARNING", f"metrics: the collector at {collector.url} (telemetry.otlp_endpoint): no answer in time")
    ] == sent.said.lines


def test_metrics_that_cannot_be_written_end_nothing(collector: OtlpCollector) -> None:
    """The export is counted, the log says so, and the next is tried."""
    sent = Sent(collector.url)
    sent.telemetry.sent_loop_lag_s = "long"  # type: ignore[assignment]

    async def play() -> None:
        async with running(sent):
            await until(lambda: bool(collector.metrics), "the next export")

    asyncio.run(play())

    assert 1 == sent.counts["failed"]
    assert "metrics_failing" == sent.said.events[0]
