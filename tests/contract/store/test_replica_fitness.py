"""A store that served at the start is told to do otherwise while it is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indexer.store.fitness import POLICY
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store


def test_a_policy_that_evicts(store: Store) -> None:
    """It is told as trouble until it is taken back; everything goes on meanwhile."""

    async def body() -> None:
        replica = Replica(store.url)
        parts = replica.part._parts
        often = msgspec.structs.replace(parts.options, fitness_look_s=0.1)
        object.__setattr__(parts, "options", often)
        await replica.start()
        try:
            for server in store.servers:
                with server.client() as look:
                    look.config_set("maxmemory-policy", "allkeys-lru")
            await replica.until(lambda: POLICY in replica.part.watch.trouble)
            assert not replica.part.watch.is_up
            replica.say("a", stored([1], prompt(1)))
            assert BLOCK == replica.ask(prompt(1)).matched_tokens
        finally:
            for server in store.servers:
                with server.client() as look:
                    look.config_set("maxmemory-policy", POLICY)
        await replica.until(lambda: not replica.part.watch.trouble)
        await replica.stop()

    run(body)
