"""Envoy as it is shipped, under traffic, while what it asks dies or stands still: no request fails by it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from loadtest.envoy import free_port
from tests.support.gateway_fleet import GONE, Fleet, running_fleet
from tests.support.gateway_traffic import Sent, failures, mixed
from tests.support.gateways import DEADLINE_S, ENVOYS, PAUSE_S, Gateway
from tests.support.openai_engines import MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow
CLIENTS: Final = 16
MIXED: Final = 1_000
UNDER_WAY: Final = 200
"""Requests before, and after, what is asked goes away."""
SEED: Final = 7
HEADERS_AND_SOME: Final = 2
"""Messages of Envoy's to the picker."""
SAFE: Final = [kind for kind in ENVOYS if kind != "ext-proc-duplex.yaml"]
"""Those that promise that nothing fails, whenever."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One for all tests that leave it as they found it."""
    with running_fleet() as made:
        yield made


@pytest.mark.parametrize("kind", ENVOYS)
def test_of_a_thousand_mixed_requests_none_is_lost_or_changed(kind: str, fleet: Fleet) -> None:
    """All sizes and kinds, garbage, clients that hang up: each comes to one engine, once, and back as it was said."""
    sent = list(mixed(MIXED, SEED, [fleet.prompt(i) for i in range(3)]))
    before = len(fleet.engines.answered())
    with Gateway(kind, fleet.asked_by(kind), fleet.ports) as gateway:
        named = [each._replace(request_id=f"{kind}-{each.request_id}") for each in sent]
        assert [] == failures(gateway.port, named, CLIENTS)

    answered = fleet.engines.answered()
    times = {each.request_id: len(answered.get(each.request_id, ())) for each in named}
    assert {} == {name: count for name, count in times.items() if count > 1}
    assert set() == {each.request_id for each in named if not each.gives_up and not times[each.request_id]}
    assert len(answered) > before


@pytest.mark.parametrize("kind", SAFE)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_what_is_asked_goes_away_under_traffic(kind: str, number: signal.Signals) -> None:
    """No request fails: neither those on their way, nor streams that go on over it, nor any after it."""
    with running_fleet() as fleet, Gateway(kind, fleet.asked_by(kind), fleet.ports) as gateway:
        gone = threading.Event()
        fleet.engines.before_chunks(lambda: None if gone.is_set() else time.sleep(0.01))
        requests = mixed(2 * UNDER_WAY, SEED, [fleet.prompt(i) for i in range(3)])

        def each() -> Iterator[Sent]:
            for count, sent in enumerate(requests):
                if count == UNDER_WAY:
                    fleet.service.send_signal(number)
                    gone.set()
                yield sent

        assert [] == failures(gateway.port, each(), CLIENTS)


@contextlib.contextmanager
def _half_sent(port: int, body: bytes) -> Iterator[socket.socket]:
    """A connection over which half of a request has been sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: len(body) // 2])
        yield connection


def _answer(connection: socket.socket) -> bytes:
    """All that comes until the end."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("kind", SAFE)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_what_is_asked_goes_away_in_the_middle_of_bodies(kind: str, number: signal.Signals) -> None:
    """They are sent on whole, to some engine."""
    with (
        running_fleet() as fleet,
        Gateway(kind, fleet.asked_by(kind), fleet.ports) as gateway,
        contextlib.ExitStack() as opened,
    ):
        body = json.dumps({"model": MODEL, "prompt": fleet.prompt(0) * 20, "max_tokens": 1}).encode()
        connections = [opened.enter_context(_half_sent(gateway.port, body)) for _ in range(CLIENTS)]
        fleet.service.send_signal(number)
        for connection in connections:
            connection.sendall(body[len(body) // 2 :])
        answers = [_answer(connection) for connection in connections]

    assert {b"HTTP/1.1 200 OK"} == {answer.split(b"\r\n", 1)[0] for answer in answers}
    assert all(hashlib.sha256(body).hexdigest().encode() in answer for answer in answers)


@pytest.mark.parametrize("kind", ENVOYS)
def test_many_at_once_are_sent_past_a_pod_that_is_gone(kind: str, fleet: Fleet) -> None:
    """More at once than Envoy would retry by itself, and each once."""
    body = json.dumps({"model": MODEL, "prompt": fleet.prompt(GONE), "max_tokens": 1}).encode()
    sent = [Sent(f"past-{kind}-{i}", "whole", "/v1/completions", body) for i in range(200)]
    with Gateway(kind, fleet.asked_by(kind), [fleet.gone, fleet.ports[1], fleet.ports[2]]) as gateway:
        assert [] == failures(gateway.port, sent, CLIENTS)

    answered = fleet.engines.answered()
    assert [1] * len(sent) == [len(answered[each.request_id]) for each in sent]


@pytest.mark.parametrize("kind", ENVOYS)
def test_a_gateway_that_is_there_before_what_it_asks_serves(kind: str, fleet: Fleet) -> None:
    """From its first request on."""
    with Gateway(kind, fleet.gone, fleet.ports) as gateway:
        assert [] == failures(gateway.port, mixed(20, SEED, [fleet.prompt(0)]), CLIENTS)


@pytest.mark.parametrize("kind", ENVOYS)
def test_a_body_longer_than_what_envoy_holds_is_passed_on(kind: str, fleet: Fleet) -> None:
    """40 MB, as they came."""
    body = json.dumps({"model": MODEL, "prompt": fleet.prompt(0), "user": "u" * (40 * 2**20)}).encode()
    with Gateway(kind, fleet.asked_by(kind), fleet.ports) as gateway:
        assert [] == failures(gateway.port, [Sent(f"long-{kind}", "whole", "/v1/completions", body)], 1)


def _wait_stat(admin: int, name: str, is_there: Callable[[int], bool]) -> None:
    """Return when Envoy's figure of that name is such a one."""
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        told = httpx.get(f"http://127.0.0.1:{admin}/stats?filter={name}$").text
        if is_there(int(told.rpartition(":")[2])):
            return
        assert time.monotonic() < ends_at, told
        time.sleep(PAUSE_S)


def test_in_full_duplex_what_was_handed_over_fails_until_the_picker_is_known_to_be_gone() -> None:
    """Envoy has these bodies no more when the picker dies; once its health check has told, requests are balanced."""
    kind, admin = "ext-proc-duplex.yaml", free_port()
    at = f"{{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}"
    body = json.dumps({"model": MODEL, "prompt": list(range(20_000)), "max_tokens": 1}).encode()
    with (
        running_fleet() as fleet,
        Gateway(kind, fleet.picker, fleet.ports, edited=lambda text: f"{text}admin: {at}") as gateway,
    ):
        _wait_stat(admin, "cluster.kvindexer.membership_healthy", bool)
        with _half_sent(gateway.port, body) as half:
            _wait_stat(admin, "ext_proc.stream_msgs_sent", lambda sent: sent >= HEADERS_AND_SOME)
            fleet.service.send_signal(signal.SIGKILL)
            answer = _answer(half)

        assert answer.startswith(b"HTTP/1.1 500 ")
        _wait_stat(admin, "cluster.kvindexer.membership_healthy", lambda healthy: not healthy)
        assert [] == failures(gateway.port, mixed(20, SEED, [fleet.prompt(0)]), CLIENTS)
