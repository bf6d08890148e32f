"""Processes that stand still, by SIGSTOP: an engine, the service, or both. Yesterday's state is never told."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.core_service import RunningService, applied

if TYPE_CHECKING:
    from collections.abc import Iterator

STALE_AFTER_S: Final = 1.5
TIMES: Final = {
    "staleness__stale_after_s": str(STALE_AFTER_S),
    "staleness__score_ttl_s": "600",
    "events__heartbeat_ms": "200",
}
PAUSE_S: Final = 2.5
"""Longer than a source may give no sign of life and be `live`."""
LOST: Final = "the connection is lost"


class Engine:
    """A process that has published one batch."""

    def __init__(self, *connects_to: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.flooding_engine", "1", *connects_to],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    def publish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def engine() -> Iterator[Engine]:
    """Killed at the end, frozen or not."""
    started = Engine()
    yield started
    started.close()


def heard(engine: Engine, service: RunningService) -> None:
    """Its batch is applied."""
    engine.publish()
    service.wait_for(lambda: applied(service, "pod", 0), "the batch")
    service.wait_for(lambda: state(service) == "live", "the source to be live")


def state(service: RunningService) -> str:
    """What an answer says of the source."""
    return service.ask([1, 2, 3, 4])["pod"].state


def why(service: RunningService) -> str | None:
    """What the source is in its state for."""
    return service.sources()["pod"]["why"]


def test_a_frozen_engine_is_stale(engine: Engine) -> None:
    """Its kernel keeps the connections; once it goes on, so does its stream, and nothing is in doubt."""
    with RunningService([f"pod={engine.endpoint}"], **TIMES) as service:
        heard(engine, service)
        bound = service.ask([1, 2, 3, 4])["pod"].bound
        engine.send_signal(signal.SIGSTOP)
        service.wait_for(lambda: state(service) == "stale", "the source to be stale")
        engine.send_signal(signal.SIGCONT)
        service.wait_for(lambda: state(service) == "live", "the source to be live again")
        assert bound == service.ask([1, 2, 3, 4])["pod"].bound
        assert 0 == service.sources()["pod"]["counters"].get("wire.reconnects", 0)


def test_a_service_that_wakes_beside_a_frozen_engine(engine: Engine) -> None:
    """No answer says `live`, from the first one on, until the engine goes on."""
    with RunningService([f"pod={engine.endpoint}"], **TIMES) as service:
        heard(engine, service)
        engine.send_signal(signal.SIGSTOP)
        service.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)  # how long it stands still is what is tried
        service.send_signal(signal.SIGCONT)
        ends_at = time.monotonic() + 2.0
        while time.monotonic() < ends_at:
            assert "stale" == state(service)
        engine.send_signal(signal.SIGCONT)
        service.wait_for(lambda: state(service) == "live", "the source to be live again")


def test_a_service_that_wakes_beside_a_running_engine(engine: Engine) -> None:
    """The engine is asked at once, and nothing was lost meanwhile."""
    with RunningService([f"pod={engine.endpoint}"], **TIMES) as service:
        heard(engine, service)
        service.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)  # as above
        service.send_signal(signal.SIGCONT)
        service.wait_for(lambda: state(service) == "live", "the source to be live again")
        assert 0 == service.sources()["pod"]["counters"].get("wire.reconnects", 0)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "running"])
def test_a_service_that_wakes_beside_an_engine_that_connects_to_it(frozen: bool) -> None:
    """There is no connection of ours to make anew: only a round of heartbeats, or a message, says that one runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    engine = Engine(endpoint)
    try:
        with RunningService([], events__source_bind=f'["{endpoint}"]', **TIMES) as service:
            engine.publish()
            service.wait_for(lambda: "pod" in service.sources() and state(service) == "live", "the source to be live")
            if frozen:
                engine.send_signal(signal.SIGSTOP)
            service.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)  # as above
            service.send_signal(signal.SIGCONT)
            assert "stale" == state(service)
            if frozen:
                service.wait_for(lambda: why(service) == LOST, "the cut")
                assert "stale" == state(service)
            else:
                service.wait_for(lambda: state(service) == "live" or why(service) == LOST, "life, or the cut")
                if why(service) == LOST:  # a heartbeat was out when it stopped: who connects anew, a message says
                    engine.publish()
                service.wait_for(lambda: state(service) == "live", "the source to be live again")
    finally:
        engine.close()
