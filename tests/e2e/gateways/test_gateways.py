"""Real gateways with a few lines of script each: the pod that holds most is sent to, and nothing ever fails by us.

Envoy comes out of a wheel, HAProxy and nginx with njs of the system (.ci/run installs them): tried is what is there.
"""

from __future__ import annotations

import contextlib
import json
import signal
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from api.demo.engine import EngineSimulator
from tests.support.backends import Backends
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService, applied
from tests.support.gateways import FOLDER, PROGRAMS, Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINES: Final = 3
BLOCKS: Final = 40
ASKED: Final = 12
LARGE_IDS: Final = 300_000
TOKEN: Final = "kvi_of-the-gateway"  # noqa: S105  of this test


class Fleet:
    """Engines that hold a prompt each, the service that knows, and the servers that gateways send to."""

    def __init__(self, token: str | None = None, **settings: str) -> None:
        self.backends = Backends(ENGINES)
        self.engines = [EngineSimulator() for _ in range(ENGINES)]
        for engine in self.engines:
            engine.start()
        self.pods = [f"127.0.0.1:{port}" for port in self.backends.ports]
        flags = [f"{pod}={engine.endpoint},model=m" for pod, engine in zip(self.pods, self.engines, strict=True)]
        self.service = RunningService(flags, token=token, server__grpc_port="0", **settings)
        self.index = urlsplit(self.service.url).port or 0
        for i, engine in enumerate(self.engines):
            engine.publish(payload(stored(range(1, BLOCKS + 1), self.prompt(i))))
        for pod in self.pods:
            self.service.wait_for(lambda pod=pod: applied(self.service, pod, 0), "the engines to be heard")  # type: ignore[misc]

    @staticmethod
    def prompt(engine: int) -> list[int]:
        """Which that engine alone holds."""
        return [1_000 * (engine + 1) + i for i in range(BLOCKS * BLOCK)]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


@contextlib.contextmanager
def _running_fleet(token: str | None = None, **settings: str) -> Iterator[Fleet]:
    """The service is killed at the end, frozen or not, if a test has not killed it before."""
    made = Fleet(token, **settings)
    try:
        with made.backends:
            yield made
    finally:
        made.service.send_signal(signal.SIGCONT)
        made.service.kill()
        made.close()


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One for all tests that leave it as they found it."""
    with _running_fleet() as made:
        yield made


@pytest.fixture(scope="module", params=[name for name, program in PROGRAMS.items() if program is not None])
def kind(request: pytest.FixtureRequest) -> str:
    """Each configuration whose program is there."""
    name: str = request.param
    return name


@contextlib.contextmanager
def _client_of(kind: str, fleet: Fleet, token: str | None = None) -> Iterator[httpx.Client]:
    """Of such a gateway before that fleet."""
    with (
        Gateway(kind, fleet.index, fleet.backends.ports, token) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client(kind: str, fleet: Fleet) -> Iterator[httpx.Client]:
    """One for all tests of a kind."""
    with _client_of(kind, fleet) as made:
        yield made


def _sent_to(client: httpx.Client, prompt: list[int], **headers: str) -> dict[str, Any]:
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1}).encode()
    answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json", **headers})
    assert 200 == answer.status_code, answer.text
    told: dict[str, Any] = answer.json()
    assert len(body) == told["bytes"]
    return told


def _spread(client: httpx.Client, prompt: list[int], **headers: str) -> set[int]:
    """The engines that so many equal requests, one after the other, came to."""
    return {_sent_to(client, prompt, **headers)["engine"] for _ in range(ASKED)}


def test_each_configuration_is_one(kind: str) -> None:
    """By the gateway itself."""
    gateway = Gateway(kind, 1, [2, 3, 4])
    try:
        gateway.check()
    finally:
        gateway.close()


def test_the_pod_that_holds_the_prompt_is_sent_to(client: httpx.Client, fleet: Fleet) -> None:
    """Each time; and a client cannot choose another."""
    for i, port in enumerate(fleet.backends.ports):
        other = fleet.pods[(i + 1) % ENGINES]
        assert {port} == _spread(client, fleet.prompt(i))
        assert {port} == _spread(client, fleet.prompt(i), **{"x-gateway-destination-endpoint": other})


def test_a_prompt_that_nobody_holds_is_balanced(client: httpx.Client, fleet: Fleet) -> None:
    """By the gateway, as without us."""
    assert set(fleet.backends.ports) == _spread(client, list(range(100)))


def test_a_large_body_passes_and_is_understood(client: httpx.Client, fleet: Fleet) -> None:
    """Two megabytes."""
    prompt = fleet.prompt(1) + [1_000_000 + i for i in range(LARGE_IDS)]

    told = _sent_to(client, prompt)
    assert told["bytes"] > 2 * 2**20
    assert fleet.backends.ports[1] == told["engine"]


def test_a_killed_index_fails_no_request(kind: str) -> None:
    """They are balanced as without it."""
    with _running_fleet() as fleet, _client_of(kind, fleet) as client:
        assert {fleet.backends.ports[0]} == _spread(client, fleet.prompt(0))
        fleet.service.send_signal(signal.SIGKILL)

        assert set(fleet.backends.ports) == _spread(client, fleet.prompt(0))


def test_a_frozen_index_fails_no_request(client: httpx.Client, fleet: Fleet) -> None:
    """Each waits as long as the gateway was told to, no longer; when the index goes on, it is asked again."""
    fleet.service.send_signal(signal.SIGSTOP)
    assert set(fleet.backends.ports) == _spread(client, fleet.prompt(0))
    fleet.service.send_signal(signal.SIGCONT)

    assert {fleet.backends.ports[0]} == _spread(client, fleet.prompt(0))


def test_beside_a_tokens_file_the_token_of_the_environment_is_shown(kind: str, tmp_path: Path) -> None:
    """In the place of whatever the client shows, which is for the engine. Without one requests are balanced."""
    entries = tmp_path / "tokens.yaml"
    entries.touch(0o600)
    entries.write_text(
        json.dumps([{"name": "gateway", "sha256": sha256(TOKEN.encode()).hexdigest(), "scopes": ["lookup"]}])
    )
    with _running_fleet(TOKEN, auth__tokens_file=str(entries)) as fleet:
        with _client_of(kind, fleet, TOKEN) as client:
            for i, port in enumerate(fleet.backends.ports):
                assert {port} == _spread(client, fleet.prompt(i))
                assert {port} == _spread(client, fleet.prompt(i), authorization="Bearer of-the-engine")
        with _client_of(kind, fleet) as client:
            assert set(fleet.backends.ports) == _spread(client, fleet.prompt(0))


def test_the_filter_for_envoy_needs_no_library_and_eight_lines() -> None:
    """As promised."""
    text = (FOLDER / "pick.envoy.lua").read_text()

    assert len(text.splitlines()) <= 8
    assert "require" not in text
