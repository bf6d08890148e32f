"""Spans on their way to a collector, over a real connection: bounded, told once, and in nobody's way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from indexer.clock import SystemClock
from indexer.model import SourceId
from indexer.otlp.collector import METRICS, TRACES, Collector
from indexer.otlp.sending import BATCH, KEPT, LIMIT, Sending, Times
from indexer.ports import SpanResult
from indexer.tracing import Tracing
from schemas.rpc.otlp.v1.otlp_pb2 import ExportTraceResponse
from tests.support import nowhere
from tests.support.collecting import until
from tests.support.otlp_collector import DRIPS, OtlpCollector, otlp_collector, told
from tests.support.said import Said

QUICK = {"every_s": 0.02, "rest_s": 0.02}
"""No test sits through a wait."""


class Sent:
    """A `Sending` with what it counts and says, and spans for it."""

    def __init__(self, url: str, *, patience_s: float = 5.0, **times: float) -> None:
        self.counts: Counter[SpanResult] = Counter()
        self.limits: Counter[str] = Counter()
        self.said = Said()
        clock = SystemClock()
        self.sending = Sending(
            Collector(url, patience_s=patience_s),
            clock,
            self.counts,
            reached=self._reached,
            say=self.said,
            times=Times(**{**QUICK, **times}),
        )
        self._tracing = Tracing(self.sending, clock, random.Random(1), ratio=1.0, about={"service.version": "1"})
        self._ended = 0

    def _reached(self, limit: str) -> None:
        self.limits[limit] += 1

    def replay(self, pod: str, last: int) -> None:
        """A span of another kind ends."""
        self._tracing.replay(SourceId(pod, 0), 0, last, "ok", 0.001)

    def end(self, spans: int = 1) -> None:
        for _ in range(spans):
            self._tracing.batch(SourceId("a", 0), self._ended, 1, 0.001)
            self._ended += 1


@contextlib.asynccontextmanager
async def running(sent: Sent) -> AsyncIterator[asyncio.Event]:
    """Until the block ends, or the event is set."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sent.sending.run(stop))
        yield stop
        stop.set()


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    """One that takes what it gets."""
    with otlp_collector() as running_collector:
        yield running_collector


def test_what_ends_arrives_once_and_in_order(collector: OtlpCollector) -> None:
    """In requests of at most so many spans, each of this service."""
    sent = Sent(collector.url)

    async def play() -> None:
        sent.end(2 * BATCH + 5)
        async with running(sent):
            await until(lambda: len(collector.spans) == 2 * BATCH + 5, "all spans")

    asyncio.run(play())

    assert [BATCH, BATCH, 5] == [len(each.resource_spans[0].scope_spans[0].spans) for each in collector.requests]
    assert list(range(2 * BATCH + 5)) == [told(span)["sequence"] for span in collector.spans]
    assert {"/v1/traces"} == set(collector.paths)
    assert {"sent": 2 * BATCH + 5} == +sent.counts
    about = {each.key: each.value.string_value for each in collector.requests[0].resource_spans[0].resource.attributes}
    assert {"service.name": "kvindexer", "service.version": "1"} == about
    assert not sent.said.lines


def test_at_the_stop_the_rest_is_sent(collector: OtlpCollector) -> None:
    """Also what ended in the last moment."""
    sent = Sent(collector.url)

    async def play() -> None:
        async with running(sent) as stop:
            stop.set()
            sent.end(3)

    asyncio.run(play())

    assert 3 == len(collector.spans)


def test_a_collector_that_never_answers_holds_up_no_stop(collector: OtlpCollector) -> None:
    """What it has not taken is dropped, and counted."""
    sent = Sent(collector.url, flush_s=0.05, patience_s=0.05)
    collector.free.clear()

    async def play() -> None:
        sent.end(7)
        async with running(sent):
            await until(lambda: bool(sent.said.lines), "a line of the log")

    asyncio.run(play())

    assert {"dropped": 7} == +sent.counts


def test_a_collector_that_holds_a_request_at_the_stop_holds_up_no_stop(collector: OtlpCollector) -> None:
    """However patient one is with it else."""
    sent = Sent(collector.url, flush_s=0.05, patience_s=3_600.0)
    collector.free.clear()

    async def play() -> None:
        sent.end(7)
        async with asyncio.timeout(20.0), running(sent):
            await until(lambda: bool(collector.asked), "a request under way")

    asyncio.run(play())

    assert {"dropped": 7} == +sent.counts


def test_a_request_under_way_at_the_stop_may_end(collector: OtlpCollector) -> None:
    """What it holds is sent once, and what ended since is sent after it."""
    sent = Sent(collector.url, flush_s=20.0)
    collector.free.clear()

    async def play() -> None:
        sent.end(2)
        async with running(sent) as stop:
            await until(lambda: bool(collector.asked), "a request under way")
            sent.end(1)
            stop.set()
            collector.free.set()

    asyncio.run(play())

    assert [0, 1, 2] == [told(span)["sequence"] for span in collector.spans]
    assert {"sent": 3} == +sent.counts


def test_a_collector_that_drips_is_asked_again_and_holds_up_no_stop(collector: OtlpCollector) -> None:
    """A byte in time is no answer in time."""
    sent = Sent(collector.url, flush_s=0.05, patience_s=0.1)
    collector.answers = [DRIPS]

    async def play() -> None:
        sent.end(2)
        async with asyncio.timeout(20.0), running(sent):
            await until(lambda: sent.counts["sent"] == 2, "spans in another request")
            collector.answers = 1_000 * [DRIPS]
            asked = collector.asked
            sent.end()
            await until(lambda: collector.asked > asked, "a request under way")

    asyncio.run(play())

    assert {"sent": 2, "dropped": 1} == +sent.counts
    assert "no answer in time" in sent.said.lines[0][1]


def test_what_the_protocol_has_no_form_for_harms_nothing(collector: OtlpCollector) -> None:
    """Numbers of engines reach further than its own, and a name may be no UTF-8: both arrive as text."""
    sent = Sent(collector.url)

    async def play() -> None:
        sent.replay("a", 2**63)
        sent.replay("\ud800", 2**63 - 1)
        async with running(sent):
            await until(lambda: len(collector.spans) == 2, "both spans")

    asyncio.run(play())

    assert [("a", str(2**63)), (r"\ud800", 2**63 - 1)] == [
        (told(span)["source"], told(span)["to"]) for span in collector.spans
    ]


def test_spans_that_cannot_be_written_are_dropped_alone(collector: OtlpCollector) -> None:
    """Their batch is counted, the log says so, and the next is sent."""
    sent = Sent(collector.url)

    async def play() -> None:
        sent.end(BATCH - 1)
        sent.sending.on_end(ReadableSpan("before all time", start_time=-1))
        sent.end(2)
        async with running(sent):
            await until(lambda: bool(collector.spans), "the spans after them")

    asyncio.run(play())

    assert {"dropped": BATCH, "sent": 2} == +sent.counts
    where = f"traces: the collector at {collector.url} (telemetry.otlp_endpoint):"
    assert [
        (
            "WARNING",
            f"{where} spans could not be written: ValueError",
        ),
        ("INFO", "traces: the collector takes them again"),
    ] == sent.said.lines


@pytest.mark.parametrize("location", nowhere.LOCATIONS)
def test_a_redirect_is_an_answer_like_another(collector: OtlpCollector, location: str) -> None:
    """Wherever it sends: nobody goes there, and nobody minds."""
    sent = Sent(collector.url)
    collector.answers, collector.says = [302], {"location": location}

    async def play() -> None:
        sent.end()
        async with running(sent):
            await until(lambda: bool(+sent.counts), "the answer")
            sent.end(2)

    asyncio.run(play())

    assert {"refused": 1, "sent": 2} == +sent.counts
    assert (
        "WARNING",
        f"traces: the collector at {collector.url} (telemetry.otlp_endpoint): it answers 302",
    ) == sent.said.lines[0]


@pytest.mark.parametrize("host", nowhere.HOSTS)
def test_a_collector_whose_name_is_none_is_no_fault(host: str) -> None:
    """As one that is not there."""
    sent = Sent(f"http://{host}:4318")

    async def play() -> None:
        sent.end()
        async with running(sent):
            await until(lambda: bool(sent.said.lines), "a line of the log")

    asyncio.run(play())

    assert {"dropped": 1} == +sent.counts


def test_no_cookie_is_kept(collector: OtlpCollector) -> None:
    """A collector could have as many kept as it likes."""
    sent = Sent(collector.url)
    collector.says = {"set-cookie": "a=b"}

    async def play() -> None:
        sent.end(2 * BATCH)
        async with running(sent):
            await until(lambda: len(collector.spans) == 2 * BATCH, "two requests")

    asyncio.run(play())

    assert [] == collector.cookies


@pytest.mark.parametrize("says", [b"#" * 200_000, b""])
def test_what_it_says_beside_is_of_no_matter(collector: OtlpCollector, says: bytes) -> None:
    """Much, or nothing: it said that all is well."""
    sent = Sent(collector.url)
    collector.body = says

    async def play() -> None:
        sent.end()
        async with running(sent):
            await until(lambda: bool(+sent.counts), "the answer")

    asyncio.run(play())

    assert {"sent": 1} == +sent.counts


def test_no_more_are_kept_than_there_is_room_for(collector: OtlpCollector) -> None:
    """The rest is dropped and counted, at the limit's name, too."""
    sent = Sent(collector.url)

    async def play() -> None:
        sent.end(KEPT + 11)
        assert {LIMIT: 11} == sent.limits
        async with running(sent):
            await until(lambda: len(collector.spans) == KEPT, "all that were kept")

    asyncio.run(play())

    assert {"sent": KEPT, "dropped": 11} == +sent.counts
    assert KEPT - 1 == told(collector.spans[-1])["sequence"], "what came first is kept"


def test_a_collector_in_trouble_is_asked_again_and_told_of_once(collector: OtlpCollector) -> None:
    """Nothing is lost, nor sent twice."""
    sent = Sent(collector.url)
    collector.answers = [503, 503, 429]

    async def play() -> None:
        sent.end(2)
        async with running(sent):
            await until(lambda: bool(collector.spans), "spans")

    asyncio.run(play())

    assert {"sent": 2} == +sent.counts
    where = f"traces: the collector at {collector.url} (telemetry.otlp_endpoint):"
    assert [
        ("WARNING", f"{where} it answers 503"),
        ("WARNING", f"{where} it answers 429"),
        ("INFO", "traces: the collector takes them again"),
    ] == sent.said.lines
    assert ["traces_failing", "traces_failing", "traces_taken"] == sent.said.events


def test_what_would_be_refused_again_is_not_sent_again(collector: OtlpCollector) -> None:
    """It is counted, as is what a collector says that it left out."""
    sent = Sent(collector.url)
    collector.answers = [401]
    some = ExportTraceResponse()
    some.partial_success.rejected = 3
    collector.body = some.SerializeToString()

    async def play() -> None:
        sent.end(BATCH + 4)
        async with running(sent):
            await until(lambda: bool(collector.spans), "spans")

    asyncio.run(play())

    assert {"refused": BATCH + 3, "sent": 1} == +sent.counts
    assert 2 == len(collector.raw)


def test_nobody_there_is_no_fault() -> None:
    """Spans wait, and the log says so once, without what may be a secret; all is counted from the start."""
    with otlp_collector() as gone:
        sent = Sent(gone.url + "/a-key")
    assert dict.fromkeys(("sent", "refused", "dropped"), 0) == sent.counts

    async def play() -> None:
        sent.end()
        async with running(sent):
            await until(lambda: bool(sent.said.lines), "a line of the log")

    asyncio.run(play())

    assert [
        ("WARNING", f"traces: the collector at {gone.url} (telemetry.otlp_endpoint): connection refused")
    ] == sent.said.lines
    assert {"dropped": 1} == +sent.counts


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        ("http://h:4318", "http://h:4318"),
        ("http://h:4318/", "http://h:4318"),
        ("https://h/otlp", "https://h/otlp"),
        ("https://h/v1/traces", "https://h"),
        ("https://h/v1/metrics/", "https://h"),
    ],
)
def test_where_traces_and_metrics_go(endpoint: str, base: str) -> None:
    """As other exporters read such an endpoint; one that says where the one goes says it of the other, too."""
    collector = Collector(endpoint)

    assert [f"{base}/v1/traces", f"{base}/v1/metrics"] == [collector.url(path) for path in (TRACES, METRICS)]
