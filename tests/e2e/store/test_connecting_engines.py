"""Engines that connect to the service, which is killed and comes back: they are known again, from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import zmq

from indexer.store.layout import is_without_ttl
from tests.support.core_events import BLOCK, TS, stored
from tests.support.core_service import RunningService, applied
from tests.support.durable import Service
from tests.support.redis_servers import free_port, lasting_keys, start_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POD = "10.0.0.1:8000"
PROMPT = list(range(20 * BLOCK))
TOPIC = f"kv@{POD}@tiny-llama".encode()


class ConnectingEngine:
    """Announces block after block of one prompt, one a batch. It connects, and connects again, by itself.

    What is published before it is connected waits in the socket.
    """

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self._next = 0

    def publish(self, count: int) -> int:
        """So many batches; the number of the last one."""
        for number in range(self._next, self._next + count):
            tokens = PROMPT[number * BLOCK : (number + 1) * BLOCK]
            event = stored([number + 1], tokens, parent=number or None)
            payload = msgspec.msgpack.encode([TS + number, [event], 0])
            self._socket.send_multipart([TOPIC, number.to_bytes(8, "big"), payload])
        self._next += count
        return self._next - 1

    def lose(self, count: int) -> None:
        """So many batches that never leave."""
        self._next += count

    def close(self) -> None:
        self._socket.close()
        self._context.term()


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
    return service.ask(PROMPT, model="tiny-llama")[POD].matched_tokens // BLOCK


@pytest.mark.parametrize("missed", [0, 3])
def test_an_engine_that_connects_is_known_again(store_url: str, missed: int) -> None:
    """What it announced counts before it says another word; what it says then goes on from there, or leaves a gap."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    bound = {"events__source_bind": f'["{endpoint}"]', "redis__replica": "collecting"}
    engine = ConnectingEngine(endpoint)
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
