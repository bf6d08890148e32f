"""Ages that followers derive from ticks: from when a tick was heard, unless it may have lain there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tests.support.collecting import until
from tests.support.following import QUICK, following
from tests.support.hand_owner import HandOwner
from tests.support.owning import POD, with_client
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OPTIONS = msgspec.structs.replace(QUICK, trusted_s=0.3)


def test_a_tick_that_lay_in_the_journal_is_not_taken_for_a_new_one(store: Store, keys: PartitionKeys) -> None:
    """The owner may have died since it wrote it: it is as old as the moment when it was not there yet."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body(client: Client) -> None:
        owner = HandOwner(client, keys)
        await owner.own()
        await owner.put(POD)
        await owner.store(POD, range(10))
        async with Proxy(store.servers[0].port).running() as proxy, following(proxy.url, keys, OPTIONS) as follow:
            await follow.until_shows(owner)
            sent_at = follow.clock.now()
            await owner.tick()
            await until(lambda: follow.position == str(owner.journal.position), "the tick")
            alive_at = follow.source(POD).facts.alive_at
            assert alive_at is not None
            assert sent_at <= alive_at <= follow.clock.now()

            proxy.set("reset")
            await until(lambda: follow.progress.state == "lost", "the loss of the connection")
            cut_at = follow.clock.now()
            await until(lambda: follow.clock.now() > cut_at + 2 * OPTIONS.trusted_s, "some time")
            await owner.tick()
            await owner.tick()
            proxy.set("pass")
            await until(lambda: follow.position == str(owner.journal.position), "the ticks")
            late = follow.source(POD).facts.alive_at
            assert late is not None
            assert late <= cut_at

            sent_at = follow.clock.now()
            await owner.tick()
            await until(lambda: follow.position == str(owner.journal.position), "a tick of now")
            alive_at = follow.source(POD).facts.alive_at
            assert alive_at is not None
            assert sent_at <= alive_at

    with_client(store, body)
