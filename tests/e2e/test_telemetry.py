"""What a running service tells of itself to a collector of traces, over real sockets and on a real store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
import httpx
import pytest

from api.demo.engine import EngineSimulator
from indexer.log_lines import EVENTS
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support import planted
from tests.support.core_events import BLOCK, payload, prompt, stored
from tests.support.core_service import RunningService, applied
from tests.support.moved import TRACED, check_moved
from tests.support.otlp_collector import OtlpCollector, otlp_collector, told
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.rpc.otlp.v1.otlp_pb2 import Span

TRACES: Final = {api: f"{number:032x}" for number, api in enumerate(("rest", "batch", "pick", "mooncake", "grpc"), 1)}
"""Of callers, by the door they come through."""
FIELDS: Final = {
    *("ts", "level", "event", "source", "model", "replica", "partition", "request_id", "trace_id"),
    *("message", "logger"),
}
NOT_SAMPLED: Final = "f" * 32
CALLERS_SPAN: Final = "b7ad6b7169203331"
DONE: Final = "d0" * 16
"""Of the last question: what was asked before it has arrived when its span has."""


class Told(NamedTuple):
    """What a collector got of one service."""

    service: RunningService
    collector: OtlpCollector

    def spans(self, name: str) -> list[Span]:
        return [span for span in self.collector.spans if span.name == name]

    def under(self, trace: str) -> list[Span]:
        return [span for span in self.spans("lookup") if span.trace_id.hex() == trace]


def parent(trace: str, flags: str = "01") -> dict[str, str]:
    """Headers of a caller who traces, or does not."""
    return {"traceparent": f"00-{trace}-{CALLERS_SPAN}-{flags}", "tracestate": "vendor=1"}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Every door is asked under a trace of its own, of an engine whose first batches have to be replayed."""
    folder = tmp_path_factory.mktemp("telemetry")
    with own_server(folder) as store, otlp_collector() as collector, EngineSimulator() as engine:
        for number in range(3):
            engine.publish(payload(stored([number], prompt(1, start=number))), lost=True)
        source = f"pod={engine.endpoint},replay={engine.replay_endpoint},model=m"
        with RunningService(
            [source],
            redis__url=f"redis://127.0.0.1:{store.port}",
            telemetry__otlp_endpoint=collector.url,
            telemetry__trace_ratio="1",
            compat__anonymous="true",
        ) as service:
            service.wait_for(lambda: "pod" in service.sources(), "the source to be loaded")
            service.wait_for(lambda: applied(service, "pod", 2), "the replayed batches")
            engine.publish(payload(stored(list(range(10, 26)), planted.TOKENS)))
            service.wait_for(lambda: applied(service, "pod", 3), "the live batch")
            told_of = Told(service, collector)
            _ask_everywhere(service)
            service.wait_for(lambda: bool(told_of.under(DONE)) and bool(told_of.spans("journal")), "all spans")
            yield told_of


def _ask_everywhere(service: RunningService) -> None:
    asked = {"token_ids": planted.TOKENS, "model": "m", "cache_salt": None}
    bodies = {
        "rest": ("/v1/lookup", asked),
        "batch": ("/v1/lookup/batch", {"items": [asked]}),
        "pick": ("/v1/pick", {"model": "m", "prompt": planted.TOKENS}),
        "mooncake": ("/query", {"model": "m", "token_ids": planted.TOKENS, "block_size": BLOCK}),
    }
    with httpx.Client(base_url=service.url, timeout=20.0) as client:
        for api, (path, body) in bodies.items():
            assert client.post(path, json=body, headers=parent(TRACES[api])).status_code in {200, 204}, path
        client.post("/v1/lookup", json=asked, headers=parent(NOT_SAMPLED, "00"))
        client.post("/v1/lookup", json={"token_ids": planted.TOKENS, "model": planted.PROMPT})
        with grpc.insecure_channel(_rpc(service)) as channel:
            question = LookupRequest(model="m", token_ids=planted.TOKENS)
            KvIndexerStub(channel).Lookup(question, metadata=tuple(parent(TRACES["grpc"]).items()), timeout=20.0)
        client.post("/v1/lookup", json=asked, headers=parent(DONE))


def _rpc(service: RunningService) -> str:
    found = re.search(r"grpc://([0-9.:]+)", service.banner)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("api", sorted(TRACES))
def test_a_callers_trace_goes_on_here(story: Told, api: str) -> None:
    """By whichever door: the same trace, below the caller's span, with what was found."""
    (span,) = story.under(TRACES[api])
    about = told(span)

    assert CALLERS_SPAN == span.parent_span_id.hex()
    assert "vendor=1" == span.trace_state
    assert (api, "exact", 64) == (about["api"], about["state"], about["matched_tokens"])
    assert span.start_time_unix_nano <= span.end_time_unix_nano


def test_a_caller_who_does_not_trace_gets_no_span(story: Told) -> None:
    """Though all that nobody decides on is traced here."""
    assert not story.under(NOT_SAMPLED)


def test_what_arrives_from_engines_is_told(story: Told) -> None:
    """The replay, and each batch, with the source's name."""
    (replay,) = story.spans("replay")
    batches = [told(span) for span in story.spans("batch apply")]

    assert {"source": "pod", "dp_rank": 0, "from": 0, "to": 2, "result": "ok"} == told(replay)
    assert [(number, 1, "pod") for number in range(4)] == [
        (each["sequence"], each["events"], each["source"]) for each in batches
    ]


def test_what_is_written_to_the_store_is_told(story: Told) -> None:
    """With how much of which partition."""
    for span in story.spans("journal"):
        about = told(span)
        assert {"partition", "entries", "bytes", "result"} == set(about)
        assert "ok" == about["result"]
    assert 4 <= sum(int(told(span)["entries"]) for span in story.spans("journal"))
    assert all(int(told(span)["bytes"]) > 0 for span in story.spans("journal"))


def test_nothing_of_a_prompt_is_told(story: Told) -> None:
    """Nor what a caller called a model that nobody knows."""
    for sent in story.collector.raw:
        assert not planted.found_in(sent)


def test_what_was_sent_is_counted(story: Told) -> None:
    """Once the collector has answered. And nothing was lost."""
    line = 'kvindexer_spans_total{result="sent"}'
    story.service.wait_for(lambda: story.service.metrics().get(line, 0) >= 9, "spans that are counted as sent")
    sent = story.service.metric(line)

    assert len(story.collector.spans) >= sent
    check_moved([story.service._client.get("/metrics").content], TRACED)
    assert 0 == story.service.metric('kvindexer_spans_total{result="dropped"}')


def test_all_that_a_service_writes_are_objects(tmp_path: Path) -> None:
    """From its first line to its last, on both streams: what applies of a few fields, and a sentence."""
    config = tmp_path / "kvindexer.json"
    with EngineSimulator() as engine:
        config.write_text(
            json.dumps(
                {
                    "server": {"port": 0, "grpc_port": 0},
                    "compat": {"anonymous": True},  # which a remark is about
                    "telemetry": {"log_format": "json"},
                    "sources": [{"pod": "pod", "endpoint": engine.endpoint, "model": "m"}],
                }
            )
        )
        words = [sys.executable, "-m", "indexer", "serve", "--config", str(config)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            banner = json.loads(process.stdout.readline())
            engine.wait_subscribers()
            engine.publish(payload(stored([1], prompt(1))))
            lines = []
            for written in process.stderr:
                lines.append(json.loads(written))
                if lines[-1]["event"] == "source_state":
                    process.terminate()
        assert 0 == process.returncode
    by_event = {line["event"]: line for line in lines}

    assert "listening" == banner["event"]
    assert {"settings_remark", "source_state", "stopping", "stopped"} <= set(by_event)
    assert ("pod", "m", "info") == tuple(by_event["source_state"][key] for key in ("source", "model", "level"))
    for line in (banner, *lines):
        assert FIELDS >= set(line) >= {"ts", "level", "event", "message"}, line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
        assert line["event"] in EVENTS
