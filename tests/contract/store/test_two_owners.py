"""Two replicas take a partition from each other, one of them always late; commands and losses in between.

Whatever the order: what the store holds is exactly what was written and acknowledged, and a follower that heeds its own
signs of trouble holds the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from indexer.store.commands import Command, Commanded, give
from indexer.store.entries import Reasserted, Turned
from indexer.store.following import Follower, Next, Reload
from indexer.store.journal import Journal, NewCopy
from indexer.store.layout import source_name
from indexer.store.outcomes import Began, Done, Fenced, Laid, Lost, OtherCursor, OtherGeneration, Whereabouts
from indexer.store.rebuild import LoadOptions, load
from indexer.store.segments import by_segment
from tests.support.owning import POD, owning, removed, run_of, stored, told, with_client
from tests.support.reading_on import read_on
from tests.support.shelf import RecordingShelf

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

STEPS = 200
TOKEN = 1_000_000


class Truth:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.generation = 0
        self.sequence: int | None = None
        self.held: set[int] = set()
        self.where: Whereabouts | None = None


class Replica:
    """Knows what stood when it last took the partition, and what it wrote since: late when another one took it."""

    def __init__(self, client: Client, store: Store, keys: PartitionKeys, chance: random.Random) -> None:
        self._client = client
        self._store = store
        self._keys = keys
        self._chance = chance
        self._attempts = 0
        self._journal: Journal | None = None
        self._generation = 0
        self._sequence: int | None = None
        self._where: Whereabouts | None = None

    async def take(self, truth: Truth) -> None:
        """The lease of whoever has it ends, and this one takes the partition and reads what stands."""
        self._store.look.unlink(self._keys.owner)
        self._attempts += 1
        self._journal = await owning(self._client, self._keys, nonce=f"{id(self)}.{self._attempts}")
        self._generation, self._sequence, self._where = truth.generation, truth.sequence, truth.where

    async def write(self, truth: Truth) -> None:
        """A run, as far as this replica knows the next; refused unless it knows right."""
        if self._journal is None or self._where is None:
            return
        numbers = self._chance.sample(range(100), 8)
        new, out = [n for n in numbers if n not in truth.held], [n for n in numbers if n in truth.held]
        after = 0 if self._sequence is None else self._sequence + 1
        run = run_of(self._where, self._sequence, after, [*stored(new), *removed(out)])
        presence = [(TOKEN + n, 1) for n in new] + [(TOKEN + n, 0) for n in out]
        reply = await self._journal.apply([run], told(run, presence))
        knows = (self._generation, self._sequence) == (truth.generation, truth.sequence)
        if isinstance(reply, Done):
            assert knows
            truth.held ^= set(numbers)
            truth.sequence = self._sequence = after
        else:
            assert isinstance(reply, (Fenced, Lost, OtherGeneration, OtherCursor)), reply
            assert reply != OtherCursor(truth.sequence, 0) or not knows

    async def turn(self, truth: Truth) -> None:
        """Begin a generation: the one that a command raised, or a later one."""
        if self._journal is None:
            return
        generation = truth.generation + self._chance.choice([0, 0, 1, -1])
        reply = await self._journal.turn(POD, generation, 2, Turned(source_name(POD), generation))
        if isinstance(reply, Began):
            assert generation >= truth.generation
            truth.generation, truth.sequence, truth.held = generation, None, set()
            truth.where = self._where = Whereabouts(generation, 0, 2)
            self._generation, self._sequence = generation, None

    async def assert_anew(self, truth: Truth) -> None:
        """Lay what stands into a new copy, and flip."""
        if self._journal is None or truth.where is None:
            return
        where = self._journal.new_copy(truth.generation, len(truth.held))
        segments = list(self._keys.copy(POD, where.generation, where.copy, where.segments))
        for part in by_segment(stored(truth.held), segments):
            if not isinstance(await self._journal.lay(POD, where, part), Laid):
                return
        copy = NewCopy(source=POD, where=where, cursor=truth.sequence, facts=b"", pairs=len(truth.held))
        reply = await self._journal.flip(copy, Reasserted(source_name(POD), where.generation, where.copy))
        if isinstance(reply, Began):
            truth.where = self._where = where
            self._generation, self._sequence = truth.generation, truth.sequence


class Mirror:
    """Follows; loads anew when it must."""

    def __init__(self, client: Client, keys: PartitionKeys) -> None:
        self._client = client
        self._keys = keys
        self._follower: Follower | None = None
        self.shelf = RecordingShelf()

    async def catch_up(self) -> None:
        """Up to the journal's end."""
        if self._follower is not None:
            log = self._keys.log
            while steps := (await read_on(self._client, {log: self._follower}, count=50, block_s=0.001)).get(log):
                for step in steps:
                    if isinstance(step, Reload) or (isinstance(step, Next) and isinstance(step.entry, Reasserted)):
                        return await self._load()
                    if isinstance(step, Next):
                        self.shelf.apply(step.entry)
            if self._follower.observe_head(await self._client.string(self._keys.head)) is None:
                return None
        return await self._load()

    async def _load(self) -> None:
        self.shelf = RecordingShelf()
        loaded = await load(self._client, self._keys, self.shelf, LoadOptions())
        self._follower = Follower(loaded.position)
        await self.catch_up()


async def clear(client: Client, keys: PartitionKeys, truth: Truth, number: int) -> None:
    """By an operator: whatever is on its way must not come back."""
    reply = await give(client, keys, Command(verb="clear", source=POD, nonce=f"clear {number}"), 600_000)
    if isinstance(reply, Commanded):
        truth.generation, truth.sequence, truth.held, truth.where = reply.generation, None, set(), None


@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_is_what_is_held(store: Store, keys: PartitionKeys, seed: int) -> None:
    """At every step, in the store and at a follower that looks now and then."""
    chance = random.Random(seed)

    async def body(client: Client) -> None:
        truth = Truth()
        registered = await give(client, keys, Command(verb="put", source=POD, nonce="put", descriptor=b"d"), 600_000)
        assert isinstance(registered, Commanded)
        truth.generation = registered.generation
        replicas = [Replica(client, store, keys, chance) for _ in range(2)]
        mirror = Mirror(client, keys)
        writes = 0
        for number in range(STEPS):
            replica = chance.choices(replicas, [3, 1])[0]
            before = truth.sequence
            match chance.choices(["write", "take", "turn", "assert", "clear"], [70, 12, 12, 8, 2])[0]:
                case "write":
                    await replica.write(truth)
                case "take":
                    await replica.take(truth)
                case "turn":
                    await replica.turn(truth)
                case "assert":
                    await replica.assert_anew(truth)
                case _:
                    await clear(client, keys, truth, number)
            writes += truth.sequence != before and truth.sequence is not None
            if truth.where is not None and chance.random() < 0.3:
                expected = {TOKEN + n: 1 for n in truth.held}
                fresh = RecordingShelf()
                assert {POD: "whole"} == (await load(client, keys, fresh, LoadOptions())).outcomes
                assert expected == fresh.held[POD], number
                await mirror.catch_up()
                assert expected == mirror.shelf.held[POD], number
        assert writes > STEPS // 10

    with_client(store, body)
