"""Recorded streams while services and the store die, freeze and lose things, at places drawn by lot.

What an engine can replay, or memory still holds, is never missing at the end, nor at any question on the way.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

import pytest

from api.demo.publisher import Wire
from tests.support.core_traces import Recording, recording
from tests.support.durable import Stage, staged
from tests.support.redis_servers import start_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.redis_servers import Server, Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MISHAPS: Final = 14
LIFE_MARGIN: Final = 45
"""No mishap so few messages before or after an engine's restart: no engine is back so fast."""
SHORT_MEMORY = Wire(buffer_steps=400)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A server of the test's own."""
    started = start_store("valkey", tmp_path)
    yield started
    started.close()


class Mishaps:
    """What may happen to a stage and its store. Each is given up to where messages may be published."""

    def __init__(self, stage: Stage, store: Store, lot: random.Random) -> None:
        self._stage = stage
        self._store = store
        self._lot = lot

    @property
    def _server(self) -> Server:
        return self._store.servers[0]

    def _play_some(self, until: int) -> None:
        self._stage.play(min(self._stage.position + self._lot.choice([0, 3, 30]), until))

    def service_killed(self, until: int) -> None:
        self._stage.kill()
        self._play_some(until)
        self._stage.start_again()

    def service_stopped(self, until: int) -> None:
        self._stage.collecting.stop()
        self._play_some(until)
        self._stage.start_again()

    def follower_killed(self, until: int) -> None:
        self._stage.asked.kill()
        self._play_some(until)
        self._stage.asked.start()

    def store_frozen(self, until: int) -> None:
        self._server.freeze()
        self._play_some(until)
        time.sleep(self._lot.choice([0.2, 1.0, 3.0]))  # the mishap itself: shorter and longer than a call may take
        self._server.thaw()

    def service_killed_beside_a_frozen_store(self, until: int) -> None:
        self._server.freeze()
        self._play_some(until)
        self._stage.kill()
        self._server.thaw()
        self._stage.start_again()

    def store_emptied(self, until: int) -> None:
        self._play_some(until)
        self._store.look.flushall()
        self._play_some(until)

    def store_started_again_empty(self, until: int) -> None:
        self._server.stop()
        self._play_some(until)
        self._server.start()


PROCESSES: Final = (
    Mishaps.service_killed,
    Mishaps.service_stopped,
    Mishaps.follower_killed,
    Mishaps.store_frozen,
    Mishaps.service_killed_beside_a_frozen_store,
)
STORES: Final = (
    Mishaps.store_frozen,
    Mishaps.store_emptied,
    Mishaps.store_started_again_empty,
    Mishaps.follower_killed,
)
"""Without the death of the service: what only its memory holds would go with it."""


def drawn(
    recorded: Recording, mishaps: tuple[Callable[[Mishaps, int], None], ...], lot: random.Random
) -> dict[int, Callable[[Mishaps, int], None]]:
    """Before which message what happens, in order."""
    births = [number for number, message in enumerate(recorded.messages) if message.life and not message.sequence]
    places = sorted(lot.sample(range(20, len(recorded.messages) - LIFE_MARGIN), MISHAPS))
    return {at: lot.choice(mishaps) for at in places if all(abs(at - birth) > LIFE_MARGIN for birth in births)}


@pytest.mark.parametrize("mishaps", [PROCESSES, STORES], ids=["processes", "stores"])
@pytest.mark.parametrize(("name", "seed"), [("basic", 11), ("clear", 12), ("eviction", 13)])
def test_nothing_is_lost_for_good(
    store: Store, name: str, seed: int, mishaps: tuple[Callable[[Mishaps, int], None], ...]
) -> None:
    """Every answer of the follower is right and exact once it names the engines' sequences."""
    recorded = recording(name)
    lot = random.Random(seed)
    due = drawn(recorded, mishaps, lot)
    faults: list[str] = []
    happened: list[str] = []
    with staged(store.url, recorded, replay=True, wire=SHORT_MEMORY, redis__replica="collecting") as stage:
        happens = Mishaps(stage, store, lot)
        for probe in recorded.probes:
            while (at := next((at for at in due if stage.position <= at < probe.n), None)) is not None:
                stage.play(at)
                mishap = due.pop(at)
                happened.append(f"{at}: {mishap.__name__}")
                mishap(happens, probe.n)
            stage.play(max(stage.position, probe.n))
            stage.wait_applied(probe)
            faults += stage.compare(probe).faults
        sources = stage.collecting.now.sources()

    print(happened)
    assert [] == faults
    assert recorded.truth.final is not None
    assert [(truth.distinct, truth.copies) for truth in recorded.truth.final] == [
        (sources[pod]["blocks"]["gpu"], sources[pod]["copies"]) for pod in stage.pods
    ]
