"""A service that is told to stop while a large batch is applied in part: nobody would send that batch again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.demo.engine import EngineSimulator
from tests.support.core_events import BLOCK, payload, stored
from tests.support.durable import Service
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = 100_000
"""More than a second's work."""


def test_what_is_under_way_is_applied_and_written(tmp_path: Path) -> None:
    """The next process knows all of it, without a word of the engine."""
    batch = payload(stored(range(1, BLOCKS + 1), range(BLOCKS * BLOCK)))
    with (
        own_server(tmp_path) as server,
        EngineSimulator(replay_endpoint=None) as engine,
        Service(server.url, [f"pod={engine.endpoint}"], redis__replica="collecting") as service,
    ):
        engine.wait_subscribers()
        engine.publish(batch)
        service.now.wait_for(lambda: 0 < held(service) < BLOCKS, "a part of it")
        service.stop()
        service.start()
        service.now.wait_for(lambda: held(service) == BLOCKS, "all of it")
        service.now.wait_for(lambda: service.now.sources()["pod"]["sequence"] == 0, "its map to be read to the end")


def held(service: Service) -> int:
    """Blocks of the engine that are known."""
    blocks: int = service.now.sources()["pod"]["blocks"]["gpu"] if "pod" in service.now.sources() else 0
    return blocks
