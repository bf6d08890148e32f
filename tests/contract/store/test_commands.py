"""Commands about sources: registry, generation and control stream in one step; every reply of the script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from indexer.model import SourceId
from indexer.store.commands import (
    Command,
    Commanded,
    Given,
    NoSuchSource,
    OtherRegistration,
    Outcome,
    Verb,
    give,
    read_command,
)
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_name
from indexer.store.outcomes import OtherGeneration, Whereabouts, WrongType
from tests.support.owning import POD, begun, owning, run_of, stored, told, with_client
from tests.support.redis_servers import dump

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

RETAIN_MS = 600_000


async def say(
    client: Client,
    keys: PartitionKeys,
    verb: Verb,
    descriptor: bytes = b"",
    nonce: str = "c1",
    known: int = 0,
    source: SourceId = POD,
    expected: bytes | None = None,
    *,
    counts: bool = False,
) -> Outcome:
    """Give a command about a pod."""
    command = Command(
        verb=verb,
        source=source,
        nonce=nonce,
        descriptor=descriptor,
        known_generation=known,
        expected=expected,
        counts=counts,
    )
    return await give(client, keys, command, RETAIN_MS)


def last_id(store: Store, keys: PartitionKeys) -> bytes:
    """Of the command given last."""
    entry_id: bytes = store.look.xrevrange(keys.control, count=1)[0][0]
    return entry_id


def control(store: Store, keys: PartitionKeys) -> list[dict[bytes, bytes]]:
    """What the control stream tells."""
    return [entry for _, entry in store.look.xrange(keys.control)]


async def registered(client: Client, keys: PartitionKeys, nonce: str = "c0") -> int:
    """A source, known; its generation."""
    reply = await say(client, keys, "put", b"d1", nonce)
    assert isinstance(reply, Commanded)
    assert reply.changed
    return reply.generation


def test_registering_is_told_to_all(store: Store, keys: PartitionKeys) -> None:
    """Registry, generation, control stream."""

    async def body(client: Client) -> None:
        generation = await registered(client, keys)

        assert {source_name(POD): b"d1"} == store.look.hgetall(keys.sources)
        assert b"%d" % generation == store.look.hget(keys.source(POD), "generation")
        told_all = {b"v": b"put", b"s": source_name(POD), b"g": b"%d" % generation, b"d": b"d1"}
        assert [told_all] == control(store, keys)
        assert Given("put", POD, generation, b"d1") == read_command(told_all)
        ((entry_id, fields),) = await client.entries_after(keys.control, b"0-0", 10)
        assert told_all == fields
        assert [] == await client.entries_after(keys.control, entry_id, 10)

    with_client(store, body)


def test_an_equal_registration_changes_nothing(store: Store, keys: PartitionKeys) -> None:
    """Not even the control stream; the generation that stands is told."""

    async def body(client: Client) -> None:
        generation = await registered(client, keys)
        before = dump(store, keys)

        assert Commanded(generation, changed=False) == await say(client, keys, "put", b"d1")
        assert Commanded(generation, changed=False) == await say(client, keys, "edit", b"d1")
        assert before == dump(store, keys)

    with_client(store, body)


def test_a_registration_that_differs_begins_a_generation(store: Store, keys: PartitionKeys) -> None:
    """And tells where the map of before is."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        first = await registered(client, keys)
        where = await begun(journal, generation=first)
        reply = await say(client, keys, "put", b"d2")

        assert isinstance(reply, Commanded)
        assert reply.generation > first
        assert where == reply.before
        run = run_of(where, None, 0, stored(range(3)))
        assert OtherGeneration(reply.generation, 0) == await journal.apply([run], told(run))

    with_client(store, body)


def test_an_edit_leaves_generation_and_map(store: Store, keys: PartitionKeys) -> None:
    """Cordoning changes what is said of a source, not what it holds."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        generation = await registered(client, keys)
        where = await begun(journal, generation=generation)
        run = run_of(where, None, 0, stored(range(3)))
        await journal.apply([run], told(run))

        edited = await say(client, keys, "edit", b"d1 cordoned")
        assert Commanded(generation, entry=last_id(store, keys)) == edited
        assert b"d1 cordoned" == store.look.hget(keys.sources, source_name(POD))
        assert b"edit" == control(store, keys)[-1][b"v"]
        following = run_of(where, 0, 1, stored(range(3, 4)))
        assert not isinstance(await journal.apply([following], told(following)), OtherGeneration)

    with_client(store, body)


@pytest.mark.parametrize("verb", ["clear", "remove"])
def test_clearing_and_removing_raise_the_generation(store: Store, keys: PartitionKeys, verb: Verb) -> None:
    """What is on its way is refused; sent again, the command has its effect once."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        first = await registered(client, keys)
        where = await begun(journal, generation=first)
        await journal.apply([run_of(where, None, 0, stored(range(3)))], told(run_of(where, None, 0, [])))
        run = run_of(where, 0, 1, stored(range(3, 6)))

        reply = await say(client, keys, verb)
        assert isinstance(reply, Commanded)
        assert Whereabouts(first, 0, 4) == reply.before
        after = dump(store, keys)
        assert last_id(store, keys) == reply.entry
        assert Commanded(reply.generation, entry=reply.entry) == await say(client, keys, verb)
        assert after == dump(store, keys)

        assert OtherGeneration(reply.generation, 0) == await journal.apply([run], told(run))
        left = {b"cursor", b"facts"} if verb == "clear" else set()  # who owns it next goes on behind what was applied
        assert {b"generation", b"command"} | left == store.look.hgetall(keys.source(POD)).keys()
        assert (verb == "clear") == (source_name(POD) in store.look.hgetall(keys.sources))

    with_client(store, body)


def test_a_source_that_comes_back_has_another_generation(store: Store, keys: PartitionKeys) -> None:
    """Removed and registered anew, also where the store was emptied between."""

    async def body(client: Client) -> None:
        first = await registered(client, keys)
        await say(client, keys, "remove")
        second = await registered(client, keys, nonce="c2")
        store.empty()
        third = await registered(client, keys, nonce="c3")
        store.empty()
        fourth = await say(client, keys, "put", b"d1", known=third + 10**15)

        assert first < second < third
        assert Commanded(third + 10**15 + 1, entry=last_id(store, keys)) == fourth

    with_client(store, body)


def test_restoring_a_registry_clears_nothing(store: Store, keys: PartitionKeys) -> None:
    """The registry was lost: the source is known again, and its generation is whatever its owner asserts."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        first = await registered(client, keys)
        assert Commanded(first, changed=False) == await say(client, keys, "restore", b"older")
        assert b"d1" == store.look.hget(keys.sources, source_name(POD))
        where = await begun(journal, generation=first)
        run = run_of(where, None, 0, stored(range(3)))
        store.look.unlink(keys.sources)

        restored = await say(client, keys, "restore", b"d1", known=first)
        assert Commanded(first, entry=last_id(store, keys)) == restored
        assert b"restore" == control(store, keys)[-1][b"v"]
        assert b"d1" == store.look.hget(keys.sources, source_name(POD))
        assert not isinstance(await journal.apply([run], told(run)), OtherGeneration)
        store.empty()
        assert Commanded(0, entry=None) == replace(await say(client, keys, "restore", b"d1"), entry=None)
        assert {} == store.look.hgetall(keys.source(POD))

    with_client(store, body)


def test_a_doubt_is_told_and_changes_nothing(store: Store, keys: PartitionKeys) -> None:
    """In the generation that it is about; in another it is not even told."""

    async def body(client: Client) -> None:
        generation = await registered(client, keys)
        before = store.look.hgetall(keys.sources), store.look.hget(keys.source(POD), "generation")

        told = await say(client, keys, "doubt", nonce="c2", known=generation)

        assert Commanded(generation, entry=last_id(store, keys)) == told
        assert (b"doubt", b"%d" % generation) == tuple(control(store, keys)[-1][name] for name in (b"v", b"g"))
        assert Commanded(generation, changed=False) == await say(
            client, keys, "doubt", nonce="c3", known=generation - 1
        )
        assert told == await say(client, keys, "doubt", nonce="c2", known=generation)
        assert 2 == len(control(store, keys))
        assert before == (store.look.hgetall(keys.sources), store.look.hget(keys.source(POD), "generation"))

    with_client(store, body)


def test_what_was_removed_is_not_restored(store: Store, keys: PartitionKeys) -> None:
    """Its owner, who has not heard yet, takes the registration for lost: the later generation says otherwise."""

    async def body(client: Client) -> None:
        known = await registered(client, keys)
        removed = await say(client, keys, "remove", nonce="c2")
        assert isinstance(removed, Commanded)

        assert Commanded(removed.generation, changed=False) == await say(
            client, keys, "restore", b"d1", nonce="c3", known=known
        )
        assert {} == store.look.hgetall(keys.sources)
        assert b"remove" == control(store, keys)[-1][b"v"]

    with_client(store, body)


@pytest.mark.parametrize("verb", ["put", "edit", "clear", "remove"])
def test_what_stands_may_be_a_condition(store: Store, keys: PartitionKeys, verb: Verb) -> None:
    """Where another descriptor stands than its giver knows, nothing is done, and it is told."""

    async def body(client: Client) -> None:
        await registered(client, keys)
        before = dump(store, keys)
        for expected in (b"", b"d", b"d11"):
            assert OtherRegistration(b"d1") == await say(client, keys, verb, b"d2", expected=expected)
        assert before == dump(store, keys)

        reply = await say(client, keys, verb, b"d2", expected=b"d1")
        assert isinstance(reply, Commanded)
        assert last_id(store, keys) == reply.entry

    with_client(store, body)


def test_a_first_registration_may_be_wanted(store: Store, keys: PartitionKeys) -> None:
    """Of two that are given at once one is made; an equal one is no other."""

    async def body(client: Client) -> None:
        assert OtherRegistration(b"") == await say(client, keys, "put", b"d1", expected=b"d0")
        assert {} == dump(store, keys)
        first = await say(client, keys, "put", b"d1", expected=b"")
        assert isinstance(first, Commanded)
        before = dump(store, keys)
        assert Commanded(first.generation, changed=False) == await say(client, keys, "put", b"d1", "c2", expected=b"")
        assert OtherRegistration(b"d1") == await say(client, keys, "put", b"d2", "c3", expected=b"")
        assert before == dump(store, keys)

    with_client(store, body)


def test_who_counts_a_clear_is_told(store: Store, keys: PartitionKeys) -> None:
    """By its nonce, which tells a replica its own."""

    async def body(client: Client) -> None:
        await registered(client, keys)
        await say(client, keys, "clear", nonce="c7", counts=True)
        await say(client, keys, "clear", nonce="c8")
        assert [b"", b"c7", b""] == [read_command(fields).counted for fields in control(store, keys)]

    with_client(store, body)


@pytest.mark.parametrize("verb", ["edit", "clear", "remove", "doubt"])
def test_an_unknown_source_is_told(store: Store, keys: PartitionKeys, verb: Verb) -> None:
    """And nothing is made of it."""

    async def body(client: Client) -> None:
        assert NoSuchSource() == await say(client, keys, verb, b"d")
        assert {} == dump(store, keys)

    with_client(store, body)


@pytest.mark.parametrize("name", ["sources", "state", "control"])
def test_a_key_of_another_type_is_told(store: Store, keys: PartitionKeys, name: str) -> None:
    """Named, with nothing written."""
    key: bytes = keys.source(POD) if name == "state" else getattr(keys, name)
    store.look.rpush(key, "x")
    store.look.pexpire(key, 60_000)

    async def body(client: Client) -> None:
        before = dump(store, keys)
        assert WrongType(key, "list") == await say(client, keys, "put", b"d")
        assert before == dump(store, keys)

    with_client(store, body)


@pytest.mark.parametrize("changes", [{b"v": b"burn"}, {b"v": b"\xff"}, {b"s": b"x"}, {b"g": b"x"}, {b"g": b""}])
def test_a_damaged_command_is_told(changes: dict[bytes, bytes]) -> None:
    """Whoever follows the control stream must not pass over one."""
    fields = {b"v": b"put", b"s": source_name(POD), b"g": b"7", b"d": b"d1", **changes}
    with pytest.raises(DamagedValue):
        read_command(fields)
    with pytest.raises(DamagedValue):
        read_command({b"v": b"put"})


def test_the_control_stream_is_bounded(store: Store, keys: PartitionKeys) -> None:
    """However many commands are given."""

    async def body(client: Client) -> None:
        for n in range(4_500):
            await say(client, keys, "put", b"%d" % n, nonce=str(n))

        assert 4_096 <= store.look.xlen(keys.control) < 4_300

    with_client(store, body)
