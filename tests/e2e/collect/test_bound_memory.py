"""Engines that connect, die and come back for ever: a bound socket's process does not grow with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import zmq

from tests.support.core_events import BLOCK, TS, payload, stored
from tests.support.core_service import RunningService
from tests.support.redis_servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

POD: Final = "bound:8000"
WARM_LIVES: Final = 400
"""Until then pools, lists and histories fill up to their bounds."""
LIVES: Final = 2_000
ROUNDS_MAX: Final = 3
GROWN_MAX_KIB: Final = 2_048
"""A kilobyte a life; measured are some tens of bytes."""


def _lives(endpoint: str, count: int, first: int) -> Iterator[int]:
    """An engine that connects, says two batches from number 0 on and is gone, again and again."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for life in range(first, first + count):
            with context.socket(zmq.XPUB) as engine:
                engine.set(zmq.LINGER, 10_000)
                engine.set(zmq.RCVTIMEO, 30_000)
                engine.connect(endpoint)
                engine.recv()  # it is subscribed to
                for number in range(2):
                    tokens = range(number * BLOCK, (number + 1) * BLOCK)
                    event = stored([number + 1], tokens, parent=number or None)
                    frames = [f"kv@{POD}@m".encode(), number.to_bytes(8, "big")]
                    engine.send_multipart([*frames, payload(event, ts=TS + 10 * life + number)])
            yield life
    finally:
        context.term()


def _restarts(service: RunningService) -> int:
    source = service.sources().get(POD)
    return 0 if source is None else int(source["counters"].get("restarts", 0))


def _resident_kib(service: RunningService) -> int:
    text = Path(f"/proc/{service.pid}/smaps_rollup").read_text()
    return int(text.partition("\nRss:")[2].split()[0])


def _live(service: RunningService, endpoint: str, count: int, first: int) -> int:
    """So many lives, and what the process holds when the last of them were heard of."""
    begun = _restarts(service)
    for _ in _lives(endpoint, count, first):
        pass
    service.wait_for(lambda: _restarts(service) - begun > count * 3 // 4, "the lives to be told apart")
    return _resident_kib(service)


def test_restarts_of_a_topic_cost_nothing_that_stays() -> None:
    """Neither in Python nor in the socket library. What stays, stays of every round; a burst that waited, of one."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with RunningService([], events__source_bind=f'["{endpoint}"]', telemetry__log_level="warning") as service:
        resident = [_live(service, endpoint, WARM_LIVES, 0)]
        for number in range(ROUNDS_MAX):
            resident.append(_live(service, endpoint, LIVES, WARM_LIVES + number * LIVES))
            if resident[-1] - resident[-2] < GROWN_MAX_KIB:
                return

    raise AssertionError(f"it grew in each round: {resident} KiB")
