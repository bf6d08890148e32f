"""Real gateways with a few lines of script each: the pod that holds most is sent to, and nothing ever fails by us.

Envoy comes out of a wheel, HAProxy and nginx with njs of the system (.ci/run installs them): tried is what is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import signal
import time
import uuid
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.support.gateway_fleet import ENGINES, GONE, Fleet, running_fleet
from tests.support.gateways import DEADLINE_S, ENVOYS, PROGRAMS, Gateway
from tests.support.openai_engines import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ASKED: Final = 6
LARGE: Final = 2 * 2**20
TOKEN: Final = "kvi_of-the-gateway"  # noqa: S105  of this test
FRESH: Final = 40
KINDS: Final = [name for name, program in PROGRAMS.items() if program is not None]
"""Each configuration whose program is there."""
SAFE: Final = [kind for kind in KINDS if kind != "ext-proc-duplex.yaml"]
"""Those by which nothing fails, whatever becomes of what they ask."""
BY_TOKEN: Final = [kind for kind in KINDS if not kind.startswith("ext-proc")]
"""Those that can show one."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One for all tests that leave it as they found it."""
    with running_fleet() as made:
        yield made


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each configuration whose program is there."""
    name: str = request.param
    return name


@contextlib.contextmanager
def _client_of(kind: str, fleet: Fleet, token: str | None = None, *, patient: bool = True) -> Iterator[httpx.Client]:
    """Of such a gateway before that fleet."""
    with (
        Gateway(kind, fleet.asked_by(kind), fleet.ports, token, patient=patient) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60) as made,
    ):
        yield made


@contextlib.contextmanager
def _clients_of(fleet: Fleet, kinds: list[str], token: str | None = None) -> Iterator[Mapping[str, httpx.Client]]:
    """Of a gateway of each of these kinds, all before that fleet."""
    with contextlib.ExitStack() as opened:
        yield {kind: opened.enter_context(_client_of(kind, fleet, token)) for kind in kinds}


@pytest.fixture(scope="module")
def client(kind: str, fleet: Fleet) -> Iterator[httpx.Client]:
    """One for all tests of a kind; the index has been heard by it."""
    with _client_of(kind, fleet) as made:
        _until_sent_to(made, fleet.prompt(0), fleet.ports[0])
        yield made


def _sent_to(client: httpx.Client, prompt: list[int], *, user: str = "", **headers: str) -> int:
    """The engine that a request came to, as it was."""
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 1, "user": user}).encode()
    answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json", **headers})
    assert 200 == answer.status_code, answer.text
    assert hashlib.sha256(body).hexdigest() == answer.headers["x-body-sha256"]
    return int(answer.headers["x-engine"])


def _spread(client: httpx.Client, prompt: list[int], **headers: str) -> set[int]:
    """The engines that so many equal requests, one after the other, came to."""
    return {_sent_to(client, prompt, **headers) for _ in range(ASKED)}


def _until_sent_to(client: httpx.Client, prompt: list[int], engine: int) -> None:
    """Return when a request comes to that engine; fail at the deadline. On a busy machine a gateway may not wait."""
    ends_at = time.monotonic() + DEADLINE_S
    while (got := _sent_to(client, prompt)) != engine:
        assert time.monotonic() < ends_at, f"{got} gets it: the index is not asked, or not in time"


def test_each_configuration_is_one(kind: str) -> None:
    """By the gateway itself."""
    gateway = Gateway(kind, 1, [2, 3, 4])
    try:
        gateway.check()
    finally:
        gateway.close()


def test_the_pod_that_holds_the_prompt_is_sent_to(client: httpx.Client, fleet: Fleet) -> None:
    """Each time; and a client cannot choose another."""
    for i, port in enumerate(fleet.ports):
        other = fleet.pods[(i + 1) % ENGINES]
        assert {port} == _spread(client, fleet.prompt(i))
        assert {port} == _spread(client, fleet.prompt(i), **{"x-gateway-destination-endpoint": other})


def test_prompts_that_nobody_holds_go_where_is_told(client: httpx.Client, fleet: Fleet) -> None:
    """By what is known of loads; where nothing is, they are spread by the gateway, as without us.

    Whoever the client names: what no gateway of ours takes away its engine sees, but nobody follows it.
    """
    named, there, run = fleet.pods[0], {f"127.0.0.1:{port}" for port in fleet.ports}, uuid.uuid4().hex
    served, told = [], []
    for i in range(FRESH):
        prompt, request_id = [random.randrange(2**30) for _ in range(100)], f"{run}-{i}"
        headers = {"x-gateway-destination-endpoint": named, "x-request-id": request_id}
        served.append(f"127.0.0.1:{_sent_to(client, prompt, **headers)}")
        seen = fleet.engines.headers_of(request_id).get("x-gateway-destination-endpoint", named)
        told.append(next(pod for pod in seen.split(",") if pod in there) if seen != named else None)

    assert [to or by for to, by in zip(told, served, strict=True)] == served
    assert len({*served}) > 1 or None not in told


def test_a_large_body_passes_and_is_understood(client: httpx.Client, fleet: Fleet) -> None:
    """Two megabytes."""
    ends_at = time.monotonic() + DEADLINE_S
    while _sent_to(client, fleet.prompt(1), user="u" * LARGE) != fleet.ports[1]:
        assert time.monotonic() < ends_at


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in ENVOYS])
def test_where_the_first_pod_is_gone_the_next_is_sent_to(kind: str, fleet: Fleet) -> None:
    """In the order that was told; at first the one that is gone is the first of it."""
    prompt = fleet.prompt(GONE + ENVOYS.index(kind))
    with (
        Gateway(kind, fleet.asked_by(kind), [fleet.gone, fleet.ports[1], fleet.ports[2]], patient=True) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60) as client,
    ):
        got = [f"127.0.0.1:{_sent_to(client, prompt, **{'x-request-id': f'{kind}-{i}'})}" for i in range(ASKED)]
    told = [fleet.engines.headers_of(f"{kind}-{i}")["x-gateway-destination-endpoint"].split(",") for i in range(ASKED)]
    members = {fleet.pods[1], fleet.pods[2]}

    assert fleet.pods[GONE] == told[0][0]
    assert [next(pod for pod in each if pod in members) for each in told] == got


def test_a_killed_index_fails_no_request() -> None:
    """They are balanced as without it, and still not as a client says."""
    with running_fleet() as fleet, _clients_of(fleet, SAFE) as clients:
        for client in clients.values():
            _until_sent_to(client, fleet.prompt(0), fleet.ports[0])
        fleet.service.send_signal(signal.SIGKILL)

        named = {"x-gateway-destination-endpoint": fleet.pods[1]}
        spread = {kind: _spread(client, fleet.prompt(0), **named) for kind, client in clients.items()}
        assert {kind: set(fleet.ports) for kind in SAFE} == spread


@pytest.mark.parametrize("kind", SAFE)
def test_a_frozen_index_fails_no_request(kind: str, fleet: Fleet) -> None:
    """Each waits as long as the gateway was told to, no longer; when the index goes on, it is asked again."""
    with _client_of(kind, fleet, patient=False) as client:
        _until_sent_to(client, fleet.prompt(0), fleet.ports[0])
        fleet.service.send_signal(signal.SIGSTOP)
        try:
            assert set(fleet.ports) == _spread(client, fleet.prompt(0))
        finally:
            fleet.service.send_signal(signal.SIGCONT)

        _until_sent_to(client, fleet.prompt(0), fleet.ports[0])


def test_beside_a_tokens_file_the_token_of_the_environment_is_shown(tmp_path: Path) -> None:
    """In the place of whatever the client shows, which is for the engine. Without one requests are balanced."""
    entries = tmp_path / "tokens.yaml"
    entries.touch(0o600)
    entries.write_text(
        json.dumps([{"name": "gateway", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "scopes": ["lookup"]}])
    )
    with running_fleet(TOKEN, auth__tokens_file=str(entries)) as fleet:
        with _clients_of(fleet, BY_TOKEN, TOKEN) as clients:
            for client in clients.values():
                _until_sent_to(client, fleet.prompt(0), fleet.ports[0])
                assert {fleet.ports[1]} == _spread(client, fleet.prompt(1), authorization="Bearer of-the-engine")
        with _clients_of(fleet, BY_TOKEN) as clients:
            for client in clients.values():
                assert set(fleet.ports) == _spread(client, fleet.prompt(0))
