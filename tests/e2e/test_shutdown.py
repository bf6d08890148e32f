"""SIGTERM as an orchestrator sends it: whoever was let in is answered, nobody new is let in, nothing is left."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest, WatchSourcesRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.core_service import DEADLINE_S, RunningService
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAITS: Final = {"token_ids": [1], "min_sequence": {"a": 9}, "timeout_ms": 60_000}
SOURCES: Final = ["a=tcp://127.0.0.1:9"]
PAUSE_S: Final = 0.01


def _connect(service: RunningService) -> socket.socket:
    host, _, port = service.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def _request(path: str, document: object) -> bytes:
    body = json.dumps(document).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _answer(connection: socket.socket) -> tuple[int, Any]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


def _until(look: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < ends_at, f"waited for {what}"
        time.sleep(PAUSE_S)


@pytest.fixture(params=["memory", "store"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Without a store and on one."""
    told = {"server__uds": str(tmp_path / "kvindexer.sock"), "server__drain_s": "30", "server__lame_duck_s": "0.5"}
    told["server__ready_wait_s"] = "0.1"
    if request.param == "memory":
        yield told
        return
    with own_server(tmp_path) as server:
        yield told | {"redis__url": server.url}


def _channel(service: RunningService) -> grpc.Channel:
    found = re.search(r"grpc://([0-9.:]+)", service.banner)
    assert found is not None, service.banner
    return grpc.insecure_channel(found[1])


def test_who_was_let_in_is_answered(settings: dict[str, str]) -> None:
    """Bodies in pieces, questions that wait, batches and streams; then the process ends with 0, and nothing is left."""
    with RunningService(SOURCES, **settings) as service, _channel(service) as channel:
        stub, health = KvIndexerStub(channel), HealthStub(channel)
        slow, waiting, batch = (_connect(service) for _ in range(3))
        asked = _request("/v1/lookup", {"token_ids": list(range(1_000))})
        slow.sendall(asked[:-9])
        waiting.sendall(_request("/v1/lookup", WAITS))
        batch.sendall(_request("/v1/lookup/batch", {"items": [WAITS, {"token_ids": [1, 2]}]}))
        waits = stub.Lookup.future(LookupRequest(token_ids=[1], min_sequence={"a": 9}), timeout=DEADLINE_S)
        watching = stub.WatchSources(WatchSourcesRequest())
        next(watching)
        probe = _connect(service)
        _until(lambda: _ready(probe), "/readyz says 200")
        _until(lambda: _health(health) == HealthCheckResponse.SERVING, "health says SERVING")
        service.send_signal(signal.SIGTERM)
        _until(lambda: not _ready(probe), "/readyz says 503")
        _until(
            lambda: health.Check(HealthCheckRequest()).status == HealthCheckResponse.NOT_SERVING,
            "health says NOT_SERVING",
        )
        slow.sendall(asked[-9:])

        status, answer = _answer(slow)
        assert (200, 1_000) == (status, answer["prompt_tokens"])
        status, answer = _answer(waiting)
        assert (200, "deadline") == (status, answer["pods"][0]["reason"])
        status, answer = _answer(batch)
        assert (200, ["deadline"], 2) == (
            status,
            [entry["reason"] for entry in answer["items"][0]["pods"]],
            answer["items"][1]["prompt_tokens"],
        )
        assert "deadline" == waits.result().pods[0].reason
        with pytest.raises(grpc.RpcError) as ended:
            list(watching)
        assert ended.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        for each in (slow, waiting, batch, probe):
            each.close()
        assert 0 == service.wait_ended()
    assert not os.path.exists(settings["server__uds"])  # noqa: PTH110
    with pytest.raises(OSError, match="refused"):
        _connect(service)


def _health(stub: HealthStub) -> int:
    return stub.Check(HealthCheckRequest(), timeout=DEADLINE_S).status


def _ready(connection: socket.socket) -> bool:
    connection.sendall(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
    status, _ = _answer(connection)
    return status == 200


def test_a_second_signal_ends_at_once() -> None:
    """Whatever is under way."""
    service = RunningService(SOURCES, server__drain_s="600", server__lame_duck_s="600")
    waiting = _connect(service)
    waiting.sendall(_request("/v1/lookup", WAITS))
    probe = _connect(service)
    service.send_signal(signal.SIGTERM)
    _until(lambda: not _ready(probe), "/readyz says 503")
    service.send_signal(signal.SIGTERM)

    assert -signal.SIGTERM == service.wait_ended()
    waiting.close()
    probe.close()
    service.kill()  # closes what the test has open


def test_who_never_ends_does_not_hold_it() -> None:
    """Half a body, half a head, a connection that says nothing, a reader that does not read, TLS to a plain port."""
    with RunningService(SOURCES, server__drain_s="0.5") as service:
        held = [_connect(service) for _ in range(5)]
        held[0].sendall(_request("/v1/lookup", WAITS)[:-5])
        held[1].sendall(b"GET /re")
        held[2].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        held[2].sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 30)
        held[3].sendall(struct.pack(">BHH", 22, 769, 500))
        service.ask([1])
    for each in held:
        each.close()
