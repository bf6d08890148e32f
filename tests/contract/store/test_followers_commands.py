"""Commands reach followers at once, and those that were missed are made up for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import SourceId
from indexer.store.layout import source_name
from tests.support.collecting import until
from tests.support.fed_partition import registration
from tests.support.following import following
from tests.support.hand_owner import HandOwner
from tests.support.owning import POD, TIMES, with_client
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)


async def filled(client: Client, keys: PartitionKeys) -> HandOwner:
    """Two sources in the store, and their owner."""
    owner = HandOwner(client, keys)
    await owner.own()
    for source in (POD, OTHER):
        await owner.put(source)
        await owner.store(source, range(100))
    return owner


def test_a_removal_a_clear_and_a_cordon(store: Store, keys: PartitionKeys) -> None:
    """In force without a word of the owner's."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.command("edit", POD, cordoned=True)
            await until(lambda: follow.source(POD).facts.cordoned, "the cordon")
            generation = await owner.command("clear", POD)
            await until(lambda: follow.source(POD).facts.generation == generation, "the clear")
            assert {} == follow.shown(POD)
            await owner.command("remove", OTHER)
            await until(lambda: OTHER not in follow.registry.sources, "the removal")

            del owner.truth[OTHER]
            await owner.turn(POD, generation)
            await owner.store(POD, range(10))
            await owner.put(OTHER)
            await owner.store(OTHER, range(5))
            await follow.until_shows(owner)
            assert follow.source(POD).facts.cordoned

    with_client(store, body)


def test_commands_that_were_trimmed_before_they_were_read(store: Store, keys: PartitionKeys) -> None:
    """The registry is read again, and what was removed meanwhile left its mark there."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with Proxy(store.servers[0].port).running() as proxy, following(proxy.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.command("edit", POD, cordoned=True)
            await until(lambda: follow.source(POD).facts.cordoned, "the cordon")
            proxy.set("reset")
            await until(lambda: follow.progress.state == "lost", "the loss of the connection")
            await owner.command("remove", OTHER)
            del owner.truth[OTHER]
            third = SourceId("pod-3", 0)
            await owner.put(third)
            await owner.store(third, range(7))
            for turn in range(3):
                await owner.command("edit", POD, cordoned=turn % 2 == 1)
            store.look.xtrim(keys.control, maxlen=1, approximate=False)
            proxy.set("pass")
            await follow.until_shows(owner)
            assert [OTHER] == follow.shelves.left
            assert not follow.source(POD).facts.cordoned

    with_client(store, body)


def test_a_control_stream_that_went_back(store: Store, keys: PartitionKeys) -> None:
    """It ends before what was read of it, so the next command may stand there, too: the registry is read again."""

    async def body(client: Client) -> None:
        owner = await filled(client, keys)
        async with following(store.url, keys) as follow:
            await follow.until_shows(owner)
            await owner.command("edit", POD, cordoned=True)
            await until(lambda: follow.source(POD).facts.cordoned, "the cordon")
            third = SourceId("pod-3", 0)
            with store.look.pipeline(transaction=True) as together:
                together.unlink(keys.control)
                together.hset(keys.sources, source_name(third), registration(third))
                together.xadd(
                    keys.control, {"v": "put", "s": source_name(third), "g": 1, "d": registration(third)}, id="1-1"
                )
                together.pexpire(keys.control, TIMES["retain_ms"])
                together.execute()
            await until(lambda: third in follow.registry.sources, "the source that no command told of")

    with_client(store, body)
