"""Engines that connect to the service, which is killed and comes back: they are known again, from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.store.layout import is_without_ttl
from tests.support.connecting_engine import ConnectingEngine, tokens_of
from tests.support.core_events import BLOCK
from tests.support.core_service import RunningService, applied
from tests.support.durable import Service
from tests.support.redis_servers import free_port, lasting_keys, start_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POD = "10.0.0.1:8000"
MODEL = "tiny-llama"
PROMPT = tokens_of(20)


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, on which nothing is left for ever but what is listed."""
    store = start_store("valkey", tmp_path)
    try:
        yield store.url
        assert [] == lasting_keys(store, is_without_ttl)
    finally:
        store.close()


def matched_blocks(service: RunningService) -> int:
    """Of the prompt, at that engine."""
    return service.ask(PROMPT, model=MODEL)[POD].matched_tokens // BLOCK


@pytest.mark.parametrize("missed", [0, 3])
def test_an_engine_that_connects_is_known_again(store_url: str, missed: int) -> None:
    """What it announced counts before it says another word; what it says then goes on from there, or leaves a gap."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    bound = {"events__source_bind": f'["{endpoint}"]', "redis__replica": "collecting"}
    engine = ConnectingEngine(endpoint, POD, MODEL)
    try:
        with Service(store_url, **bound) as service, Service(store_url, server__roles="lookup") as follower:
            last = engine.publish(10)
            follower.now.wait_for(lambda: known(follower.now) and applied(follower.now, POD, last), "the first ten")
            generation = follower.now.sources()[POD]["generation"]

            service.kill()
            engine.lose(missed)
            service.start()
            service.now.wait_for(lambda: known(service.now) and applied(service.now, POD, last), "what was stored")
            assert 10 == matched_blocks(service.now) == matched_blocks(follower.now)

            last = engine.publish(2)
            for each in (service.now, follower.now):
                each.wait_for(lambda each=each: applied(each, POD, last), "two more")
                source = each.sources()[POD]
                if not missed:
                    assert (generation, 12) == (source["generation"], matched_blocks(each))
                else:
                    assert source["bound"] != "exact"
    finally:
        engine.close()


def known(service: RunningService) -> bool:
    """Whether the engine's source is there."""
    return POD in service.sources()
