"""Engines found by DNS: the whole service as a process, a name server and engines on addresses of their own."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService
from tests.support.name_server import NameServer, name_server
from tests.support.redis_servers import free_port
from tests.support.telling_engine import telling, tells

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "vllm.ns.svc"
TOKENS = prompt(2)


class Engines:
    """Of each pod, at 127.0.0.N, one a rank; all have the same ports, as pods of one Deployment have."""

    def __init__(self, stack: contextlib.ExitStack, ranks: int = 1) -> None:
        self.port = free_port()
        self.ranks = ranks
        self._stack = stack
        self._of: dict[tuple[int, int], EngineSimulator] = {}

    def add(self, number: int) -> str:
        """The pod's name."""
        for rank in range(self.ranks):
            engine = EngineSimulator(f"tcp://127.0.0.{number}:{self.port + rank}", None)
            self._of[number, rank] = self._stack.enter_context(engine)
        return f"127.0.0.{number}:8000"

    def say(self, number: int, rank: int = 0) -> None:
        """It holds the prompt."""
        engine = self._of[number, rank]
        engine.wait_subscribers(1)
        engine.publish(payload(stored([1, 2], TOKENS)))

    def settings(self, server: NameServer, name: str = NAME, **entry: Any) -> dict[str, str]:  # noqa: ANN401  of any kind
        """Of the service."""
        ports = {} if entry.get("kind") == "srv" else {"events_port": self.port}
        return {
            "discovery__dns__names": json.dumps({name: {"family": "ipv4", "ranks": self.ranks, **ports, **entry}}),
            "discovery__dns__servers": json.dumps([server.address]),
            "discovery__dns__refresh_min_s": "0.1",
            "discovery__dns__refresh_max_s": "0.2",
            "loads__interval_s": "off",
        }


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """What ends after the service."""
    with contextlib.ExitStack() as stack:
        yield stack


def _scored(service: RunningService) -> dict[tuple[str, int], tuple[int, str | None]]:
    """By pod and rank, what it holds of the prompt and why no more."""
    return {(pod.pod, pod.dp_rank): (pod.matched_tokens, pod.reason) for pod in service.ask(TOKENS).pods}


def test_engines_come_go_and_return(stack: contextlib.ExitStack) -> None:
    """An address that goes is not scored and loses nothing; it is removed once it is missing for long."""
    engines = Engines(stack, ranks=2)
    first, second = engines.add(11), engines.add(12)
    server = NameServer()
    server.put(NAME, "A", "127.0.0.11")
    with name_server(server):
        service = stack.enter_context(
            RunningService([], **engines.settings(server, model="m"), discovery__dns__forget_s="1.5")
        )
        service.wait_for(lambda: [first] == [*service.sources()], "the first engine")
        for rank in range(2):
            engines.say(11, rank)
        whole, none = (len(TOKENS), None), (0, "not_ready")
        service.wait_for(lambda: {(first, 0): whole, (first, 1): whole} == _scored(service), "both of its ranks")
        assert ("discovery", "m") == (service.sources()[first]["origin"], service.sources()[first]["model"])

        server.put(NAME, "A", "127.0.0.12")
        service.wait_for(lambda: _scored(service).get((first, 1)) == none, "the first engine is not ready")
        assert {(first, 0), (first, 1), (second, 0), (second, 1)} == _scored(service).keys()
        engines.say(12)
        service.wait_for(lambda: _scored(service)[second, 0] == whole, "the second engine")

        server.put(NAME, "A", "127.0.0.12", "127.0.0.11")
        service.wait_for(
            lambda: _scored(service)[first, 1] == whole, "the first engine is back, and holds what it held"
        )
        assert "exact" in {pod.bound for pod in service.ask(TOKENS).pods}

        server.put(NAME, "A", "127.0.0.12")
        service.wait_for(lambda: [second] == [*service.sources()], "the first engine is forgotten")


def test_a_name_server_that_dies_and_is_back(stack: contextlib.ExitStack) -> None:
    """What was known stays and is scored, however long; then the new answer counts."""
    engines = Engines(stack)
    pod = engines.add(13)
    server = NameServer()
    server.put(NAME, "A", "127.0.0.13")
    with name_server(server):
        service = stack.enter_context(RunningService([], **engines.settings(server), discovery__dns__forget_s="0"))
        service.wait_for(lambda: [pod] == [*service.sources()], "the engine")
        engines.say(13)
        service.wait_for(lambda: _scored(service) == {(pod, 0): (len(TOKENS), None)}, "what it holds")
        server.codes[""] = "SERVFAIL"
        server.drop(NAME)
        failed = 'kvindexer_discovery_errors_total{discoverer="dns",reason="server_failure"}'
        service.wait_for(lambda: service.metrics().get(failed, 0) > 2, "failures")
        assert _scored(service) == {(pod, 0): (len(TOKENS), None)}
    gone = 'kvindexer_discovery_errors_total{discoverer="dns",reason="not_reached"}'
    service.wait_for(lambda: service.metrics().get(gone, 0) > 1, "nobody listens there")
    assert _scored(service) == {(pod, 0): (len(TOKENS), None)}
    server.codes.clear()
    with name_server(server):
        service.wait_for(lambda: {} == service.sources(), "there is no such name any more")


def test_service_records(stack: contextlib.ExitStack) -> None:
    """Each has its own port, and its target is a further name of the pod."""
    engines = Engines(stack)
    pod, name = engines.add(14), "_kv-events._tcp.vllm.ns.svc"
    server = NameServer()
    server.put(name, "SRV", f"0 100 {engines.port} vllm-0.vllm.ns.svc.")
    server.put("vllm-0.vllm.ns.svc", "A", "127.0.0.14")
    with name_server(server), RunningService([], **engines.settings(server, name, kind="srv")) as service:
        service.wait_for(lambda: [pod] == [*service.sources()], "the engine")
        engines.say(14)
        service.wait_for(lambda: _scored(service) == {(pod, 0): (len(TOKENS), None)}, "what it holds")
        answer = service.ask(TOKENS, pods=["http://VLLM-0.vllm.ns.svc:8000/"])

    assert [("http://VLLM-0.vllm.ns.svc:8000/", len(TOKENS))] == [
        (each.pod, each.matched_tokens) for each in answer.pods
    ]


def test_engines_that_tell_their_ports(stack: contextlib.ExitStack) -> None:
    """Ports that nobody knows are asked for, and each rank is a source."""
    ranks = [stack.enter_context(EngineSimulator("tcp://127.0.0.1:0")) for _ in range(2)]
    told = {str(rank): _config(engine) for rank, engine in enumerate(ranks)}
    pod = stack.enter_context(telling({**tells(), "/kv_event_sources": json.dumps(told).encode()}))
    engines = Engines(stack)
    server = NameServer()
    server.put(NAME, "A", "127.0.0.1")
    with name_server(server):
        settings = engines.settings(server, port=int(pod.rpartition(":")[2]), events_port=0)
        with RunningService([], **settings) as service:
            service.wait_for(lambda: [pod] == [*service.sources()], "the engine")
            for engine in ranks:
                engine.wait_subscribers(1)
                engine.publish(payload(stored([1, 2], TOKENS)))
            whole = {(pod, rank): (len(TOKENS), None) for rank in range(2)}
            service.wait_for(lambda: whole == _scored(service), "what its ranks hold")
            assert (ranks[1].endpoint, ranks[1].replay_endpoint) == (
                service.sources()[pod]["endpoint"],
                service.sources()[pod]["replay_endpoint"],
            )


def _config(engine: EngineSimulator) -> dict[str, object]:
    """As a vLLM that took free ports shows it; it binds everywhere."""
    replay = (engine.replay_endpoint or "").replace("127.0.0.1", "*")
    return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": engine.endpoint, "replay_endpoint": replay}


def test_models_are_learnt(stack: contextlib.ExitStack) -> None:
    """A source that nobody gave a model has that of its engine, by each of its names."""
    engine = stack.enter_context(EngineSimulator())
    listed = [{"id": "llama", "root": "/m/llama"}, {"id": "fr", "root": "x", "parent": "llama"}]
    address = stack.enter_context(telling({**tells(), "/v1/models": json.dumps({"data": listed}).encode()}))
    with RunningService([f"a={engine.endpoint},address={address}"], models__discover="true") as service:
        engine.wait_subscribers(1)
        engine.publish(payload(stored([1, 2], TOKENS)))
        service.wait_for(lambda: service.ask(TOKENS, model="/m/llama").resolved_by == "alias", "its names")
        service.wait_for(lambda: _scored(service) == {("a", 0): (len(TOKENS), None)}, "what it holds")

        whole = service.ask(TOKENS, model="llama")
        adapted = service.ask(TOKENS, model="fr")
        unknown = service.ask(TOKENS, model="llama2")

    assert ("llama", None, "model", len(TOKENS)) == (
        whole.model,
        whole.lora_name,
        whole.resolved_by,
        whole.pods[0].matched_tokens,
    )
    assert ("llama", "fr", "adapter", "no_match") == (
        adapted.model,
        adapted.lora_name,
        adapted.resolved_by,
        adapted.reason,
    )
    assert (None, "llama") == (unknown.resolved_by, unknown.nearest_model)
