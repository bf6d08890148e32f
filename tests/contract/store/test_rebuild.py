"""Loading a partition and following its journal, while its owner goes on writing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from indexer.model import SourceId
from indexer.store.commands import Command, give
from indexer.store.entries import START, Position, Ticked
from indexer.store.failures import StoreFailure
from indexer.store.following import Follower, Next, Opened, Reload
from indexer.store.outcomes import Began, Done, Whereabouts
from indexer.store.rebuild import Loaded, LoadOptions, load
from tests.support.copies import flip, lay, turned
from tests.support.owning import POD, TIMES, begun, client_of, owning, removed, run_of, stored, told, with_client
from tests.support.reading_on import read_on
from tests.support.shelf import RecordingShelf

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)
SMALL_STEPS = LoadOptions(count=100, in_flight=3)
TOKEN = 1_000_000


async def known(client: Client, keys: PartitionKeys, source: SourceId = POD) -> None:
    """A source of that name stands in the registry."""
    await give(client, keys, Command(verb="put", source=source, nonce=f"put {source}", descriptor=b"d"), 60_000)


async def filled(client: Client, keys: PartitionKeys, pairs: int, segments: int = 4) -> tuple[Journal, Whereabouts]:
    """An owner, and a source of which it wrote so many pairs, at sequence 0."""
    await known(client, keys)
    journal = await owning(client, keys)
    where = await begun(journal, generation=2**52, segments=segments)
    run = run_of(where, None, 0, stored(range(pairs)))
    assert Done() == await journal.apply([run], told(run, [(TOKEN + n, 1) for n in range(pairs)]))
    return journal, where


async def caught_up(
    client: Client, keys: PartitionKeys, follower: Follower, shelf: RecordingShelf, to: Position
) -> None:
    """Follow up to a position."""
    while follower.position < to:
        for step in (await read_on(client, {keys.log: follower}, count=7, block_s=1.0)).get(keys.log, []):
            assert not isinstance(step, Reload), step
            if isinstance(step, Next):
                shelf.apply(step.entry)


class Writer:
    """An owner that goes on storing and removing, one run after the other, and knows what must be held."""

    def __init__(self, journal: Journal, where: Whereabouts, pairs: int) -> None:
        self.held = set(range(pairs))
        self._journal = journal
        self._where = where
        self._chance = random.Random(7)
        self._sequence = 0

    async def write(self) -> None:
        """One run of 32 blocks, about half of them removals."""
        numbers = self._chance.sample(range(4_000), 32)
        out = [n for n in numbers if n in self.held]
        new = [n for n in numbers if n not in self.held]
        self.held ^= set(numbers)
        run = run_of(self._where, self._sequence, self._sequence + 1, [*stored(new), *removed(out)])
        self._sequence += 1
        presence = [(TOKEN + n, 1) for n in new] + [(TOKEN + n, 0) for n in out]
        assert Done() == await self._journal.apply([run], told(run, presence))

    async def write_until(self, stop: asyncio.Event) -> None:
        """Run after run."""
        while not stop.is_set():
            await self.write()


def test_an_empty_partition_is_loaded_at_once(store: Store, keys: PartitionKeys) -> None:
    """And followed from its very first entry."""

    async def body(client: Client) -> None:
        loaded = await load(client, keys, RecordingShelf(), SMALL_STEPS)
        assert Loaded(START, {}) == loaded
        follower = Follower(loaded.position)
        journal = await owning(client, keys)

        assert {keys.log: [Opened(journal.position)]} == await read_on(
            client, {keys.log: follower}, count=9, block_s=1.0
        )
        assert {} == await read_on(client, {keys.log: follower}, count=9, block_s=0.01)
        assert follower.observe_head(await client.string(keys.head)) is None

    with_client(store, body)


def test_what_was_written_is_read(store: Store, keys: PartitionKeys) -> None:
    """Maps, states, descriptors and the position of the journal, of all sources."""

    async def body(client: Client) -> None:
        journal, where = await filled(client, keys, 5_000)
        await known(client, keys, OTHER)
        await begun(journal, OTHER, generation=2**52)
        shelf = RecordingShelf()

        loaded = await load(client, keys, shelf, SMALL_STEPS)

        assert Loaded(journal.position, {POD: "whole", OTHER: "whole"}) == loaded
        assert {TOKEN + n: 1 for n in range(5_000)} == shelf.held[POD]
        assert {} == shelf.held[OTHER]
        assert {POD: b"d", OTHER: b"d"} == shelf.descriptors
        state = shelf.states[POD]
        assert (where.generation, 0, 5_000, b"facts") == (state.generation, state.cursor, state.pairs, state.facts)

    with_client(store, body)


def test_a_partition_that_changes_meanwhile_is_read_right(store: Store, keys: PartitionKeys) -> None:
    """The owner writes all the time; a follower that catches up holds exactly what the owner holds."""

    async def body(client: Client) -> None:
        journal, where = await filled(client, keys, 3_000, segments=2)
        writer, stop, other = Writer(journal, where, 3_000), asyncio.Event(), client_of(store.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write_until(stop))
            for _ in range(5):
                shelf = RecordingShelf()
                loaded = await load(other, keys, shelf, SMALL_STEPS)
                assert {POD: "whole"} == loaded.outcomes
                follower = Follower(loaded.position)
                await caught_up(other, keys, follower, shelf, journal.position)
            stop.set()
        await caught_up(other, keys, follower, shelf, journal.position)
        await other.close()

        assert {TOKEN + n: 1 for n in writer.held} == shelf.held[POD]

    with_client(store, body)


def test_a_new_owner_is_followed_without_loading_anew(store: Store, keys: PartitionKeys) -> None:
    """It says where it goes on."""

    async def body(client: Client) -> None:
        journal, where = await filled(client, keys, 100)
        shelf = RecordingShelf()
        follower = Follower((await load(client, keys, shelf, SMALL_STEPS)).position)
        journal = await owning(client, keys, nonce="n2", held=store.look.get(keys.owner))
        run = run_of(where, 0, 1, removed(range(50)))
        await journal.apply([run], told(run, [(TOKEN + n, 0) for n in range(50)]))
        assert Done() == await journal.tick(Ticked(1, []))

        await caught_up(client, keys, follower, shelf, journal.position)
        assert {TOKEN + n: 1 for n in range(50, 100)} == shelf.held[POD]

    with_client(store, body)


def test_a_copy_that_is_flipped_meanwhile_is_read_anew(store: Store, keys: PartitionKeys) -> None:
    """The reader of the old one begins again; the journal tells those who read before."""

    async def body(client: Client) -> None:
        journal, where = await filled(client, keys, 500)
        copy = Whereabouts(where.generation, 1, 2)
        await lay(journal, keys, range(200), copy)
        flipped: list[object] = []

        other = client_of(store.url)
        acted = asyncio.Event()
        go_on = asyncio.Event()

        async def flip_once() -> None:
            await acted.wait()
            flipped.append(await flip(journal, 200, copy))
            go_on.set()

        shelf = RecordingShelf(on_begin=lambda _: acted.set())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(flip_once())
            loaded = await load(other, keys, shelf, LoadOptions(count=1, in_flight=1))
        await other.close()

        assert [Began(where)] == flipped
        assert {POD: "whole"} == loaded.outcomes
        assert [POD, POD] == shelf.begun
        assert {TOKEN + n: 1 for n in range(200)} == shelf.held[POD]
        await caught_up(client, keys, Follower(loaded.position), shelf, journal.position)
        assert [POD] == shelf.reasserted

    with_client(store, body)


def test_what_has_no_whole_copy_is_not_read(store: Store, keys: PartitionKeys) -> None:
    """Registered and not begun, cleared, or being asserted for the first time: never live before it is complete."""

    async def body(client: Client) -> None:
        await known(client, keys)
        assert "unfinished" == (await load(client, keys, RecordingShelf(), SMALL_STEPS)).outcomes[POD]
        generation = int(store.look.hget(keys.source(POD), "generation"))
        journal = await owning(client, keys)
        copy = Whereabouts(generation, 1, 1)
        await lay(journal, keys, range(10), copy)
        shelf = RecordingShelf()
        assert "unfinished" == (await load(client, keys, shelf, SMALL_STEPS)).outcomes[POD]
        assert [] == shelf.begun

        await flip(journal, 10, copy)
        assert "whole" == (await load(client, keys, shelf, SMALL_STEPS)).outcomes[POD]

        store.look.unlink(keys.source(POD))
        assert "unfinished" == (await load(client, keys, shelf, SMALL_STEPS)).outcomes[POD]

    with_client(store, body)


def test_what_goes_while_it_is_read_is_not_believed(store: Store, keys: PartitionKeys) -> None:
    """Removed, or expired, in the middle: what was read of it does not count."""

    async def body(client: Client) -> None:
        await filled(client, keys, 500)
        shelf = RecordingShelf(on_begin=lambda _: store.look.unlink(keys.source(POD)))

        assert {POD: "unfinished"} == (await load(client, keys, shelf, SMALL_STEPS)).outcomes
        assert [POD] == shelf.begun

    with_client(store, body)


def test_a_map_that_lacks_a_part_is_not_believed(store: Store, keys: PartitionKeys) -> None:
    """A segment that expired or was evicted: read a few times, then told."""

    async def body(client: Client) -> None:
        _, where = await filled(client, keys, 500)
        store.look.unlink(keys.segment(POD, where.generation, 0, 2))
        shelf = RecordingShelf()

        loaded = await load(client, keys, shelf, LoadOptions(tries=3))

        assert {POD: "restless"} == loaded.outcomes
        assert [POD] * 3 == shelf.begun

    with_client(store, body)


def test_a_follower_behind_the_journal_loads_anew(store: Store, keys: PartitionKeys) -> None:
    """What it needs next was trimmed."""

    async def body(client: Client) -> None:
        journal, _ = await filled(client, keys, 10)
        follower = Follower((await load(client, keys, RecordingShelf(), SMALL_STEPS)).position)
        await turned(journal, 2**52 + 1)
        await turned(journal, 2**52 + 2)
        store.look.xtrim(keys.log, minid=str(journal.position), approximate=False)

        assert {keys.log: [Reload("hole")]} == await read_on(client, {keys.log: follower}, count=9, block_s=1.0)

    with_client(store, body)


@pytest.mark.parametrize("how", ["emptied", "restored"])
def test_a_follower_ahead_of_the_journal_loads_anew(store: Store, keys: PartitionKeys, how: str) -> None:
    """Noticed by the head at once, and by the next owner's first entry at the latest."""

    async def body(client: Client) -> None:
        journal, _ = await filled(client, keys, 10)
        before = {key: store.look.dump(key) for key in (keys.head, keys.log)}
        await turned(journal, 2**52 + 1)
        position = (await load(client, keys, RecordingShelf(), SMALL_STEPS)).position
        if how == "emptied":
            store.empty()
        else:
            for key, content in before.items():
                store.look.restore(key, TIMES["retain_ms"], content, replace=True)
        head = await client.string(keys.head)

        assert Reload("gone" if how == "emptied" else "ahead") == Follower(position).observe_head(head)
        await owning(client, keys, nonce="n2", held=store.look.get(keys.owner) or b"")
        late = Follower(position)
        assert {keys.log: [Reload("other_history")]} == await read_on(client, {keys.log: late}, count=9, block_s=1.0)

    with_client(store, body)


@pytest.mark.parametrize("name", ["head", "sources", "state", "segment"])
def test_a_key_of_another_type_is_a_failure(store: Store, keys: PartitionKeys, name: str) -> None:
    """Told as such, not as an empty partition; where it is one source's, the others are read."""

    async def body(client: Client) -> None:
        _, where = await filled(client, keys, 10, segments=1)
        named = {"state": keys.source(POD), "segment": keys.segment(POD, where.generation, 0, 0)}
        key: bytes = named.get(name) or getattr(keys, name)
        store.look.unlink(key)
        store.look.rpush(key, "x")
        store.look.pexpire(key, 60_000)

        if name in named:
            loaded = await load(client, keys, RecordingShelf(), SMALL_STEPS)
            assert {POD: "damaged"} == loaded.outcomes
            return
        with pytest.raises(StoreFailure, match="WRONGTYPE"):
            await load(client, keys, RecordingShelf(), SMALL_STEPS)

    with_client(store, body)
