"""Every reply of every script, over every kind of server. Which there are is read from the scripts themselves."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import TYPE_CHECKING, Final

from indexer.clock import SystemClock
from indexer.history import Noted
from indexer.sharding.members import Member
from indexer.store import lua
from indexer.store.address import parse
from indexer.store.client import Client
from indexer.store.commands import Command, Verb, give
from indexer.store.entries import Reasserted, Turned
from indexer.store.failures import StoreFailure
from indexer.store.hints import PackedHint
from indexer.store.hints import append as tell
from indexer.store.history import append
from indexer.store.journal import Journal, NewCopy
from indexer.store.layout import PartitionKeys, replicas_key, source_name, tags
from indexer.store.lease import acquire, look, release, renew
from indexer.store.loads import PackedLoad, put_loads
from indexer.store.lua import Script
from indexer.store.members import beat, lift_drain
from indexer.store.names import put_names
from indexer.store.segments import by_segment
from tests.support.owning import PATIENT, POD, TIMES, acquired, begun, owning, run_of, stored, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from indexer.store.client import Reply, Word
    from tests.support.redis_servers import Store

SCRIPTS: Final = [value for value in vars(lua).values() if isinstance(value, Script)]
_LITERALS: Final = {b"again", b"log", b"source", b"copy"}
_FUNCTION: Final = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
_RETURN: Final = re.compile(r"return \{(.*?)\}")


class Heard(Client):
    """A client that remembers what scripts replied."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url), PATIENT, SystemClock(), random.Random(5))
        self.replies: set[tuple[str, str]] = set()

    async def run(self, script: Script, keys: Sequence[bytes], words: Sequence[Word]) -> Reply:
        reply = await super().run(script, keys, words)
        self.replies.add((script.name, " ".join([reply[0].decode(), *_literals(reply)])))
        return reply


def _literals(reply: Reply) -> list[str]:
    return [word.decode() for word in reply[1:] if isinstance(word, bytes) and word in _LITERALS]


def replies_in(text: str) -> set[str]:
    """The words that stand literally in what a piece of a script returns. Example: LOST log."""
    returned = (re.findall(r"(?:^|,\s*)'(\w+)'(?=,|$)", each) for each in _RETURN.findall(text))
    return {" ".join(words) for words in returned if words}


def replies_of(script: Script) -> set[str]:
    """All that it can say, also by the functions that scripts share."""
    code = re.sub(r"--.*", "", script.source.decode())
    shared = {match[1]: match[0] for match in _FUNCTION.finditer(code)}
    own = _FUNCTION.sub("", code)
    called = {name for name in shared if re.search(rf"\b{name}\(", own)}
    return replies_in(own).union(*(replies_in(shared[name]) for name in called))


def break_type(store: Store, key: bytes) -> None:
    """Another type where ours should be."""
    store.look.unlink(key)
    store.look.rpush(key, "x")
    store.look.pexpire(key, TIMES["retain_ms"])


async def lease(client: Client, keys: PartitionKeys, store: Store) -> None:
    """acquire, renew, release, look."""
    owned = await acquired(client, keys)
    await acquired(client, keys)
    await acquire(client, keys, replica="a", nonce="n2", **TIMES)
    await renew(client, keys, owned.token, TIMES["lease_ms"])
    await renew(client, keys, b"other", TIMES["lease_ms"])
    await release(client, keys, b"other")
    await release(client, keys, owned.token, to="b")
    await release(client, keys, owned.token, to="b")
    await look(client, keys)
    break_type(store, keys.owner)
    await look(client, keys)
    await renew(client, keys, owned.token, TIMES["lease_ms"])
    await release(client, keys, owned.token)
    await acquire(client, keys, replica="a", nonce="n3", **TIMES)


async def apply(client: Client, keys: PartitionKeys, store: Store) -> None:
    """apply, in an order in which each reply is due."""
    journal = await owning(client, keys)
    run = run_of(await begun(journal), None, 0, stored(range(4)))
    before = journal.position
    await journal.apply([run], told(run))
    journal.position = before
    await journal.apply([run], told(run))
    await journal.apply([run], told(run))  # CURSOR
    state = keys.source(POD)
    store.look.hset(state, "generation", 9)
    await journal.apply([run], told(run))
    store.look.hdel(state, "generation")
    await journal.apply([run], told(run))  # LOST source
    await _in_all(client, keys, store, journal, lambda: journal.apply([run], told(run)))


async def turn(client: Client, keys: PartitionKeys, store: Store) -> None:
    """turn."""
    journal = await owning(client, keys)
    before = journal.position
    await begun(journal)
    entry = Turned(source_name(POD), 7)
    journal.position = before
    await journal.turn(POD, 7, 4, entry)
    await journal.turn(POD, 7, 4, entry)  # GENERATION
    await _in_all(client, keys, store, journal, lambda: journal.turn(POD, 8, 4, entry))


async def copies(client: Client, keys: PartitionKeys, store: Store) -> None:
    """lay, flip, keep."""
    journal = await owning(client, keys)
    where = journal.new_copy(7, 4)
    (part,) = by_segment(stored(range(4)), list(keys.copy(POD, where.generation, where.copy, where.segments)))
    short = NewCopy(source=POD, where=where, cursor=None, facts=b"", pairs=4)
    entry = Reasserted(source_name(POD), 7, where.copy)
    await journal.flip(short, entry)  # LOST copy
    await journal.keep(POD, where)  # LOST source
    await journal.lay(POD, where, part)
    before = journal.position
    await journal.flip(short, entry)
    journal.position = before
    await journal.flip(short, entry)
    await journal.keep(POD, where)
    await journal.lay(POD, where, part)  # LOST source: in use
    store.look.hset(keys.source(POD), "generation", 8)
    for call in (journal.lay(POD, where, part), journal.keep(POD, where), journal.flip(short, entry)):
        await call  # GENERATION
    store.look.hset(keys.source(POD), "generation", 7)

    async def each() -> None:
        await journal.lay(POD, where, part)
        await journal.keep(POD, where)
        await journal.flip(short, entry)

    await _in_all(client, keys, store, journal, each)


async def commands(client: Client, keys: PartitionKeys, store: Store) -> None:
    """command."""

    async def say(verb: Verb, nonce: str, expected: bytes | None = None) -> None:
        command = Command(verb=verb, source=POD, nonce=nonce, descriptor=b"d", expected=expected)
        await give(client, keys, command, TIMES["retain_ms"])

    await say("clear", "1")  # UNKNOWN
    await say("put", "2")
    await say("put", "2")
    await say("put", "3")  # SAME
    await say("clear", "4", b"")  # OTHER
    break_type(store, keys.control)
    await say("clear", "5")


async def members(client: Client, keys: PartitionKeys, store: Store) -> None:
    """beat, drain; of no partition."""
    key = replicas_key("kvi")
    for _ in range(2):
        with contextlib.suppress(StoreFailure):  # TYPE
            await beat(client, key, Member(name="a", process="1"), retain_ms=TIMES["retain_ms"], forget_ms=60_000)
        with contextlib.suppress(StoreFailure):
            await lift_drain(client, key, "a")
        break_type(store, key)


async def histories(client: Client, keys: PartitionKeys, store: Store) -> None:
    """history: whatever lies at a key."""
    for number in (1, 2):
        await append(client, keys, "w", [(POD, Noted(1, number, b"entry"))], TIMES["retain_ms"])
        break_type(store, keys.history(POD))


async def counts(client: Client, keys: PartitionKeys, store: Store) -> None:
    """counts: told by the owner, by another, and with something else at its key."""
    journal = await owning(client, keys)
    await begun(journal)
    for token in (journal.token, b"other"):
        await client.run(lua.COUNTS, (keys.owner, keys.source(POD)), (token, b"7", b"counts"))
    break_type(store, keys.owner)
    await client.run(lua.COUNTS, (keys.owner, keys.source(POD)), (journal.token, b"7", b"counts"))


async def loads(client: Client, keys: PartitionKeys, store: Store) -> None:
    """loads: whatever lies at its key."""
    for _ in range(2):
        with contextlib.suppress(StoreFailure):  # TYPE
            await put_loads(client, keys, "1", [PackedLoad(source_name(POD), 1, 2, None, 3)], TIMES["retain_ms"])
        break_type(store, keys.loads)


async def names(client: Client, keys: PartitionKeys, store: Store) -> None:
    """names: whatever lies at its key."""
    for _ in range(2):
        with contextlib.suppress(StoreFailure):
            await put_names(client, keys, b"", TIMES["retain_ms"])
        break_type(store, keys.names)


async def hints(client: Client, keys: PartitionKeys, store: Store) -> None:
    """hints: whatever lies at its key."""
    for _ in range(2):
        with contextlib.suppress(StoreFailure):  # TYPE
            await tell(client, keys, "w", [PackedHint(source_name(POD), 7, 1_000, bytes(8))], TIMES["retain_ms"])
        break_type(store, keys.hints)


async def _in_all(
    client: Client, keys: PartitionKeys, store: Store, journal: Journal, call: Callable[[], Awaitable[object]]
) -> None:
    """What every write of an owner may hear: another owner, another end of the journal, another type."""
    store.look.set(keys.head, "1-1", px=TIMES["retain_ms"])
    await call()  # LOST log
    store.look.set(keys.owner, "other", px=TIMES["lease_ms"])
    await call()  # FENCED
    break_type(store, keys.owner)
    await call()  # TYPE


def test_every_reply_is_given(store: Store) -> None:
    """None is there that no server of this kind gives, and none is given that the script does not name."""

    async def body() -> set[tuple[str, str]]:
        client = Heard(store.url)
        try:
            parts = (lease, apply, turn, copies, commands, members, histories, counts, hints, loads, names)
            for tag, part in zip(tags(len(parts)), parts, strict=True):
                await part(client, PartitionKeys("kvi", tag), store)
        finally:
            await client.close()
        return client.replies

    named = {(script.name, reply) for script in SCRIPTS for reply in replies_of(script)}
    assert len(SCRIPTS) == len({name for name, _ in named})
    assert named == asyncio.run(body())
