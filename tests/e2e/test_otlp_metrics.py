"""What a running service sends to a collector as metrics, beside what a scrape of it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService, applied
from tests.support.moved import SENT, check_moved
from tests.support.otlp_collector import OtlpCollector, otlp_collector, samples_of, told

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY: Final = "what-the-collector-wants-to-be-shown"
STEADY: Final = re.compile(
    r"kvindexer_(?:events|lookups|lookup_duration_seconds|blocks|source_state|build_info|gaps|answers)(?:_[a-z]+)?(?:{.*)?"
)
"""What nothing but the test moves."""
LAST: Final = 'kvindexer_lookups_total{api="rest",state="exact"}'


class Seen(NamedTuple):
    """Of one service, from its start to its end."""

    collector: OtlpCollector
    sent: dict[str, float]
    scraped: dict[str, float]
    exports: float
    exposition: bytes
    shown: str
    log: str


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    """One source, some lookups, and two more in the moment before it stops."""
    with otlp_collector() as collector, EngineSimulator() as engine:
        settings = {
            "telemetry__otlp_endpoint": collector.url,
            "telemetry__otlp_metrics_s": "1",
            "telemetry__otlp_headers": f"{{x-key: {KEY}}}",
            "telemetry__log_level": "debug",
        }
        with RunningService([f"pod={engine.endpoint},model=m"], **settings) as service:
            service.wait_for(lambda: "pod" in service.sources(), "the source")
            engine.publish(payload(stored([1, 2], prompt(2))))
            service.wait_for(lambda: applied(service, "pod", 0), "the batch")
            for _ in range(3):
                service.ask(prompt(2))
            service.wait_for(lambda: _steady(service.metrics()) == _steady(samples_of(collector.metrics)), "the same")
            sent, scraped = _steady(samples_of(collector.metrics)), _steady(service.metrics())
            sent_so_far = 'kvindexer_metric_exports_total{result="sent"}'
            service.wait_for(lambda: sent_so_far in service.metrics(), "an export to be counted")
            exports = service.metric(sent_so_far)
            exposition = service.call("GET", "/metrics").content
            shown = service.call("GET", "/v1/config").text
            for _ in range(2):
                service.ask(prompt(2))
            log = service.log()
        yield Seen(collector, sent, scraped, exports, exposition, shown, log)


def _steady(samples: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in samples.items() if STEADY.fullmatch(name)}


def test_what_is_sent_is_what_a_scrape_shows(seen: Seen) -> None:
    """Counters, gauges and histograms, by the same names and labels."""
    assert seen.scraped == seen.sent
    assert 3 == seen.sent[LAST]
    assert 2 == seen.sent['kvindexer_blocks{source="pod",tier="gpu"}']
    assert 3 == seen.sent['kvindexer_lookup_duration_seconds_count{api="rest",code="200",input="json"}']


def test_the_collector_learns_whose_they_are(seen: Seen) -> None:
    """As of spans: the service, its version and which process."""
    resources = [each.resource_metrics[0].resource for each in seen.collector.metrics]

    assert {"service.name", "service.version", "service.instance.id"} == set(told(resources[0]))
    assert all(resources[0] == each for each in resources)


def test_exports_are_counted(seen: Seen) -> None:
    """By what came of them."""
    assert len(seen.collector.metrics) >= seen.exports >= 1
    check_moved([seen.exposition], SENT)


def test_the_last_numbers_are_sent_at_the_stop(seen: Seen) -> None:
    """What happened since the last export is not lost."""
    assert 5 == samples_of(seen.collector.metrics)[LAST]


def test_headers_are_for_the_collector_alone(seen: Seen) -> None:
    """Each request has them, and nobody else is shown what they hold."""
    assert {KEY} == {headers["x-key"] for headers in seen.collector.headers}
    assert KEY not in seen.shown + seen.log
    assert '"x-key":"***"' in seen.shown.replace(" ", "")
