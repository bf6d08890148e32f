"""Discovery with a store: one replica watches, all know, and whoever takes over goes on."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from indexer.discovery.plan import GONE
from indexer.model import Descriptor, SourceId
from indexer.sharding.rendezvous import share_out
from indexer.store.layout import partition_of, source_name
from indexer.store.registered import Registered, pack_registered, unpack_registered
from tests.support.core_events import prompt, stored
from tests.support.proxy import Proxy
from tests.support.replicas import Replica, run
from tests.support.telling import Teller, found

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.redis_servers import Store

A, B = SourceId("a", 0), SourceId("b", 0)
FIRST, SECOND = ("r1", "r2") if share_out(16, ("r1", "r2"))[0].owner == "r1" else ("r2", "r1")
"""Who owns partition 0 as soon as both are there, and the other."""


@asynccontextmanager
async def replica(url: str, teller: Teller, name: str = "r1", **settings: Any) -> AsyncIterator[Replica]:  # noqa: ANN401  settings of any kind
    """It runs."""
    of = Replica(url, (), name=name, discoverers=(teller,), **settings)
    await of.start()
    try:
        yield of
    finally:
        await of.stop()


def source(of: Replica, key: SourceId = A) -> Any:  # noqa: ANN401  looked at from inside
    """As it is known there; None where it is not."""
    return of.node.registry.sources.get(key)


def is_ready(of: Replica, key: SourceId = A) -> bool | None:
    """None where it is not known."""
    known = source(of, key)
    return None if known is None else known.facts.ready


async def registered(of: Replica, key: SourceId = A) -> Registered | None:
    """As the registry in the store has it."""
    keys = of.part._keys[partition_of(key, 16)]
    packed = (await of.part._parts.client.fields(keys.sources)).get(source_name(key))
    return None if packed is None else unpack_registered(packed)


def test_all_replicas_know_what_one_was_told(store: Store) -> None:
    """Ready or not, called otherwise, gone; the index is not forgotten by any of it."""

    async def body() -> None:
        teller, silent = Teller(), Teller()
        async with replica(store.url, teller, FIRST) as first, replica(store.url, silent, SECOND) as second:
            teller.tell(found("a", ready=False, why="starting"), found("b"))
            for of in (first, second):
                await of.until(lambda of=of: is_ready(of) is False and is_ready(of, B))  # type: ignore[misc]
                assert "starting" == source(of).facts.unready_why
                assert "not_ready" == of.ask(prompt(2)).reason
            owner = first if not first.sink().followed else second
            owner.say("a", stored([1, 2], prompt(2)))
            teller.tell(found("a", model="m", aliases=("alias",)), found("b"))
            for of in (first, second):
                await of.until(lambda of=of: is_ready(of) and source(of).descriptor.model == "m")  # type: ignore[misc]
                await of.until(lambda of=of: of.ask(prompt(2)).matched_tokens == 8)  # type: ignore[misc]
                assert source(of) is of.node.registry.named("alias")[0]
            teller.tell(found("b"))
            for of in (first, second):
                await of.until(lambda of=of: source(of) is None)  # type: ignore[misc]
            assert 0 == silent.runs or not silent.running

    run(body)


def test_who_loses_the_first_partition_watches_no_more(store: Store) -> None:
    """It is drained; the other one takes over, and what stands is as it was."""

    async def body() -> None:
        one, other = Teller(), Teller()
        async with replica(store.url, one, FIRST) as first, replica(store.url, other, SECOND) as second:
            await first.until(lambda: one.running)
            one.tell(found("a", life="1"))
            other.tell(found("a", life="1"))
            await second.until(lambda: is_ready(second))
            generation = source(second).facts.generation

            await second.node.drain_replica(FIRST)
            await second.until(lambda: other.running and not one.running)
            other.tell(found("a", life="1"), found("b"))
            await first.until(lambda: is_ready(first, B))
            one.tell()
            assert generation == source(second).facts.generation
            assert is_ready(second)

    run(body)


def test_the_watcher_dies(store: Store) -> None:
    """Whoever takes its partition goes on from what stands, and does what was left undone."""

    async def body() -> None:
        one, other = Teller(), Teller()
        async with AsyncExitStack() as stack:
            second = await stack.enter_async_context(replica(store.url, other, SECOND))
            first = Replica(store.url, (), name=FIRST, discoverers=(one,))
            await first.start()
            await second.until(lambda: one.running and not other.running)
            one.tell(found("a"), found("b"))
            await second.until(lambda: is_ready(second) and is_ready(second, B))

            await first.die()
            other.tell(found("a", ready=False, why="late"))
            await second.until(lambda: is_ready(second) is False and source(second, B) is None)

    run(body)


def test_a_store_that_is_away(store: Store) -> None:
    """Nobody watches, nothing is lost, and when it is back the latest picture is written."""
    if store.kind == "cluster":
        return  # the proxy stands before one server

    async def body() -> None:
        teller = Teller()
        async with Proxy(store.servers[0].port).running() as proxy, replica(proxy.url, teller) as of:
            teller.tell(found("a"))
            await of.until(lambda: is_ready(of))
            of.say("a", stored([1, 2], prompt(2)))
            proxy.set("reset")
            await of.until(lambda: not teller.running)
            teller.tell(found("a", ready=False, why="late"), found("b"))
            assert 8 == of.ask(prompt(2)).matched_tokens
            proxy.set("pass")
            await of.until(lambda: is_ready(of) is False and is_ready(of, B))
            teller.tell(found("a"), found("b"))
            await of.until(lambda: is_ready(of) and of.ask(prompt(2)).matched_tokens == 8)

    run(body)


def test_a_restart_of_all_replicas_keeps_what_was_told(store: Store) -> None:
    """It stands in the registry, and nobody has to be told again."""

    async def body() -> None:
        teller = Teller()
        async with replica(store.url, teller) as of:
            teller.tell(found("a", ready=False, why="late", life="1", aliases=("x",)))
            await of.until(lambda: is_ready(of) is False)
        async with replica(store.url, Teller()) as of:
            await of.until(lambda: source(of) is not None)
            assert (False, "late") == (source(of).facts.ready, source(of).facts.unready_why)
            assert "1" == source(of).life
            await of.node.cordon_source("a", None, cordoned=True)
            stands = await registered(of)
            assert stands is not None
            assert (True, False, "1", "late") == (stands.cordoned, stands.ready, stands.life, stands.why)

    run(body)


def test_another_life_is_another_generation_at_its_owner_whoever_that_is(store: Store) -> None:
    """Told while it is owned, and while nobody owns it; what the stream showed before is not done again."""

    async def body() -> None:
        teller = Teller()
        async with replica(store.url, teller) as of:
            teller.tell(found("a", life="1"))
            await of.until(lambda: is_ready(of))
            of.say("a", stored([1, 2], prompt(2)))
            teller.tell(found("a", life="2"))
            await of.until(lambda: source(of).life == "2")
            assert 0 == of.ask(prompt(2)).matched_tokens
            of.say("a", stored([1, 2], prompt(2)), sequence=0)
            await of.written()
        async with replica(store.url, Teller()) as of:  # all is as it was
            await of.until(lambda: source(of) is not None)
            assert 8 == of.ask(prompt(2)).matched_tokens
            stands = await registered(of)
            assert stands is not None
            keys = of.part._keys[partition_of(A, 16)]
            key = source_name(A)
        _changed_meanwhile(store, keys.sources, key, msgspec.structs.replace(stands, life="3"))
        async with replica(store.url, Teller()) as of:
            await of.until(lambda: source(of) is not None and source(of).life == "3")
            assert 0 == of.ask(prompt(2)).matched_tokens
            of.say("a", stored([1, 2], prompt(2)), sequence=0)
            of.sink().restart("sequence_went_back")
            of.say("a", stored([1, 2], prompt(2)), sequence=0)
            await of.written()
        _changed_meanwhile(store, keys.sources, key, msgspec.structs.replace(stands, life="4"))
        async with replica(store.url, Teller()) as of:
            await of.until(lambda: source(of) is not None and source(of).life == "4")
            assert 8 == of.ask(prompt(2)).matched_tokens

    run(body)


def _changed_meanwhile(store: Store, registry: bytes, name: bytes, wanted: Registered) -> None:
    """By a watcher whose command no owner heard: the registry alone tells of it."""
    store.look.hset(registry.decode(), name, pack_registered(wanted))


def test_what_an_older_replica_wrote_is_put_in_order(store: Store) -> None:
    """0.6 writes the short form, and a cordon given there drops what discovery says: until the next look."""

    async def body() -> None:
        teller = Teller()
        async with replica(store.url, teller) as of:
            teller.tell(found("a", ready=False, why="late", life="1"))
            await of.until(lambda: is_ready(of) is False)
            short = Registered(found("a").descriptor, cordoned=True)
            of.part.orders.register_later(short.descriptor, cordoned=True)  # an edit without conditions
            await of.until(lambda: is_ready(of))
            assert source(of).facts.cordoned
            teller.tell(found("a", ready=False, why="late", life="1"))
            await of.until(lambda: is_ready(of) is False)
            assert source(of).facts.cordoned

    run(body)


def test_what_nobody_discovered_is_written_as_ever() -> None:
    """Byte for byte as 0.6 does, which compares bytes; it reads the long form, too."""

    class Of06(msgspec.Struct, frozen=True, array_like=True):
        descriptor: Descriptor
        cordoned: bool = False

    encode, decode = msgspec.msgpack.Encoder(order="sorted").encode, msgspec.msgpack.Decoder(Of06).decode
    plain = Descriptor(pod="p", endpoint="tcp://h:1", origin="api", labels={"b": "1", "a": "2"})

    for cordoned in (False, True):
        assert encode(Of06(plain, cordoned)) == pack_registered(Registered(plain, cordoned))
        assert Registered(plain, cordoned) == unpack_registered(encode(Of06(plain, cordoned)))
    long = pack_registered(Registered(plain, ready=False, life="1", why=GONE))
    assert Of06(plain) == decode(long)
    assert Registered(plain, ready=False, life="1", why=GONE) == unpack_registered(long)
